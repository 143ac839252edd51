// A kernel on a grid, applied as steps that the threads of one parallel region take together.
//
// Along every axis it is up * middle * down: onto fewer rows, a filter there, and back. First each row of x goes down
// the other axes, and while it is in the cache down the first; then rows of the coarse grid go through `middle` of the
// first axis. The way up is left to whoever reads pixels, a row at a time.
#pragma once

#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// Four rows of a band times NV vectors of rows that are `stride` values apart, from the first that they share on.
template <typename T, int NV>
static inline void together(const Band<T>& b, std::int64_t group, const T* row, std::int64_t stride,
                            T* target, std::int64_t apart, std::int64_t rows) {
    constexpr int W = kLanes<T>;
    const T* weight = b.weight + group * b.width * kTogether;
    Vec<T> sum[kTogether][NV];
    for (int j = 0; j < kTogether; ++j)
        for (int k = 0; k < NV; ++k) sum[j][k] = weight[j] * load(row + k * W);
    for (std::int64_t t = 1; t < b.width; ++t) {
        row += stride;
        weight += kTogether;
        Vec<T> v[NV];
        for (int k = 0; k < NV; ++k) v[k] = load(row + k * W);
        for (int j = 0; j < kTogether; ++j)
            for (int k = 0; k < NV; ++k) sum[j][k] += weight[j] * v[k];
    }
    for (int j = 0; j < rows; ++j)
        for (int k = 0; k < NV; ++k) store(target + j * apart + k * W, sum[j][k]);
}

template <typename T> static inline std::int64_t rows_of(const Band<T>& b, std::int64_t group) {
    const std::int64_t left = b.rows - group * kTogether;
    return left < kTogether ? left : kTogether;
}

// target = band times source: rows of `inner` values, those of the target `apart`. Both arrays may be read and
// written up to four vectors past their end; what is written past a row is overwritten by the next.
template <typename T, int NV>
static void band_narrow(const Band<T>& b, std::int64_t inner, const T* source, T* target, std::int64_t apart) {
    for (std::int64_t group = 0; group < b.groups(); ++group) {
        together<T, NV>(b, group, source + b.first[group] * inner, inner, target + group * kTogether * apart, apart,
                        rows_of(b, group));
    }
}

// `count` values of four rows; read and written up to two vectors past their end.
template <typename T>
static inline void band_rows(const Band<T>& b, std::int64_t group, const T* row, std::int64_t stride,
                             std::int64_t count, T* target, std::int64_t apart) {
    constexpr int W = kLanes<T>;
    for (std::int64_t e = 0; e < count; e += 2 * W)
        together<T, 2>(b, group, row + e, stride, target + e, apart, rows_of(b, group));
}

// A band of the last axis, whose rows go one by one: row j of the target is a sum of `Width` short rows of the source.
template <typename T, int NV, int Width>
static inline void band_short(const Band<T>& b, Range rows, std::int64_t inner, const T* source, T* target,
                              std::int64_t apart) {
    constexpr int W = kLanes<T>;
    const std::int64_t width = Width ? Width : b.width;
    const T* weight = b.weight + rows.begin * width;
    for (std::int64_t j = rows.begin; j < rows.end; ++j, weight += width, target += apart) {
        const T* row = source + b.first[j] * inner;
        Vec<T> sum[NV];
        for (int k = 0; k < NV; ++k) sum[k] = weight[0] * load(row + k * W);
        for (std::int64_t t = 1; t < width; ++t) {
            row += inner;
            for (int k = 0; k < NV; ++k) sum[k] += weight[t] * load(row + k * W);
        }
        for (int k = 0; k < NV; ++k) store(target + k * W, sum[k]);
    }
}
template <typename T, int NV>
static void band_short(const Band<T>& b, Range rows, std::int64_t inner, const T* source, T* target,
                       std::int64_t apart) {
    switch (b.width) {  // those of smooth kernels
    case 6: return band_short<T, NV, 6>(b, rows, inner, source, target, apart);
    case 11: return band_short<T, NV, 11>(b, rows, inner, source, target, apart);
    case 12: return band_short<T, NV, 12>(b, rows, inner, source, target, apart);
    default: return band_short<T, NV, 0>(b, rows, inner, source, target, apart);
    }
}
// Of some rows; both arrays may be read and written as for `band`.
template <typename T>
static void band_last(const Band<T>& b, Range rows, std::int64_t inner, const T* source, T* target,
                      std::int64_t apart) {
    constexpr int W = kLanes<T>;
    if (inner <= W) band_short<T, 1>(b, rows, inner, source, target, apart);
    else if (inner <= 2 * W) band_short<T, 2>(b, rows, inner, source, target, apart);
    else if (inner <= 3 * W) band_short<T, 3>(b, rows, inner, source, target, apart);
    else band_short<T, 4>(b, rows, inner, source, target, apart);
}

template <typename T>
static void band(const Band<T>& b, std::int64_t inner, const T* source, T* target, std::int64_t apart) {
    constexpr int W = kLanes<T>;
    if (inner <= W) return band_narrow<T, 1>(b, inner, source, target, apart);
    if (inner <= 2 * W) return band_narrow<T, 2>(b, inner, source, target, apart);
    if (inner <= 3 * W) return band_narrow<T, 3>(b, inner, source, target, apart);
    // The end of a row first: what it writes past it is the start of the next, which comes after.
    for (std::int64_t group = 0; group < b.groups(); ++group) {
        const std::int64_t whole = inner / (2 * W) * (2 * W);
        const T* const row = source + b.first[group] * inner;
        T* const first = target + group * kTogether * apart;
        if (whole < inner) band_rows(b, group, row + whole, inner, 1, first + whole, apart);
        band_rows(b, group, row, inner, whole, first, apart);
    }
}

// The coarse grid, filtered: every thread of a region calls `fill`, and then `row` for those that it wants.
template <typename T> struct Filtered {
    const Grid<T>* grid;
    std::int64_t channels, cell;  // values of a pixel in x, and from one pixel to the next in an answer
    std::int64_t across;          // pixels in a row of x
    std::int64_t slab;            // values in it
    std::int64_t coarse, widest;  // room for a row of the coarse grid, and for all that lies between it and one of x
    T* gathered;                  // (rows of the coarse grid, coarse)
    T* filtered;                  // the same, after `middle` of the first axis
    T* spare;                     // (threads, room())
    Barrier barrier;

    static constexpr std::int64_t kMargin = 4 * kLanes<T>;

    // Rows of x that have gone down the other axes and may be needed again: twice as many as at a time.
    std::int64_t kept() const {
        const std::int64_t twice = 2 * grid->down[0].width, all = grid->up[0].rows;
        return twice < all ? twice : all;
    }
    // What a thread needs for itself: these, and rows between axes.
    static constexpr int kBetween = kTogether + 2;
    std::int64_t room() const { return kept() * coarse + kBetween * widest; }

    // How many values are needed, for pixels of `width` values in an answer.
    std::int64_t plan(const Grid<T>& g, std::int64_t labels, std::int64_t width, int threads) {
        grid = &g;
        channels = labels;
        cell = width;
        std::int64_t points = 1;
        across = 1;
        for (int a = 1; a < g.axes; ++a) {
            across *= g.up[a].rows;
            points *= g.up[a].columns;
        }
        slab = across * channels;
        coarse = points * channels + kMargin;
        widest = (slab > coarse ? slab : coarse) + kMargin;
        // On the way from one to the other some axes are coarse and some are not, and an axis may be longer there.
        std::int64_t between = channels;
        for (int a = 1; a < g.axes; ++a)
            between *= g.up[a].columns > g.up[a].rows ? g.up[a].columns : g.up[a].rows;
        if (between + kMargin > widest) widest = between + kMargin;
        return g.up[0].columns * coarse * (g.middle[0].width ? 2 : 1) + room() * threads;
    }
    void place(T* memory) {
        const std::int64_t size = grid->up[0].columns * coarse;
        gathered = memory;
        filtered = grid->middle[0].width ? gathered + size : gathered;
        spare = filtered + size;
    }
    T* own(int thread) const { return spare + thread * room(); }
    T* between(int thread) const { return own(thread) + kept() * coarse; }

    // False if a value was not finite.
    bool fill(const T* x, Team team) {
        std::memset(own(team.thread), 0, room() * sizeof(T));  // what is read past a row has to be finite
        const bool finite = gather(x, team);
        barrier.wait(team.threads);
        if (grid->middle[0].width) {
            filter(team);
            barrier.wait(team.threads);
        }
        return finite;
    }

    bool gather(const T* x, Team team) const {
        constexpr int W = kLanes<T>;
        const Band<T>& down = grid->down[0];
        const Range mine = share(down.groups(), team.thread, team.threads);
        T* const rows = own(team.thread);
        std::int64_t begin = 0, end = 0;  // the rows of x that are there
        Vec<T> nothing{};                 // 0 * v is not a number unless v is finite
        for (std::int64_t g = mine.begin; g < mine.end; ++g) {
            const std::int64_t first = down.first[g], last = first + down.width;
            if (first < begin || end < first) begin = end = first;  // as a rule they follow each other
            if (last - begin > kept()) {
                std::memmove(rows, rows + (first - begin) * coarse, (end - first) * coarse * sizeof(T));
                begin = first;
            }
            for (; end < last; ++end) down_the_others(x, end, team.thread, rows + (end - begin) * coarse);
            T* const four = between(team.thread) + 2 * widest;
            band_rows(down, g, rows + (first - begin) * coarse, coarse, coarse - kMargin, four, widest);
            for (std::int64_t j = 0; j < rows_of(down, g); ++j) {
                T* const row = gathered + (g * kTogether + j) * coarse;
                filter_the_others(four + j * widest, between(team.thread), row);
                std::memset(row + coarse - kMargin, 0, kMargin * sizeof(T));
                for (std::int64_t e = 0; e + W <= coarse; e += W) nothing += load(row + e) * T(0);
            }
        }
        bool finite = true;
        for (int l = 0; l < W; ++l) finite = finite && nothing[l] == T(0);
        return finite;
    }

    // `middle` of the first axis.
    void filter(Team team) const {
        const Band<T>& middle = grid->middle[0];
        const Range mine = share(middle.groups(), team.thread, team.threads);
        for (std::int64_t g = mine.begin; g < mine.end; ++g) {
            T* const target = filtered + g * kTogether * coarse;
            band_rows(middle, g, gathered + middle.first[g] * coarse, coarse, coarse - kMargin, target, coarse);
            for (std::int64_t j = 0; j < rows_of(middle, g); ++j)
                std::memset(target + (j + 1) * coarse - kMargin, 0, kMargin * sizeof(T));
        }
    }

    // Row r of the answer but for the last axis, on whose coarse grid it is left; in memory of this thread, until it
    // asks for another.
    const T* row(std::int64_t r, int thread) const {
        constexpr std::int64_t W = kLanes<T>;
        const Band<T>& up = grid->up[0];
        const T* const weight = up.weight + r * up.width;
        const T* const from = filtered + up.first[r] * coarse;
        T* const line = own(thread);
        // The margin is as wide as a step.
        for (std::int64_t e = 0; e + 4 * W <= coarse; e += 4 * W) {
            Vec<T> v[4] = {};
            const T* at = from + e;
            for (std::int64_t t = 0; t < up.width; ++t, at += coarse)
                for (int k = 0; k < 4; ++k) v[k] += weight[t] * load(at + k * W);
            for (int k = 0; k < 4; ++k) store(line + e + k * W, v[k]);
        }
        return up_the_others(line, between(thread));
    }

    // Of a row, `count` pixels from `first` on, all in one line of the last axis; `cell` values each.
    void pixels(const T* row, std::int64_t first, std::int64_t count, T* target) const {
        const Band<T>& up = grid->up[grid->axes - 1];
        if (grid->axes == 1) return std::memcpy(target, row, cell * sizeof(T)), void();
        const std::int64_t line = first / up.rows, j = first - line * up.rows;
        band_last(up, {j, j + count}, channels, row + line * up.columns * channels, target, cell);
    }
    // How many pixels from `first` on are in one line of the last axis.
    std::int64_t along(std::int64_t first) const {
        const std::int64_t rows = grid->axes == 1 ? 1 : grid->up[grid->axes - 1].rows;
        return rows - first % rows;
    }

    // A band of an axis other than the first, for one of its lines.
    void line(int axis, const Band<T>& b, std::int64_t inner, const T* source, T* target) const {
        if (axis + 1 == grid->axes) band_last(b, {0, b.rows}, inner, source, target, inner);
        else band(b, inner, source, target, inner);
    }

    // Row r of x.
    void down_the_others(const T* x, std::int64_t r, int thread, T* target) const {
        T* const spares = between(thread);
        const T* source = x + r * slab;
        if ((grid->up[0].rows - r - 1) * slab < kMargin) {  // past the end of x is nothing to be read
            T* const copy = spares + 2 * widest;
            std::memcpy(copy, source, slab * sizeof(T));
            source = copy;
        }
        int turn = 0;
        std::int64_t outer = 1, inner = slab;
        for (int a = 1; a < grid->axes; ++a) {
            const Band<T>& b = grid->down[a];
            inner /= b.columns;
            T* const to = a + 1 == grid->axes ? target : spares + turn * widest;
            for (std::int64_t o = 0; o < outer; ++o)
                line(a, b, inner, source + o * b.columns * inner, to + o * b.rows * inner);
            source = to;
            turn ^= 1;
            outer *= b.rows;
        }
        if (grid->axes == 1) std::memcpy(target, source, slab * sizeof(T));
    }

    // `middle` of all axes but the first, for a row of the coarse grid.
    void filter_the_others(const T* row, T* spares, T* target) const {
        const T* source = row;
        int turn = 0, left = 0;
        std::int64_t outer = 1, inner = coarse - kMargin;
        for (int a = 1; a < grid->axes; ++a) left += grid->middle[a].width > 0;
        for (int a = 1; a < grid->axes; ++a) {
            const Band<T>& b = grid->middle[a];
            const std::int64_t points = grid->up[a].columns;
            inner /= points;
            if (b.width) {
                T* const to = --left ? spares + turn * widest : target;
                for (std::int64_t o = 0; o < outer; ++o)
                    line(a, b, inner, source + o * points * inner, to + o * points * inner);
                source = to;
                turn ^= 1;
            }
            outer *= points;
        }
        if (source == row) std::memcpy(target, row, (coarse - kMargin) * sizeof(T));
    }

    // Axes but the first and the last.
    const T* up_the_others(const T* row, T* between) const {
        const T* source = row;
        int turn = 0;
        std::int64_t outer = 1, inner = coarse - kMargin;
        for (int a = 1; a + 1 < grid->axes; ++a) {
            const Band<T>& b = grid->up[a];
            inner /= b.columns;
            T* const to = between + turn * widest;
            for (std::int64_t o = 0; o < outer; ++o)
                band(b, inner, source + o * b.columns * inner, to + o * b.rows * inner, inner);
            source = to;
            turn ^= 1;
            outer *= b.rows;
        }
        return source;
    }
};

}  // namespace fwcrf::FWCRF_ISA
