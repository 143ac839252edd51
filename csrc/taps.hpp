// Kernels on a grid, for single values: by the bands of every axis but the last, along whose lines they go by its taps.
#pragma once

#include "grid_pass.hpp"
#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// y = (K_1 (x) K_2 (x) ...) z. Lines of the last axis fill vectors, and on their way have room for an even number of them;
// what lies past their ends means nothing.
template <typename T> struct Taps {
    static constexpr int W = kLanes<T>, M = 4;
    static constexpr std::int64_t kMost = 64;               // beyond, fewer points of a grid are quicker
    static constexpr T kLeast = sizeof(T) == 4 ? 1e-5 : 0;  // of the centre's: less is lost between the bands

    const Grid<T>* grid;
    std::int64_t n, length, line, radius, size;
    T* values[2];  // (size) each
    T* out;        // (n)
    T* spare;      // (threads, room())

    static bool takes(const Grid<T>& g) { return g.taps && g.radius <= kMost; }

    int last() const { return grid->axes - 1; }
    // A line with margins, and as many lines as bands find together.
    std::int64_t margins() const { return length + 2 * radius + M * W; }
    std::int64_t room() const { return margins() + kTogether * line; }

    std::int64_t plan(const Grid<T>& g, std::int64_t pixels, int threads) {
        grid = &g;
        n = pixels;
        length = g.up[last()].rows;
        line = (length + 2 * W - 1) / (2 * W) * (2 * W);
        radius = g.radius;
        while (radius && g.taps[radius] < kLeast * g.taps[0]) --radius;
        size = line;
        for (int a = 0; a < last(); ++a) size *= g.up[a].rows > g.up[a].columns ? g.up[a].rows : g.up[a].columns;
        return 2 * size + n + threads * room();
    }
    void place(T* memory) {
        values[0] = memory;
        values[1] = values[0] + size;
        out = values[1] + size;
        spare = out + n;
    }
    const T* result() const { return out; }

    // Every thread of a region calls this when z is there, and waits for the others afterwards. It reads past the end of z,
    // but not a whole line.
    void apply(const T* z, Team team, Barrier& barrier) const {
        Way way{z, length, 0, {}};
        for (int a = 0; a < last(); ++a) way.sizes[a] = grid->up[a].rows;
        for (int a = last() - 1; a >= 0; --a)
            for (const Band<T>* b : {&grid->down[a], &grid->middle[a]})
                if (b->width) {
                    across(*b, a, way, team);
                    barrier.wait(team.threads);
                }
        along(way, team);
        for (int a = 0; a < last(); ++a) {
            barrier.wait(team.threads);
            if (a + 1 < last()) across(grid->up[a], a, way, team);
            else finish(grid->up[a], way, team);
        }
    }

  private:
    // What is on its way: lines so far apart, so many along each axis before the last.
    struct Way {
        const T* from;
        std::int64_t apart;
        int turn;
        std::int64_t sizes[kMaxAxes];

        std::int64_t lines(int begin, int end) const {
            std::int64_t count = 1;
            for (int a = begin; a < end; ++a) count *= sizes[a];
            return count;
        }
    };

    // A thread's share of the rows that a band makes along an axis, some at a time: act(rows
    // of the band, which of the outer ones they are in, how many there were before).
    template <typename F> static void for_rows(const Band<T>& b, std::int64_t outer, Team team, F&& act) {
        const Range mine = share(outer * b.rows, team.thread, team.threads);
        for (std::int64_t r = mine.begin; r < mine.end;) {
            const std::int64_t o = r / b.rows, j = r - o * b.rows;
            std::int64_t stop = j + kTogether < b.rows ? j + kTogether : b.rows;
            stop = stop - j < mine.end - r ? stop : j + mine.end - r;
            act(Range{j, stop}, o, r);
            r += stop - j;
        }
    }
    void across(const Band<T>& b, int a, Way& way, Team team) const {
        const std::int64_t inner = way.lines(a + 1, last()), apart = inner * way.apart, wide = inner * line;
        T* const to = values[way.turn];
        for_rows(b, way.lines(0, a), team, [&](Range rows, std::int64_t o, std::int64_t r) {
            band_rows<T>(b, rows, {way.from + o * b.columns * apart, apart, b.columns}, wide, to + r * wide, wide);
        });
        way.from = to;
        way.apart = line;
        way.turn ^= 1;
        way.sizes[a] = b.rows;
    }
    // The last band, along the last axis but one: lines lose the room that they had.
    void finish(const Band<T>& b, const Way& way, Team team) const {
        T* const some = spare + team.thread * room() + margins();
        for_rows(b, way.lines(0, last() - 1), team, [&](Range rows, std::int64_t o, std::int64_t r) {
            band_rows<T>(b, rows, {way.from + o * b.columns * line, line, b.columns}, line, some, line);
            for (std::int64_t j = rows.begin; j < rows.end; ++j)
                std::memcpy(out + (r + j - rows.begin) * length, some + (j - rows.begin) * line, length * sizeof(T));
        });
    }

    void along(Way& way, Team team) const {
        const T *const taps = grid->taps, *const left = grid->left, *const right = grid->right;
        const Range mine = share(way.lines(0, last()), team.thread, team.threads);
        T *const own = spare + team.thread * room(), *const middle = own + radius;
        T* const to = last() ? values[way.turn] : out;
        const std::int64_t apart = last() ? line : length;
        for (std::int64_t i = 0; i < margins(); ++i) own[i] = 0;
        for (std::int64_t r = mine.begin; r < mine.end; ++r) {
            for (std::int64_t i = 0; i < length; ++i) middle[i] = way.from[r * way.apart + i] * right[i];
            for (std::int64_t i = 0; i < length; i += M * W) {
                Vec<T> sum[M];
                for (int k = 0; k < M; ++k) sum[k] = taps[0] * load(middle + i + k * W);
                for (std::int64_t t = 1; t <= radius; ++t)
                    for (int k = 0; k < M; ++k)
                        sum[k] += taps[t] * (load(middle + i + k * W - t) + load(middle + i + k * W + t));
                for (int k = 0; k < M && i + k * W < length; ++k) {
                    const std::int64_t at = i + k * W;
                    store_some(to + r * apart + at, sum[k] * load_some(left + at, length - at), length - at);
                }
            }
        }
        way.from = to;
        way.apart = apart;
        way.turn ^= 1;
    }
};

}  // namespace fwcrf::FWCRF_ISA
