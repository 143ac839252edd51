// Products of rows of NV vectors with few entries that are not 0, and matrices.
#pragma once

#include "simd/product.hpp"

namespace fwcrf::FWCRF_ISA {
namespace {

// The entries of a row that are not 0, one bit each; up to 64 of them.
template <typename T, int NV> inline std::uint64_t present(const T* row) {
    constexpr int W = kLanes<T>;
    std::uint64_t found = 0;
    for (int k = 0; k < NV; ++k) found |= bits(load(row + k * W) != T(0)) << k * W;
    return found;
}
// Calls act(four entries, their values) until all entries of a row had their turn; missing entries are 0. In fours the
// number of turns is nearly always the same, so that the processor foresees it.
template <typename T, typename F> inline void for_fours(std::uint64_t entries, const T* row, F&& act) {
    do {
        std::int64_t at[4];
        T value[4];
        for (int j = 0; j < 4; ++j) {
            at[j] = entries ? __builtin_ctzll(entries) : 0;
            value[j] = entries ? row[at[j]] : T(0);
            entries &= entries - 1;
        }
        act(at, value);
    } while (entries);
}

// product_p = y M_p for a row y and P matrices (labels, NV vectors).
template <typename T, int NV, int P>
inline void sparse_products(const T* y, std::uint64_t entries, const T* const (&matrix)[P], Vec<T> (&product)[P][NV]) {
    constexpr int W = kLanes<T>, row = NV * W;
    for (int p = 0; p < P; ++p)
        for (int k = 0; k < NV; ++k) product[p][k] = Vec<T>{};
    for_fours<T>(entries, y, [&](const std::int64_t (&at)[4], const T(&value)[4]) {
        for (int j = 0; j < 4; ++j)
            for (int p = 0; p < P; ++p)
                for (int k = 0; k < NV; ++k) product[p][k] += value[j] * load(matrix[p] + at[j] * row + k * W);
    });
}

// sum_p += weight_p left' y for two rows. The sums have rows of NV vectors.
template <typename T, int NV, int P>
inline void sparse_outer(const T* left, std::uint64_t entries, const Vec<T> (&y)[NV], const T (&weight)[P],
                         T* const (&sum)[P]) {
    constexpr int W = kLanes<T>, row = NV * W;
    for_fours<T>(entries, left, [&](const std::int64_t (&at)[4], const T(&value)[4]) {
        for (int j = 0; j < 4; ++j)
            for (int p = 0; p < P; ++p)
                for (int k = 0; k < NV; ++k) {
                    T* const to = sum[p] + at[j] * row + k * W;
                    store(to, load(to) + value[j] * weight[p] * y[k]);
                }
    });
}

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
