// What a lattice is made like a Gaussian with: sums of the exact kernel, weights by place in the simplex, and by point.
#include "kernels.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "weight_rows.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> static inline T total(Vec<T> v) {
    T sum = 0;
    for (int l = 0; l < kLanes<T>; ++l) sum += v[l];
    return sum;
}

template <typename T> static void gaussian_sums(const SumArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t blocks = (a.columns + W - 1) / W, each = blocks * a.d * W;
    thread_local Scratch scratch;
    // By feature within a block of columns; those past the last are infinitely far.
    T* const all = scratch.get<T>(a.batch * each);
    for (std::int64_t b = 0; b < a.batch; ++b)
        for (std::int64_t j = 0; j < blocks * W; ++j)
            for (int f = 0; f < a.d; ++f)
                all[b * each + ((j / W) * a.d + f) * W + j % W] =
                    j < a.columns ? a.column[(b * a.columns + j) * a.d + f] : static_cast<T>(__builtin_inf());
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t i = 0; i < a.batch * a.rows; ++i) {
        const T* const row = a.row + i * a.d;
        const T* column = all + i / a.rows * each;
        Vec<T> sum{};
        for (std::int64_t block = 0; block < blocks; ++block) {
            Vec<T> distance{};
            for (int f = 0; f < a.d; ++f, column += W) {
                const Vec<T> step = row[f] - load(column);
                distance += step * step;
            }
            sum += exp<T>(T(-0.5) * distance);
        }
        a.out[i] = total<T>(sum);
    }
    scratch.trim();
}

template <int C, typename T> static void placed(const PlaceArgs<T>& a) {
    const WeightRows<C, T> rows{a.n, C ? C : a.corners};
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t groups = (a.n + W - 1) / W;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t g = 0; g < a.batch * groups; ++g) {
        const std::int64_t image = g / groups, at = image * a.n * rows.corners, i = g % groups * W;
        const Vec<T> factor = a.factor[image] * exp<T>(a.exponent * rows.squares(a.weight + at, i));
        rows.scaled(a.weight + at, i, factor, a.out + at);
    }
}

template <int C, typename T> static void scaled_rows(const ScaleArgs<T>& a) {
    const WeightRows<C, T> rows{a.n, C ? C : a.corners};
    constexpr std::int64_t W = kLanes<T>;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t i = 0; i < a.n; i += W) {
        const std::int64_t count = a.n - i < W ? a.n - i : W;
        const Vec<T> factor = load_some(a.factor + i, count);
        rows.scaled(a.weight, i, factor, a.out);
        for (int k = 0; k < 2; ++k) {
            if (!a.diagonal[k]) continue;
            store_some(a.scaled[k] + i, factor * load_some(a.diagonal[k] + i, count) * factor, count);
        }
    }
}

#define FWCRF_GAUSSIAN(T, SUFFIX)                                                     \
    void gaussian_sums_##SUFFIX(const SumArgs<T>& a) { gaussian_sums(a); }            \
    void placed_##SUFFIX(const PlaceArgs<T>& a) { a.corners == 6 ? placed<6>(a) : placed<0>(a); }                      \
    void scaled_rows_##SUFFIX(const ScaleArgs<T>& a) { a.corners == 6 ? scaled_rows<6>(a) : scaled_rows<0>(a); }

FWCRF_GAUSSIAN(float, f32)
FWCRF_GAUSSIAN(double, f64)

}  // namespace fwcrf::FWCRF_ISA
