#include "columns.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace fwcrf {

template <typename T>
void spans(const T* x, const T* u, std::int64_t n, std::int64_t labels, T* gap, T* most, int threads) {
    std::fill(gap, gap + labels, std::numeric_limits<T>::infinity());
    std::fill(most, most + labels, T(0));
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#endif
    {
        std::vector<T> near(labels, std::numeric_limits<T>::infinity()), large(labels, T(0));
        T *const own_gap = near.data(), *const own_most = large.data();
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (std::int64_t i = 0; i < n; ++i) {
            const T *const a = u + i * labels, *const b = x + i * labels;
            T least = a[0];
            for (std::int64_t s = 1; s < labels; ++s) least = a[s] < least ? a[s] : least;
            for (std::int64_t s = 0; s < labels; ++s) {
                const T apart = a[s] - least;
                own_gap[s] = apart < own_gap[s] ? apart : own_gap[s];
                own_most[s] = b[s] > own_most[s] ? b[s] : own_most[s];
            }
        }
#ifdef _OPENMP
#pragma omp critical
#endif
        for (std::int64_t s = 0; s < labels; ++s) {
            gap[s] = std::min(gap[s], own_gap[s]);
            most[s] = std::max(most[s], own_most[s]);
        }
    }
}

template <typename T>
void take_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                  T* out, int threads) {
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads)
#endif
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j < count; ++j) out[i * count + j] = x[i * labels + which[j]];
}

template <typename T>
void spread_columns(const T* x, std::int64_t n, std::int64_t labels, const std::int64_t* which, std::int64_t count,
                    T* out, int threads) {
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads)
#endif
    for (std::int64_t i = 0; i < n; ++i) {
        T* const row = out + i * labels;
        std::fill(row, row + labels, T(0));
        for (std::int64_t j = 0; j < count; ++j) row[which[j]] = x[i * count + j];
    }
}

#define FWCRF_COLUMNS(T)                                                                                           \
    template void spans(const T*, const T*, std::int64_t, std::int64_t, T*, T*, int);                              \
    template void take_columns(const T*, std::int64_t, std::int64_t, const std::int64_t*, std::int64_t, T*, int);  \
    template void spread_columns(const T*, std::int64_t, std::int64_t, const std::int64_t*, std::int64_t, T*, int);
FWCRF_COLUMNS(float)
FWCRF_COLUMNS(double)

}  // namespace fwcrf
