// Kernels on a grid by their taps, for single values.
#pragma once

#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// y = (K_1 (x) K_2 (x) ...) z on a grid, an axis at a time, by the taps of each.
template <typename T> struct Taps {
    static constexpr int W = kLanes<T>, M = 4;

    const Grid<T>* grid;
    std::int64_t n, room;  // room for a line with margins
    T *values[2], *lines;  // (n) each; (threads, room)

    std::int64_t plan(const Grid<T>& g, std::int64_t pixels, int threads) {
        grid = &g;
        n = pixels;
        const int last = g.axes - 1;
        room = g.up[last].rows + 2 * g.radius[last] + M * W;
        return 2 * n + threads * room;
    }
    void place(T* memory) {
        values[0] = memory;
        values[1] = memory + n;
        lines = memory + 2 * n;
    }
    const T* result() const { return values[(grid->axes - 1) & 1]; }

    // Every thread of a region calls this when z is there, and waits for the others afterwards.
    void apply(const T* z, Team team, Barrier& barrier) const {
        const T* source = z;
        std::int64_t inner = 1;
        for (int a = grid->axes - 1, turn = 0; a >= 0; --a, turn ^= 1) {
            const std::int64_t length = grid->up[a].rows, outer = n / (length * inner);
            if (a + 1 == grid->axes) along(a, share(outer, team.thread, team.threads), source, values[turn], team.thread);
            else across(a, share(outer * length, team.thread, team.threads), inner, source, values[turn]);
            source = values[turn];
            inner *= length;
            if (a) barrier.wait(team.threads);
        }
    }

  private:
    // The last axis: some of its lines.
    void along(int a, Range rows, const T* source, T* target, int thread) const {
        const std::int64_t length = grid->up[a].rows, radius = grid->radius[a];
        const T *const taps = grid->taps[a], *const left = grid->left[a], *const right = grid->right[a];
        T* const line = lines + thread * room;
        for (std::int64_t i = 0; i < room; ++i) line[i] = 0;
        for (std::int64_t r = rows.begin; r < rows.end; ++r) {
            T* const middle = line + radius;
            for (std::int64_t i = 0; i < length; ++i) middle[i] = source[r * length + i] * right[i];
            T* const to = target + r * length;
            for (std::int64_t i = 0; i < length; i += M * W) {
                Vec<T> sum[M];
                for (int k = 0; k < M; ++k) sum[k] = taps[0] * load(middle + i + k * W);
                for (std::int64_t t = 1; t <= radius; ++t)
                    for (int k = 0; k < M; ++k)
                        sum[k] += taps[t] * (load(middle + i + k * W - t) + load(middle + i + k * W + t));
                for (int k = 0; k < M && i + k * W < length; ++k) {
                    const std::int64_t at = i + k * W;
                    store_some(to + at, sum[k] * load_some(left + at, length - at), length - at);
                }
            }
        }
    }

    // Another axis: some of the rows of `inner` values that lie across it. Narrow strips of them stay in the first-level
    // cache.
    void across(int a, Range rows, std::int64_t inner, const T* source, T* target) const {
        std::int64_t at = 0;
        for (; at + M * W <= inner; at += M * W) strip<M>(a, rows, inner, source + at, target + at, W);
        for (; at + W <= inner; at += W) strip<1>(a, rows, inner, source + at, target + at, W);
        if (at < inner) strip<1>(a, rows, inner, source + at, target + at, inner - at);
    }
    // K vectors of each row, or the first values of one.
    template <int K>
    void strip(int a, Range rows, std::int64_t inner, const T* source, T* target, std::int64_t count) const {
        const std::int64_t length = grid->up[a].rows, radius = grid->radius[a];
        const T *const taps = grid->taps[a], *const left = grid->left[a], *const right = grid->right[a];
        std::int64_t i = rows.begin % length;
        for (std::int64_t r = rows.begin; r < rows.end; ++r, i = i + 1 == length ? 0 : i + 1) {
            const std::int64_t first = i < radius ? -i : -radius, last = length - 1 - i < radius ? length - 1 - i : radius;
            const T* row = source + (r + first) * inner;
            Vec<T> sum[K] = {};
            for (std::int64_t t = first; t <= last; ++t, row += inner) {
                const T weight = taps[t < 0 ? -t : t] * right[i + t];
                for (int k = 0; k < K; ++k) sum[k] += weight * load_some(row + k * W, count);
            }
            for (int k = 0; k < K; ++k) store_some(target + r * inner + k * W, left[i] * sum[k], count);
        }
    }
};

}  // namespace fwcrf::FWCRF_ISA
