// A kernel on a grid, applied as steps that the threads of one parallel region take together.
//
// Along every axis it is up * middle * down: onto fewer rows, a filter there, and back. First each row of x goes
// down all axes, then each row of the coarse grid goes through `middle` of the first axis and up the others; `up` of
// the first axis is left to whoever reads a pixel.
#pragma once

#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// Four rows of a band times NV vectors of `source`, whose rows are `stride` values apart.
template <typename T, int NV>
static inline void together(const Band<T>& b, std::int64_t group, const T* source, std::int64_t stride,
                            T* const (&target)[kTogether], std::int64_t rows) {
    constexpr int W = kLanes<T>;
    const T* weight = b.weight + group * b.width * kTogether;
    const T* row = source + b.first[group] * stride;
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
        for (int k = 0; k < NV; ++k) store(target[j] + k * W, sum[j][k]);
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
        T* const first = target + group * kTogether * apart;
        together<T, NV>(b, group, source, inner, {first, first + apart, first + 2 * apart, first + 3 * apart},
                        rows_of(b, group));
    }
}

// `count` values of four rows; read and written up to two vectors past their end.
template <typename T>
static inline void band_rows(const Band<T>& b, std::int64_t group, const T* source, std::int64_t stride,
                             std::int64_t count, T* target, std::int64_t apart) {
    constexpr int W = kLanes<T>;
    for (std::int64_t e = 0; e < count; e += 2 * W) {
        T* const first = target + e;
        together<T, 2>(b, group, source + e, stride, {first, first + apart, first + 2 * apart, first + 3 * apart},
                       rows_of(b, group));
    }
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
        T* const first = target + group * kTogether * apart;
        if (whole < inner) band_rows(b, group, source + whole, inner, 1, first + whole, apart);
        band_rows(b, group, source, inner, whole, first, apart);
    }
}

// The rows of a grid that `up` of the first axis is applied to: every thread of a region calls `fill`.
template <typename T> struct Filtered {
    const Grid<T>* grid;
    std::int64_t channels, cell;  // values of a pixel in x, and from one pixel to the next in `rows`
    std::int64_t slab;            // values in a row of x
    std::int64_t coarse, fine, widest;  // room for a row of `gathered`, of `rows`, and for all that lies between
    T* gathered;                  // (rows of the coarse grid, coarse)
    T* rows;                      // (rows of the coarse grid, fine)
    T* spare;                     // (threads, 4 + 2, widest)
    Barrier barrier;

    // How many values are needed, for pixels of `width` values in `rows`.
    std::int64_t plan(const Grid<T>& g, std::int64_t labels, std::int64_t width, int threads) {
        constexpr std::int64_t margin = 4 * kLanes<T>;
        grid = &g;
        channels = labels;
        cell = width;
        std::int64_t pixels = 1, points = 1;
        for (int a = 1; a < g.axes; ++a) {
            pixels *= g.up[a].rows;
            points *= g.up[a].columns;
        }
        slab = pixels * channels;
        coarse = points * channels + margin;
        fine = pixels * cell + margin;
        widest = (slab > coarse ? slab : coarse) + margin;
        // On the way from one to the other some axes are coarse and some are not, and an axis may be longer there.
        std::int64_t across = channels;
        for (int a = 1; a < g.axes; ++a)
            across *= g.up[a].columns > g.up[a].rows ? g.up[a].columns : g.up[a].rows;
        if (across + margin > widest) widest = across + margin;
        return g.up[0].columns * (coarse + fine) + (kTogether + 2) * threads * widest;
    }
    void place(T* memory) {
        gathered = memory;
        rows = gathered + grid->up[0].columns * coarse;
        spare = rows + grid->up[0].columns * fine;
    }

    // False if a value was not finite.
    bool fill(const T* x, Team team) {
        T* const four = spare + (kTogether + 2) * team.thread * widest;
        std::memset(four, 0, (kTogether + 2) * widest * sizeof(T));  // what is read past a row has to be finite
        const bool finite = gather(x, team, four);
        barrier.wait(team.threads);
        spread(team, four);
        return finite;
    }

    bool gather(const T* x, Team team, T* four) const {
        constexpr int W = kLanes<T>;
        const Band<T>& down = grid->down[0];
        const Range mine = share(down.groups(), team.thread, team.threads);
        Vec<T> nothing{};  // 0 * v is not a number unless v is finite
        for (std::int64_t g = mine.begin; g < mine.end; ++g) {
            first_axis(x, g, four);
            for (std::int64_t j = 0; j < rows_of(down, g); ++j) {
                T* const row = gathered + (g * kTogether + j) * coarse;
                down_the_others(four + j * widest, four + kTogether * widest, row);
                std::memset(row + coarse - 4 * W, 0, 4 * W * sizeof(T));
                for (std::int64_t e = 0; e < coarse; e += W) nothing += load_within(row, e, coarse) * T(0);
            }
        }
        bool finite = true;
        for (int l = 0; l < W; ++l) finite = finite && nothing[l] == T(0);
        return finite;
    }

    static inline Vec<T> load_within(const T* row, std::int64_t at, std::int64_t end) {
        constexpr int W = kLanes<T>;
        return load(row + (at + W <= end ? at : end - W));
    }

    // Four rows of `down` of the first axis. Nothing past the rows of x is read.
    void first_axis(const T* x, std::int64_t group, T* four) const {
        constexpr std::int64_t kTwo = 2 * kLanes<T>;
        const Band<T>& down = grid->down[0];
        if (slab < kTwo) {
            for (std::int64_t j = 0; j < rows_of(down, group); ++j)
                for (std::int64_t e = 0; e < slab; ++e) {
                    T sum = 0;
                    for (std::int64_t t = 0; t < down.width; ++t)
                        sum += down.weight[(group * down.width + t) * kTogether + j] * x[(down.first[group] + t) * slab + e];
                    four[j * widest + e] = sum;
                }
            return;
        }
        const std::int64_t whole = slab / kTwo * kTwo;
        band_rows(down, group, x, slab, whole, four, widest);
        if (whole < slab) band_rows(down, group, x + slab - kTwo, slab, kTwo, four + slab - kTwo, widest);
    }

    void down_the_others(const T* row, T* between, T* target) const {
        const T* source = row;
        int turn = 0;
        std::int64_t outer = 1, inner = slab;
        const auto along = [&](const Band<T>& b, bool last) {
            T* const to = last ? target : between + turn * widest;
            for (std::int64_t o = 0; o < outer; ++o)
                band(b, inner, source + o * b.columns * inner, to + o * b.rows * inner, inner);
            source = to;
            turn ^= 1;
        };
        for (int a = 1; a < grid->axes; ++a) {
            const bool last = a + 1 == grid->axes, filtered = grid->middle[a].width;
            inner /= grid->down[a].columns;
            along(grid->down[a], last && !filtered);
            if (filtered) along(grid->middle[a], last);
            outer *= grid->down[a].rows;
        }
        if (grid->axes == 1) std::memcpy(target, row, slab * sizeof(T));
    }

    void spread(Team team, T* four) const {
        const Band<T>& middle = grid->middle[0];
        const std::int64_t count = grid->up[0].columns;
        const Range mine = share((count + kTogether - 1) / kTogether, team.thread, team.threads);
        for (std::int64_t g = mine.begin; g < mine.end; ++g) {
            if (middle.width) band_rows(middle, g, gathered, coarse, coarse - 4 * kLanes<T>, four, widest);
            for (std::int64_t r = g * kTogether; r < count && r < (g + 1) * kTogether; ++r) {
                const T* const row = middle.width ? four + (r - g * kTogether) * widest : gathered + r * coarse;
                up_the_others(row, four + kTogether * widest, rows + r * fine);
            }
        }
    }

    void up_the_others(const T* row, T* between, T* target) const {
        const T* source = row;
        int turn = 0;
        std::int64_t outer = 1, inner = coarse - 4 * kLanes<T>;
        for (int a = 1; a < grid->axes; ++a) {
            const Band<T>& b = grid->up[a];
            const bool last = a + 1 == grid->axes;
            inner /= b.columns;
            T* const to = last ? target : between + turn * widest;
            const std::int64_t apart = last ? cell : inner;
            for (std::int64_t o = 0; o < outer; ++o)
                band(b, inner, source + o * b.columns * inner, to + o * b.rows * apart, apart);
            source = to;
            turn ^= 1;
            outer *= b.rows;
        }
        if (grid->axes == 1) std::memcpy(target, row, cell * sizeof(T));
    }
};

}  // namespace fwcrf::FWCRF_ISA
