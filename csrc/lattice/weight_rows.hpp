// The weights of points on the corners of their simplices, as many points at a time as a vector has lanes.
#pragma once

#include "simd/vectors.hpp"

#include <utility>

namespace fwcrf::FWCRF_ISA {

// W rows of C entries, each times its factor.
template <int C, typename T, int... k>
static inline void scale(const T* rows, Vec<T> factor, T* out, std::integer_sequence<int, k...>) {
    constexpr std::make_integer_sequence<int, kLanes<T>> lanes{};
    (store(out + k * kLanes<T>, load(rows + k * kLanes<T>) * repeated<C, k, T>(factor, lanes)), ...);
}

// Rows of weights. C is the number of corners if it is known at compile time, else 0; then W rows are scaled at a time.
template <int C, typename T> struct WeightRows {
    static constexpr std::int64_t W = kLanes<T>;
    static constexpr bool kSquare = C && C <= W;  // a row fits into a vector
    const std::int64_t n;
    const int corners;

    inline bool whole(std::int64_t i) const { return C && i + W <= n; }
    // The sums of squares of the rows from i on; zero past the last row.
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
            set_lane(sum, l, own);
        }
        return sum;
    }
    inline void scaled(const T* weight, std::int64_t i, Vec<T> factor, T* out) const {
        if constexpr (C != 0) {
            if (whole(i)) return scale<C, T>(weight + i * C, factor, out + i * C, std::make_integer_sequence<int, C>{});
        }
        for (int l = 0; l < W && i + l < n; ++l)
            for (int c = 0; c < corners; ++c)
                out[(i + l) * corners + c] = lane(factor, l) * weight[(i + l) * corners + c];
    }
};

}  // namespace fwcrf::FWCRF_ISA
