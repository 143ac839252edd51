// Columns of rows that lie one after the other.
#pragma once

#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// act(group, column, vector of its entries) for the columns of G groups of as many rows as a vector has lanes, some of them
// twice. All groups of a few columns come before the next columns: whoever writes these has few lines to write to.
template <int G = 1, typename T, typename F>
static inline void columns_of(const T* rows, std::int64_t length, F&& act) {
    constexpr std::int64_t W = kLanes<T>;
    const int several = static_cast<int>(length < W ? length : W);
    for (std::int64_t s = 0; s < length; s += W) {
        const std::int64_t first = s + W <= length || length < W ? s : length - W;
        for (int g = 0; g < G; ++g) {
            Vec<T> square[W];
            for (int r = 0; r < W; ++r) {
                const T* const row = rows + (g * W + r) * length + first;
                // Pieces of so many rows are not foreseen by the processor.
                if (G > 1) __builtin_prefetch(row + G * W * length);
                square[r] = load(row);
            }
            transpose<T>(square);
            for (int c = 0; c < several; ++c) act(g, first + c, square[c]);
        }
    }
}

// So many groups of rows can be read as vectors: short rows are read past their end where others follow.
template <typename T> static std::int64_t whole_groups(std::int64_t n, std::int64_t length) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t past = length < W ? (W - 1) / length : 0;
    return n > past ? (n - past) / W : 0;
}

}  // namespace fwcrf::FWCRF_ISA
