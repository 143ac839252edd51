// Derivatives in the weights of a lattice kernel, in the pass that reads the kernel at the pixels.
//
// With weights S, a symmetric blur B and a symmetric matrix M, K x M = S B S' x M. The derivative of <p, K x M> in the
// weight of pixel i on its corner c is <p_i, (B S' x M)_c> + <x_i, (B S' p M)_c>: products with rows of two blurred
// lattices, of which the first row is read for K x M anyway.
#pragma once

#include "lattice/arguments.hpp"
#include "steps/pixel_rows.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct CornerSlopes {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = NV * W;

    const FilterArgs<T>& lattice;
    const T *values, *points;  // B S' x M and B S' p M, (vertices, kRow)
    T* slopes;                 // (n, corners)

    // y (+)= K x M of a block; x and p are its rows.
    template <bool Add> void slice(const Block& block, const T* x, const T* p, T* y) const {
        if (lattice.corners == 6) return slice<Add, 6>(block, x, p, y);
        if (lattice.corners == 3) return slice<Add, 3>(block, x, p, y);
        slice<Add, 0>(block, x, p, y);
    }

  private:
    template <bool Add, int C> void slice(const Block& block, const T* x, const T* p, T* y) const {
        const std::int64_t corners = C ? C : lattice.corners;
        const std::int32_t* index = lattice.index + block.first * corners;
        const T* weight = lattice.slice + block.first * corners;
        T* to = slopes + block.first * corners;
        // As many pixels as fill a vector with their sums: a sum along a vector takes longer than its products.
        constexpr int kTogether = C && C <= W ? W / C : 0, kEach = kTogether * C;
        std::int64_t q = 0;
        for (; kTogether && q + kTogether <= block.pixels; q += kTogether) {
            Vec<T> sum[W] = {};
#pragma GCC unroll 16
            for (int t = 0; t < kTogether; ++t)
                corner<Add, C>(q + t, index + t * C, weight + t * C, 0, C, x, p, y, sum + t * C);
            const Vec<T> found = sums<T>(sum);
            // Lanes past the sums are 0, and may be added to the slopes of the next pixel of this block.
            const bool whole = (block.pixels - q) * C >= W;
            const std::int64_t count = whole ? W : kEach;
            store_some(to, load_some<T>(to, count) + found, count);
            index += kEach;
            weight += kEach;
            to += kEach;
        }
        for (; q < block.pixels; ++q, index += corners, weight += corners, to += corners)
            for (std::int64_t first = 0; first < corners; first += W) {
                const std::int64_t count = first + W < corners ? W : corners - first;
                Vec<T> sum[W] = {};
                corner<Add, 0>(q, index, weight, first, count, x, p, y, sum);
                store_some(to + first, load_some<T>(to + first, count) + sums<T>(sum), count);
            }
    }

    // The products of `count` corners of a pixel from `first` on, and their part of K x M.
    template <bool Add, int C>
    inline void corner(std::int64_t q, const std::int32_t* index, const T* weight, std::int64_t first,
                       std::int64_t count, const T* x, const T* p, T* y, Vec<T>* sum) const {
        Vec<T> here[NV], point[NV], v[NV] = {};
        for (int k = 0; k < NV; ++k) {
            here[k] = load(x + q * kRow + k * W);
            point[k] = load(p + q * kRow + k * W);
            if (Add || first) v[k] = load(y + q * kRow + k * W);
        }
        const auto add = [&](std::int64_t m) {
            const std::int64_t row = index[first + m] * kRow;
            for (int k = 0; k < NV; ++k) {
                const Vec<T> value = load_once(values + row + k * W);
                v[k] += weight[first + m] * value;
                sum[m] += point[k] * value + here[k] * load(points + row + k * W);
            }
        };
        if constexpr (C != 0) {
#pragma GCC unroll 8
            for (int m = 0; m < C; ++m) add(m);
        } else {
            for (std::int64_t m = 0; m < count; ++m) add(m);
        }
        for (int k = 0; k < NV; ++k) store(y + q * kRow + k * W, v[k]);
    }
};

}  // namespace fwcrf::FWCRF_ISA
