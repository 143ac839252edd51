// Rows of a banded matrix times an array of rows.
#pragma once

#include "grid/arguments.hpp"
#include "runtime/barrier.hpp"
#include "simd/vectors.hpp"

#include <type_traits>

namespace fwcrf::FWCRF_ISA {

// Rows of a band that are computed together, while their common source rows are in the first-level cache.
constexpr std::int64_t kTogether = 4;

// A ring buffer of `count` rows that are `apart` values apart.
template <typename T> struct Ring {
    T* rows;
    std::int64_t apart, count;
    T* at(std::int64_t row) const { return rows + row % count * apart; }
};

// An iterator over rows that are `apart` values apart; it wraps from `end` to `begin`.
template <typename T> struct Walk {
    const T* at;
    std::int64_t apart;
    const T *begin, *end;
    inline void next() {
        at += apart;
        at = at == end ? begin : at;
    }
};

// One row of a band times M vectors of each source row.
template <typename T, int M> static inline void one_row(const T* weight, std::int64_t width, Walk<T> row, T* target) {
    constexpr int W = kLanes<T>;
    Vec<T> sum[M] = {};
    for (std::int64_t t = 0; t < width; ++t, row.next())
        for (int k = 0; k < M; ++k) sum[k] += weight[t] * load(row.at + k * W);
    for (int k = 0; k < M; ++k) store(target + k * W, sum[k]);
}
// Two rows, of which the second begins `Offset` columns after the first.
template <typename T, int M, int Width, int Offset>
static inline void two_rows(const T* weight, Walk<T> row, T* target, std::int64_t apart) {
    constexpr int W = kLanes<T>;
    Vec<T> sum[2][M] = {};
    for (int t = 0; t < Width + Offset; ++t, row.next())
        for (int k = 0; k < M; ++k) {
            const Vec<T> v = load_once(row.at + k * W);
            if (t < Width) sum[0][k] += weight[t] * v;
            if (t >= Offset) sum[1][k] += weight[Width + t - Offset] * v;
        }
    for (int i = 0; i < 2; ++i)
        for (int k = 0; k < M; ++k) store(target + i * apart + k * W, sum[i][k]);
}

// Calls act(std::true_type) for two rows of a band if they are Offset columns apart, else act(std::false_type) for one
// row. Returns the number of rows.
template <int Width, int Offset, typename T, typename F>
static inline std::int64_t one_or_two(const Band<T>& b, std::int64_t j, std::int64_t end, F&& act) {
    if (Width && j + 1 < end && b.first[j + 1] == b.first[j] + Offset) return act(std::true_type{}), 2;
    return act(std::false_type{}), 1;
}

// At most kTogether rows of a band, times source rows of `length` values: a multiple of two vectors.
template <typename T, int Width, int Offset>
static void band_rows(const Band<T>& b, Range rows, const Ring<const T>& source, std::int64_t length, T* target,
                      std::int64_t apart) {
    constexpr int W = kLanes<T>;
    const T* first[kTogether];
    for (std::int64_t j = rows.begin; j < rows.end; ++j) first[j - rows.begin] = source.at(b.first[j]);
    const T* const end = source.rows + source.count * source.apart;
    const auto stretch = [&](auto vectors, std::int64_t at) {
        constexpr int M = decltype(vectors)::value;
        for (std::int64_t j = rows.begin; j < rows.end;) {
            const std::int64_t i = j - rows.begin;
            const Walk<T> row{first[i] + at, source.apart, source.rows + at, end + at};
            const T* const weight = b.weight + j * b.width;
            j += one_or_two<Width, Offset>(b, j, rows.end, [&](auto two) {
                if constexpr (two) two_rows<T, M, Width, Offset>(weight, row, target + i * apart + at, apart);
                else one_row<T, M>(weight, b.width, row, target + i * apart + at);
            });
        }
    };
    std::int64_t at = 0;
    for (; at + 4 * W <= length; at += 4 * W) stretch(std::integral_constant<int, 4>{}, at);
    for (; at < length; at += 2 * W) stretch(std::integral_constant<int, 2>{}, at);
}

// Rows of the band of the last axis, times cells of NV vectors that are `apart` values apart.
template <typename T, int NV, int Width, int Offset>
static void cells(const Band<T>& b, Range rows, const T* source, std::int64_t apart, T* target) {
    constexpr std::int64_t kCell = NV * kLanes<T>;
    for (std::int64_t j = rows.begin; j < rows.end;) {
        const Walk<T> row{source + b.first[j] * apart, apart, nullptr, nullptr};
        const T* const weight = b.weight + j * b.width;
        const std::int64_t count = one_or_two<Width, Offset>(b, j, rows.end, [&](auto two) {
            if constexpr (two) two_rows<T, NV, Width, Offset>(weight, row, target, kCell);
            else one_row<T, NV>(weight, b.width, row, target);
        });
        j += count;
        target += count * kCell;
    }
}

// Compiled for the widths and offsets of the bands of a Gaussian of three pixels: up, down, and middle.
template <typename T>
static void band_rows(const Band<T>& b, Range rows, const Ring<const T>& source, std::int64_t length, T* target,
                      std::int64_t apart) {
    switch (b.width) {
    case 5: return band_rows<T, 5, 0>(b, rows, source, length, target, apart);
    case 10: return band_rows<T, 10, 2>(b, rows, source, length, target, apart);
    case 9: return band_rows<T, 9, 1>(b, rows, source, length, target, apart);
    default: return band_rows<T, 0, 0>(b, rows, source, length, target, apart);
    }
}
template <typename T, int NV>
static void cells(const Band<T>& b, Range rows, const T* source, std::int64_t apart, T* target) {
    switch (b.width) {
    case 5: return cells<T, NV, 5, 0>(b, rows, source, apart, target);
    case 10: return cells<T, NV, 10, 2>(b, rows, source, apart, target);
    case 9: return cells<T, NV, 9, 1>(b, rows, source, apart, target);
    default: return cells<T, NV, 0, 0>(b, rows, source, apart, target);
    }
}

// target = band times source, in consecutive rows of `length` values.
template <typename T> static void all_rows(const Band<T>& b, std::int64_t length, const T* source, T* target) {
    for (std::int64_t j = 0; j < b.rows; j += kTogether) {
        const Range some{j, j + kTogether < b.rows ? j + kTogether : b.rows};
        band_rows<T>(b, some, {source, length, b.columns}, length, target + j * length, length);
    }
}

}  // namespace fwcrf::FWCRF_ISA
