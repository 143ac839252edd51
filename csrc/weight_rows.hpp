// The weights of points on the corners of their simplices, some points at a time.
#pragma once

#include "vectors.hpp"

#include <utility>

namespace fwcrf::FWCRF_ISA {

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

}  // namespace fwcrf::FWCRF_ISA
