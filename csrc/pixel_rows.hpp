// Pixels of an array as rows of whole vectors.
#pragma once

#include "vectors.hpp"

#include <cstdint>

namespace fwcrf::FWCRF_ISA {

// Pixels that are dealt with one after the other: few enough for their rows to stay in the first-level cache.
constexpr std::int64_t kPixels = 64;
struct Block {
    std::int64_t first, pixels;
};

// Soon to be read: into the second-level cache, because the first is full of other things.
template <typename V> static inline void ahead(const V* values, int count) {
    constexpr int line = 64 / sizeof(V);
    for (int at = 0; at < count; at += line) __builtin_prefetch(values + at, 0, 2);
}

template <typename T, int NV> struct PixelRows {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = NV * W;
    static constexpr int kLast = (NV - 1) * W;  // where the last vector of a row begins

    std::int64_t n, channels;
    std::int64_t overhang;  // how many pixels further a row of whole vectors may reach
    Vec<T> mask;            // 1 for the labels in the last vector of a row, 0 past them

    PixelRows(std::int64_t n, std::int64_t channels) : n(n), channels(channels), overhang(1 + kRow / channels) {
        for (int l = 0; l < W; ++l) mask[l] = kLast + l < channels ? T(1) : T(0);
    }

    // Whether pixel i can be read as whole vectors.
    inline bool inside(std::int64_t i) const { return i + overhang < n; }
    // A last vector, with something else past the labels: what lies there need not be finite.
    inline Vec<T> within(Vec<T> v, Vec<T> past) const { return mask != T(0) ? v : past; }

    // The last vector of a pixel, which begins at `row`.
    static inline Vec<T> last(const T* row, bool inside, std::int64_t channels) {
        return inside ? load(row + kLast) : load_part(row + kLast, channels - kLast);
    }
    // The labels of pixel i, zero past them.
    inline void get(const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        const T* const row = array + i * channels;
        for (int k = 0; k + 1 < NV; ++k) v[k] = load(row + k * W);
        v[NV - 1] = within(last(row, inside(i), channels), Vec<T>{});
    }
    void get(const T* array, const Block& block, T* __restrict rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            ahead(array + (block.first + q + kPixels) * channels, kRow);
            get(array, block.first + q, v);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
    }

    // Nothing past the labels is touched: other threads, and other blocks of this one, still read there.
    static inline void put(T* to, const T* row, std::int64_t channels) {
        for (int k = 0; k + 1 < NV; ++k) store(to + k * W, load(row + k * W));
        if (channels >= W) store(to + channels - W, load(row + channels - W));
        else store_part(to, load(row), channels);
    }
    inline void put(T* array, std::int64_t i, const T* row) const { put(array + i * channels, row, channels); }

    static inline T total(const Vec<T> (&v)[NV]) {
        Vec<T> sum = v[0];
        for (int k = 1; k < NV; ++k) sum += v[k];
        T t = 0;
        for (int l = 0; l < W; ++l) t += sum[l];
        return t;
    }
};

}  // namespace fwcrf::FWCRF_ISA
