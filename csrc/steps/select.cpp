#include "steps/select.hpp"

#include "runtime/parallel.hpp"

#include <algorithm>

namespace fwcrf {

template <typename T>
void take_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                  T* out, int threads) {
    for_each(threads, n, [=](std::int64_t i) {
        for (std::int64_t j = 0; j < count; ++j) out[i * count + j] = x[i * labels + which[j]];
    });
}

template <typename T>
void spread_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                    T* out, int threads) {
    for_each(threads, n, [=](std::int64_t i) {
        T* const row = out + i * labels;
        std::fill(row, row + labels, T(0));
        for (std::int64_t j = 0; j < count; ++j) row[which[j]] = x[i * count + j];
    });
}

#define FWCRF_COLUMNS(T)                                                                                               \
    template void take_columns(const T*, std::int64_t, std::int64_t, const std::int64_t*, std::int64_t, T*, int);      \
    template void spread_columns(const T*, std::int64_t, std::int64_t, const std::int64_t*, std::int64_t, T*, int);
FWCRF_COLUMNS(float)
FWCRF_COLUMNS(double)

}  // namespace fwcrf
