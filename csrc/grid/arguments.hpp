// Arguments of the functions on grids: separable kernels as banded matrices, and filters along one axis.
#pragma once

#include <cstdint>

namespace fwcrf {

// out = Gaussian-like filter of x along one axis of an array (outer, length, inner), with zeros outside.
template <typename T> struct AxisArgs {
    const T* x;
    T* out;
    std::int64_t outer, length, inner;
    const T* taps;  // taps[t] multiplies x[i - t] + x[i + t]; taps[0] the centre
    std::int64_t radius;
    int threads;
};

// A banded matrix: row j has `width` entries from column first[j] on. `first` never decreases.
template <typename T> struct Band {
    std::int64_t rows, columns, width;  // width 0: no matrix
    const std::int32_t* first;          // (rows)
    const T* weight;                    // (rows, width)
};

// out = band times x along one axis, from (outer, columns, inner) to (outer, rows, ...). shrink_lines: the last axis of
// a grid, `inner` values per pixel, and `cell` in `out`: whole vectors, with unused values beyond `inner`. shrink_axis:
// any axis, and `inner` values, an even number of vectors, in both.
template <typename T> struct BandArgs {
    const T* x;
    T* out;
    std::int64_t outer, inner, cell;
    Band<T> band;
    int threads;
};

// sums_ij += sum_o <left_oi, right_oj> for |i - j| <= reach, of arrays (outer, size, inner, cell) with `labels` values
// per cell. Some sums beyond the reach are added too.
template <typename T> struct BandProductArgs {
    const T *left, *right;
    std::int64_t outer, size, inner, cell, labels, reach;
    T* sums;  // (size, size)
    int threads;
};

// K_1 (x) K_2 (x) ... over the axes of a grid, each K_a = up_a middle_a down_a: down to a coarse grid, filter, up
// again.
constexpr int kMaxAxes = 8;
template <typename T> struct Grid {
    int axes;
    Band<T> down[kMaxAxes], middle[kMaxAxes], up[kMaxAxes];
    // The last axis without a coarse grid: diag(left) K diag(right) with K_ij = taps[|i - j|]; or null.
    const T *taps, *left, *right;
    std::int64_t radius;
};

// Values of a line of coarse points of the last axis, an even number of vectors; `cell` values per point. Of a single
// axis, lines have one point.
template <typename T> std::int64_t coarse_line(const Grid<T>& g, std::int64_t cell, std::int64_t lanes) {
    const std::int64_t points = g.axes > 1 ? g.up[g.axes - 1].columns : 1;
    return (points * cell + 2 * lanes - 1) / (2 * lanes) * (2 * lanes);
}

}  // namespace fwcrf
