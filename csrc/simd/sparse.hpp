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
// Calls act(entry) for each bit.
template <typename F> inline void for_bits(std::uint64_t bits, F&& act) {
    for (; bits; bits &= bits - 1) act(__builtin_ctzll(bits));
}

// target = y M, for `count` rows whose entries are listed. M is (labels, NV vectors).
template <typename T, int NV>
inline void sparse_products(const T* y, const std::uint64_t* entries, const T* matrix, std::int64_t count, T* target) {
    constexpr int W = kLanes<T>, row = NV * W;
    for (std::int64_t q = 0; q < count; ++q) {
        Vec<T> sum[NV] = {};
        for_bits(entries[q], [&](int s) {
            for (int k = 0; k < NV; ++k) sum[k] += y[q * row + s] * load(matrix + s * row + k * W);
        });
        for (int k = 0; k < NV; ++k) store(target + q * row + k * W, sum[k]);
    }
}

// sum += left' y, for `count` rows, of which the entries of `left` are listed. The sum has rows of NV vectors.
template <typename T, int NV>
inline void sparse_outer(const T* left, const std::uint64_t* entries, const T* y, std::int64_t count, T* sum) {
    constexpr int W = kLanes<T>, row = NV * W;
    for (std::int64_t q = 0; q < count; ++q) {
        Vec<T> v[NV];
        for (int k = 0; k < NV; ++k) v[k] = load_once(y + q * row + k * W);
        for_bits(entries[q], [&](int s) {
            for (int k = 0; k < NV; ++k) {
                T* const at = sum + s * row + k * W;
                store(at, load(at) + left[q * row + s] * v[k]);
            }
        });
    }
}

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
