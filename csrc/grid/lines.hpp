// A kernel on a grid for one value per pixel: by bands along every axis but the last, by taps along the lines of the
// last.
#pragma once

#include "grid/bands.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// y = (K_1 (x) K_2 (x) ...) z. Lines of the last axis fill vectors; temporary lines are padded to an even number of
// vectors with unused values.
template <typename T> struct LineFilter {
    static constexpr int W = kLanes<T>, M = 4;
    static constexpr std::int64_t kMost = 64;  // taps; with more, a coarse grid is faster
    static constexpr T kLeast =
        kSingle<T> ? 1e-5 : 0;  // smaller taps, relative to the centre, are below the bands' error

    const Grid<T>* grid;
    std::int64_t n, length, line, radius, size;
    T* values[2];  // (size) each
    T* out;        // (n)
    T* spare;      // (threads, room())

    static bool takes(const Grid<T>& g) { return g.taps && g.radius <= kMost; }

    int last() const { return grid->axes - 1; }
    // A line with margins, and kTogether lines.
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

    // Every thread of a region calls this when z is complete, and waits at a barrier afterwards. Reads past the end of
    // z, by less than a line.
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
    // The current array: lines that are `apart` values apart, `sizes` of them along each axis before the last.
    struct Way {
        const T* from;
        std::int64_t apart;
        int turn;  // which of `values` is written next
        std::int64_t sizes[kMaxAxes];

        std::int64_t lines(int begin, int end) const {
            std::int64_t count = 1;
            for (int a = begin; a < end; ++a) count *= sizes[a];
            return count;
        }
    };

    // Calls act(rows of the band, outer index, number of rows before) for a thread's share of the rows that a band
    // makes along an axis.
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
    // The last band, along the last axis but one: lines are written without padding.
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
