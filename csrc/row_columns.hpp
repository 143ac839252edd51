// Columns of rows that lie one after the other.
#pragma once

#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// act(column, vector of its entries) for the columns of as many rows as a vector has lanes, some of them twice.
template <typename T, typename F> static inline void columns_of(const T* rows, std::int64_t length, F&& act) {
    constexpr std::int64_t W = kLanes<T>;
    const int several = static_cast<int>(length < W ? length : W);
    for (std::int64_t s = 0; s < length; s += W) {
        const std::int64_t first = s + W <= length || length < W ? s : length - W;
        Vec<T> square[W];
        for (int r = 0; r < W; ++r) square[r] = load(rows + r * length + first);
        transpose<T>(square);
        for (int c = 0; c < several; ++c) act(first + c, square[c]);
    }
}

// So many groups of rows can be read as vectors: short rows are read past their end where others follow.
template <typename T> static std::int64_t whole_groups(std::int64_t n, std::int64_t length) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t past = length < W ? (W - 1) / length : 0;
    return n > past ? (n - past) / W : 0;
}

}  // namespace fwcrf::FWCRF_ISA
