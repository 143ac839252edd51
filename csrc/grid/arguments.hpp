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

}  // namespace fwcrf
