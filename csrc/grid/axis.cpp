// Filters along one axis of a grid, and their derivatives in the taps.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "simd/vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// Some columns of x for one outer index, with zeros above and below. A step along the axis is `width` values.
template <typename T> struct Tile {
    static constexpr std::int64_t kUnit = 4 * kLanes<T>;  // `padded` is a multiple of it

    std::int64_t at, width, size, padded;  // first entry in the arrays, columns, values, values with padding
    T *values, *room;                      // (padded) each: a copy of x, and space for the result

    Tile(const AxisArgs<T>& a, std::int64_t outer, Range columns, Scratch& scratch)
        : at(outer * a.length * a.inner + columns.begin), width(columns.end - columns.begin), size(a.length * width),
          padded((size + kUnit - 1) / kUnit * kUnit) {
        const std::int64_t margin = a.radius * width;
        values = scratch.get<T>(2 * margin + 2 * padded) + margin;
        room = values + padded + margin;
        std::memset(values - margin, 0, margin * sizeof(T));
        std::memset(values + size, 0, (padded - size + margin) * sizeof(T));
        read(a, a.x, values);
    }
    void read(const AxisArgs<T>& a, const T* array, T* to) const {
        for (std::int64_t i = 0; i < a.length; ++i)
            std::memcpy(to + i * width, array + at + i * a.inner, width * sizeof(T));
    }
    void write(const AxisArgs<T>& a, const T* from) const {
        for (std::int64_t i = 0; i < a.length; ++i)
            std::memcpy(a.out + at + i * a.inner, from + i * width, width * sizeof(T));
    }
};

constexpr std::int64_t kWidest = 64;  // columns of a tile
template <typename T> static std::int64_t tiles(const AxisArgs<T>& a) {
    return a.length ? a.outer * ((a.inner + kWidest - 1) / kWidest) : 0;
}

// Calls act(number, tile) for all tiles.
template <typename T, typename F> static void for_tiles(const AxisArgs<T>& a, F&& act) {
    const std::int64_t strips = (a.inner + kWidest - 1) / kWidest;
    in_parallel(a.threads, [&](Team team) {
        Scratch scratch;
        const Range mine = share(tiles(a), team.thread, team.threads);
        for (std::int64_t k = mine.begin; k < mine.end; ++k) {
            const Range columns = share(a.inner, static_cast<int>(k % strips), static_cast<int>(strips));
            act(k, Tile<T>(a, k / strips, columns, scratch));
        }
    });
}

template <typename T> void filter_axis(const AxisArgs<T>& a) {
    constexpr int W = kLanes<T>, unroll = 4;
    for_tiles(a, [&](std::int64_t, const Tile<T>& tile) {
        for (std::int64_t p = 0; p < tile.size; p += unroll * W) {
            const T* const centre = tile.values + p;
            Vec<T> sum[unroll];
            for (int k = 0; k < unroll; ++k) sum[k] = a.taps[0] * load(centre + k * W);
            for (std::int64_t t = 1; t <= a.radius; ++t) {
                const T tap = a.taps[t];
                const T* before = centre - t * tile.width;
                const T* after = centre + t * tile.width;
                for (int k = 0; k < unroll; ++k) sum[k] += tap * (load(before + k * W) + load(after + k * W));
            }
            for (int k = 0; k < unroll; ++k) store(tile.room + p + k * W, sum[k]);
        }
        tile.write(a, tile.room);
    });
}

// The derivative of <g, filtered x> in each tap, with g in `out`.
template <typename T> void tap_slopes(const AxisArgs<T>& a, double* slopes) {
    constexpr int W = kLanes<T>;
    constexpr std::int64_t kStretch = 512;  // values that stay in the first-level cache for all taps
    const std::int64_t taps = a.radius + 1;
    thread_local Scratch memory;
    double* const each = memory.get<double>(tiles(a) * taps);
    for_tiles(a, [&](std::int64_t k, const Tile<T>& tile) {
        tile.read(a, a.out, tile.room);
        std::memset(tile.room + tile.size, 0, (tile.padded - tile.size) * sizeof(T));
        double* const own = each + k * taps;
        for (std::int64_t t = 0; t < taps; ++t) own[t] = 0;
        for (std::int64_t first = 0; first < tile.padded; first += kStretch) {
            const std::int64_t end = first + kStretch < tile.padded ? first + kStretch : tile.padded;
            for (std::int64_t t = 0; t < taps; ++t) {
                const T* const before = tile.values - t * tile.width;
                const T* const after = tile.values + t * tile.width;
                Vec<T> sum[4] = {};
                for (std::int64_t p = first; p < end; p += 4 * W)
                    for (int j = 0; j < 4; ++j) {
                        const std::int64_t q = p + j * W;
                        sum[j] += load(tile.room + q) * (t ? load(before + q) + load(after + q) : load(after + q));
                    }
                sum[0] += sum[1] + sum[2] + sum[3];
                for (int l = 0; l < W; ++l) own[t] += lane(sum[0], l);
            }
        }
    });
    for (std::int64_t t = 0; t < taps; ++t) slopes[t] = 0;
    for (std::int64_t k = 0; k < tiles(a); ++k)
        for (std::int64_t t = 0; t < taps; ++t) slopes[t] += each[k * taps + t];
    memory.trim();
}

FWCRF_INSTANTIATE(filter_axis)
FWCRF_INSTANTIATE(tap_slopes)

}  // namespace fwcrf::FWCRF_ISA
