// Arrays of few of the labels.
#pragma once

#include <cstdint>

namespace fwcrf {

// out (n, count) = the columns `which` of x (n, labels); and back, with zeros in the others.
template <typename T>
void take_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                  T* out, int threads);
template <typename T>
void spread_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                    T* out, int threads);

}  // namespace fwcrf
