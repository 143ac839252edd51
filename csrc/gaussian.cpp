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

// Lane l of vector k of an array of rows of C entries, of those of v the one of its row.
template <int C, int k, typename T, int... lane>
static inline Vec<T> spread(Vec<T> v, std::integer_sequence<int, lane...>) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(v, v, ((k * kLanes<T> + lane) / C)...);
#else
    return Vec<T>{v[(k * kLanes<T> + lane) / C]...};
#endif
}
// As many rows of C entries as a vector has lanes, times a factor each.
template <int C, typename T, int... k>
static inline void scale(const T* rows, Vec<T> factor, T* out, std::integer_sequence<int, k...>) {
    constexpr std::make_integer_sequence<int, kLanes<T>> lanes{};
    (store(out + k * kLanes<T>, load(rows + k * kLanes<T>) * spread<C, k, T>(factor, lanes)), ...);
}

// Rows of weights, W at a time where the number of corners C is known to the compiler, which is 0 otherwise.
template <int C, typename T> struct WeightRows {
    static constexpr std::int64_t W = kLanes<T>;
    static constexpr bool kSquare = C && C <= W;  // rows that fit into a vector
    const std::int64_t n;
    const int corners;

    inline bool whole(std::int64_t i) const { return C && i + W <= n; }
    // The sums of squares of as many rows as there are from i on.
    inline Vec<T> squares(const T* weight, std::int64_t i) const {
        Vec<T> sum{};
        if constexpr (kSquare) {
            if ((i + W - 1) * C + W <= n * C) {
                Vec<T> square[W];
                for (int r = 0; r < W; ++r) square[r] = load(weight + (i + r) * C);
                transpose<T>(square);
                for (int c = 0; c < C; ++c) sum += square[c] * square[c];
                return sum;
            }
        }
        for (int l = 0; l < W && i + l < n; ++l) {
            T own = 0;
            for (int c = 0; c < corners; ++c) own += weight[(i + l) * corners + c] * weight[(i + l) * corners + c];
            sum[l] = own;
        }
        return sum;
    }
    inline void scaled(const T* weight, std::int64_t i, Vec<T> factor, T* out) const {
        if constexpr (C != 0) {
            if (whole(i))
                return scale<C, T>(weight + i * C, factor, out + i * C, std::make_integer_sequence<int, C>{});
        }
        for (int l = 0; l < W && i + l < n; ++l)
            for (int c = 0; c < corners; ++c)
                out[(i + l) * corners + c] = factor[l] * weight[(i + l) * corners + c];
    }
};

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
        const Vec<T> factor = count == W ? load(a.factor + i) : load_part(a.factor + i, count);
        rows.scaled(a.weight, i, factor, a.out);
        for (int k = 0; k < 2; ++k) {
            if (!a.diagonal[k]) continue;
            if (count == W) store(a.scaled[k] + i, factor * load(a.diagonal[k] + i) * factor);
            else store_part(a.scaled[k] + i, factor * load_part(a.diagonal[k] + i, count) * factor, count);
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
