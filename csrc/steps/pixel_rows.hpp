// Pixels of an array as rows of whole vectors.
#pragma once

#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// Pixels of a block: few enough for their rows to stay in the first-level cache.
constexpr std::int64_t kPixels = 64;
struct Block {
    std::int64_t first, pixels;
};

// Rows of NV vectors. Up to 4 vectors only the last vector may have fewer labels than lanes. Longer rows come in fewer
// lengths, 6, 8, 12 and 16, so several vectors at the end, the tail, may be empty or partly filled.
template <typename T, int NV> struct PixelRows {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = NV * W;
    static constexpr int kTail = NV <= 4 ? 1 : NV <= 8 ? 2 : 4;
    static constexpr int kFull = NV - kTail;  // vectors that are always full of labels

    std::int64_t n, channels;
    std::int64_t overhang;  // pixels that a row of whole vectors may reach into, after its own
    Vec<T> mask[kTail];     // 1 for labels in the tail, 0 past the labels

    PixelRows(std::int64_t n, std::int64_t channels) : n(n), channels(channels), overhang(1 + kRow / channels) {
        for (int k = 0; k < kTail; ++k)
            mask[k] = lanes_of<Vec<T>>([&](int l) { return (kFull + k) * W + l < channels ? T(1) : T(0); });
    }

    // True if pixel i can be read as whole vectors.
    inline bool inside(std::int64_t i) const { return i + overhang < n; }
    // Replaces the values past the labels, which need not be finite.
    inline void set_past(Vec<T> (&v)[NV], Vec<T> past) const { set_past(v, mask, past); }
    static inline void set_past(Vec<T> (&v)[NV], const Vec<T> (&mask)[kTail], Vec<T> past) {
        for (int k = 0; k < kTail; ++k) v[kFull + k] = select(mask[k] != T(0), v[kFull + k], past);
    }
    // The first label of the vector that holds the last label, and that vector.
    inline std::int64_t last_begin() const { return kTail == 1 ? kFull * W : (channels - 1) / W * W; }
    inline Vec<T> last_vector(const Vec<T> (&v)[NV]) const {
        Vec<T> found = v[kFull];
        for (int k = kFull + 1; k < NV; ++k)
            if (k * W < channels) found = v[k];
        return found;
    }

    // Vector k of the pixel that begins at `row`.
    static inline Vec<T> vector(const T* row, int k, bool inside, std::int64_t channels) {
        if (k < kFull || inside) return load(row + k * W);
        const std::int64_t left = channels - k * W;
        if (kTail == 1) return load_part(row + k * W, left);
        return left > 0 ? load_some(row + k * W, left) : Vec<T>{};
    }
    // The labels of pixel i, zero past them.
    inline void get(const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        const T* const row = array + i * channels;
        for (int k = 0; k < NV; ++k) v[k] = vector(row, k, inside(i), channels);
        set_past(v, Vec<T>{});
    }
    void get(const T* array, const Block& block, T* __restrict rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            prefetch(array + (block.first + q + kPixels) * channels, kRow);
            get(array, block.first + q, v);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
    }

    // Writes the labels only: other threads, and other blocks of this thread, still read past them.
    static inline void put(T* to, const T* row, std::int64_t channels) {
        if (NV == 1 && channels < W) return store_part(to, load(row), channels);
        for (int k = 0; k < kFull; ++k) store(to + k * W, load(row + k * W));
        for (int k = kFull; k < NV && (kTail == 1 || k * W < channels); ++k) {
            const std::int64_t place = (k + 1) * W <= channels ? k * W : channels - W;
            store(to + place, load(row + place));
        }
    }
    inline void put(T* array, std::int64_t i, const T* row) const { put(array + i * channels, row, channels); }

    static inline T row_total(const Vec<T> (&v)[NV]) {
        Vec<T> sum = v[0];
        for (int k = 1; k < NV; ++k) sum += v[k];
        return total<T>(sum);
    }
};

}  // namespace fwcrf::FWCRF_ISA
