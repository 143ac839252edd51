// What a lattice is made like a Gaussian with: sums of the exact kernel, weights by place in the simplex, and by point.
#include "kernels.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
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

// C is the number of corners where it is known to the compiler, 0 otherwise.
template <int C, typename T> static void placed(const PlaceArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const int corners = C ? C : a.corners;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t i = 0; i < a.n; i += W) {
        const int count = static_cast<int>(a.n - i < W ? a.n - i : W);
        const T* weight = a.weight + i * corners;
        T* out = a.out + i * corners;
        Vec<T> squares{};
        for (int l = 0; l < count; ++l) {
            T sum = 0;
            for (int c = 0; c < corners; ++c) sum += weight[l * corners + c] * weight[l * corners + c];
            squares[l] = sum;
        }
        const Vec<T> factor = exp<T>(a.exponent * squares);
        for (int l = 0; l < count; ++l)
            for (int c = 0; c < corners; ++c) out[l * corners + c] = factor[l] * weight[l * corners + c];
    }
}

template <int C, typename T> static void scaled_rows(const ScaleArgs<T>& a) {
    const int corners = C ? C : a.corners;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t i = 0; i < a.n; ++i)
        for (int c = 0; c < corners; ++c) a.out[i * corners + c] = a.factor[i] * a.weight[i * corners + c];
}

#define FWCRF_GAUSSIAN(T, SUFFIX)                                                     \
    void gaussian_sums_##SUFFIX(const SumArgs<T>& a) { gaussian_sums(a); }            \
    void placed_##SUFFIX(const PlaceArgs<T>& a) { a.corners == 6 ? placed<6>(a) : placed<0>(a); }                      \
    void scaled_rows_##SUFFIX(const ScaleArgs<T>& a) { a.corners == 6 ? scaled_rows<6>(a) : scaled_rows<0>(a); }

FWCRF_GAUSSIAN(float, f32)
FWCRF_GAUSSIAN(double, f64)

}  // namespace fwcrf::FWCRF_ISA
