// Few of the labels: which ones matter, and arrays of those alone.
#pragma once

#include <cstdint>

namespace fwcrf {

// Of each label: the least u less the least u of its row, and the largest x. Both arrays are (n, labels).
template <typename T>
void spans(const T* x, const T* u, std::int64_t n, std::int64_t labels, T* gap, T* most, int threads);

// out (n, count) = the columns `which` of x (n, labels); and back, with zeros in the others.
template <typename T>
void take_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                  T* out, int threads);
template <typename T>
void spread_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                    T* out, int threads);

}  // namespace fwcrf
