// Some of the labels of an array.
#pragma once

#include <cstdint>

namespace fwcrf {

// take: out (n, count) = the columns `which` of x (n, labels). spread: the inverse, with zeros in the remaining
// columns.
template <typename T>
void take_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                  T* out, int threads);
template <typename T>
void spread_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                    T* out, int threads);

}  // namespace fwcrf
