// Rows of an array as vectors.
#pragma once

#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {
namespace {

// A row cut into vectors. The last vector ends with the row, so it may overlap the vector before.
template <typename T> struct Row {
    static constexpr int W = kLanes<T>;
    const std::int64_t length;  // at least W

    // The first entry of the vector that would begin at `at`.
    inline std::int64_t place(std::int64_t at) const { return at + W <= length ? at : length - W; }
    // The lanes of the last vector that are not also in the vector before.
    inline Mask<T> fresh() const {
        const std::int64_t repeated = (length + W - 1) / W * W - length;
        const Int<T> number = lanes_of<Int<T>>([](int l) { return l; });
        return number >= static_cast<decltype(lane(number, 0) + 0)>(repeated);
    }
};

// Calls act(group, column, vector of the column's entries) for G groups of W rows, W the lanes of a vector; some
// columns come twice. All groups of a few columns come before the next columns, so that the caller writes to few cache
// lines at a time.
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
                // The processor's own prefetch does not follow so many rows.
                if (G > 1) __builtin_prefetch(row + G * W * length);
                square[r] = load(row);
            }
            transpose<T>(square);
            for (int c = 0; c < several; ++c) act(g, first + c, square[c]);
        }
    }
}

// The number of groups of W rows that can be read as whole vectors: a short row is read past its end if more rows
// follow.
template <typename T> static std::int64_t whole_groups(std::int64_t n, std::int64_t length) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t past = length < W ? (W - 1) / length : 0;
    return n > past ? (n - past) / W : 0;
}

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
