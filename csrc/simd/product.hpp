// Products of rows of NV vectors and matrices.
#pragma once

#include "simd/vectors.hpp"

#include <cstdint>
#include <cstring>

namespace fwcrf::FWCRF_ISA {
namespace {

// Rows of a product that are computed together: as many as the registers hold, so that each load is used that often.
template <int NV> constexpr int kProductRows = NV < 9 ? 9 / NV : 1;

// sum_r += the sum over i of factor(r, i) times row i.
template <typename T, int NV, int R, typename F>
inline void add_rows(const T* rows, std::int64_t count, F&& factor, Vec<T> (&sum)[R][NV]) {
    constexpr int W = kLanes<T>;
    for (std::int64_t i = 0; i < count; ++i) {
        Vec<T> v[NV];
        for (int k = 0; k < NV; ++k) v[k] = load_once(rows + (i * NV + k) * W);
        for (int r = 0; r < R; ++r)
            for (int k = 0; k < NV; ++k) sum[r][k] += factor(r, i) * v[k];
    }
}

template <typename T, int NV, int R>
inline void add_products(const T* y, const T* matrix, std::int64_t labels, T* target) {
    constexpr int W = kLanes<T>, row = NV * W;
    Vec<T> sum[R][NV];
    for (int r = 0; r < R; ++r)
        for (int k = 0; k < NV; ++k) sum[r][k] = load(target + r * row + k * W);
    add_rows<T, NV, R>(matrix, labels, [y](int r, std::int64_t s) { return y[r * row + s]; }, sum);
    for (int r = 0; r < R; ++r)
        for (int k = 0; k < NV; ++k) store(target + r * row + k * W, sum[r][k]);
}
// A copy of a matrix in `to`, with rows of NV vectors, zero past the labels.
template <typename T, int NV> inline void pad_rows(const T* matrix, std::int64_t labels, T* to) {
    constexpr std::int64_t row = NV * kLanes<T>;
    std::memset(to, 0, labels * row * sizeof(T));
    for (std::int64_t s = 0; s < labels; ++s) std::memcpy(to + s * row, matrix + s * labels, labels * sizeof(T));
}

// target += y M, for `count` rows. M is (labels, NV vectors), zero past the labels.
template <typename T, int NV>
inline void add_products(const T* y, const T* matrix, std::int64_t labels, std::int64_t count, T* target) {
    constexpr int row = NV * kLanes<T>, R = kProductRows<NV>;
    std::int64_t q = 0;
    for (; q + R <= count; q += R) add_products<T, NV, R>(y + q * row, matrix, labels, target + q * row);
    for (; q < count; ++q) add_products<T, NV, 1>(y + q * row, matrix, labels, target + q * row);
}

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
