// A kernel on a grid, applied as steps that the threads of one parallel region take together.
//
// Along every axis it is up * middle * down: onto fewer points, a filter there, and back. Lines of x are taken while they
// are in the cache: down the last axis, each row of lines down those before it, and as soon as there are enough rows down
// the first. When all are there, rows of the coarse grid go through `middle` of the first axis. The way up is left to
// whoever reads pixels, a line at a time.
//
// A cell holds the labels of a pixel or point in whole vectors; what lies past the labels is finite and means nothing.
#pragma once

#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <cstring>
#include <type_traits>

namespace fwcrf::FWCRF_ISA {

// Rows of a band that are found one right after the other, while what they share is in the first-level cache.
constexpr std::int64_t kTogether = 4;

// Rows that are `apart` values apart; after `count` of them come the first ones again.
template <typename T> struct Ring {
    T* rows;
    std::int64_t apart, count;
    T* at(std::int64_t row) const { return rows + row % count * apart; }
};

// On the way through rows that are `apart` values apart; from `end` back to `begin`.
template <typename T> struct Walk {
    const T* at;
    std::int64_t apart;
    const T *begin, *end;
    inline void next() {
        at += apart;
        at = at == end ? begin : at;
    }
};

// M vectors of a row of a band.
template <typename T, int M>
static inline void one_row(const T* weight, std::int64_t width, Walk<T> row, T* target) {
    constexpr int W = kLanes<T>;
    Vec<T> sum[M] = {};
    for (std::int64_t t = 0; t < width; ++t, row.next())
        for (int k = 0; k < M; ++k) sum[k] += weight[t] * load(row.at + k * W);
    for (int k = 0; k < M; ++k) store(target + k * W, sum[k]);
}
// And of two, of which the second begins `Offset` columns after the first.
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

// Of a row of a band, or of two if they are as far apart as expected: how many. act(two) finds them.
template <int Width, int Offset, typename T, typename F>
static inline std::int64_t one_or_two(const Band<T>& b, std::int64_t j, std::int64_t end, F&& act) {
    if (Width && j + 1 < end && b.first[j + 1] == b.first[j] + Offset) return act(std::true_type{}), 2;
    return act(std::false_type{}), 1;
}

// Some rows of a band, at most kTogether, of `length` values each: a multiple of two vectors.
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

// Some rows of the band of a last axis, times cells of NV vectors that are `apart` values apart.
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

// Widths and offsets of the bands of a Gaussian of three pixels: up, down, and between. Of others the compiler knows
// nothing.
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

// target = band times source, rows of `length` values one after the other, some at a time.
template <typename T> static void all_rows(const Band<T>& b, std::int64_t length, const T* source, T* target) {
    for (std::int64_t j = 0; j < b.rows; j += kTogether) {
        const Range some{j, j + kTogether < b.rows ? j + kTogether : b.rows};
        band_rows<T>(b, some, {source, length, b.columns}, length, target + j * length, length);
    }
}

// The coarse grid: the threads of a region let it `take` the lines of x, each those of its rows, `complete` what they have
// taken, `filter` it, and ask for lines of the answer. Each of these waits for the others to be done with the one before.
template <typename T, int NV> struct Filtered {
    static constexpr std::int64_t kCell = NV * kLanes<T>;

    const Grid<T>* grid;
    std::int64_t lines;         // of the last axis in a row of x
    std::int64_t across;        // pixels of a line
    std::int64_t length;        // values of a line of the coarse grid, an even number of vectors
    std::int64_t coarse, wide;  // values of a row of the coarse grid, and the most between it and one of x
    std::int64_t span;          // rows of x that rows of the coarse grid need, as many as are found together
    T* gathered;                // (rows of the coarse grid, coarse)
    T* filtered;                // the same, after `middle` of the first axis
    T* spare;                   // (threads, room())

    int last() const { return grid->axes - 1; }
    std::int64_t rows() const { return grid->up[0].rows; }

    // Of each thread: the rows of x that it took last, the first ones that it took, four rows of the answer, and
    // places for what is on its way, two down and two up.
    std::int64_t kept() const { return span; }
    std::int64_t room() const { return (2 * kept() + kTogether) * coarse + 4 * wide; }
    T* own(int thread) const { return spare + thread * room(); }
    Ring<T> ring(int thread) const { return {own(thread), coarse, kept()}; }
    T* head(int thread, std::int64_t row) const { return own(thread) + (kept() + row) * coarse; }
    T* four(int thread) const { return own(thread) + 2 * kept() * coarse; }
    T* between(int thread, int which) const { return four(thread) + kTogether * coarse + which * wide; }

    // How many values are needed.
    std::int64_t plan(const Grid<T>& g, int threads) {
        grid = &g;
        across = last() ? g.up[last()].rows : 1;
        const std::int64_t points = last() ? g.up[last()].columns : 1;
        length = (points * NV + 1) / 2 * 2 * kLanes<T>;
        lines = coarse = 1;
        std::int64_t most = 1;
        for (int a = 1; a < last(); ++a) {
            const Band<T>& up = g.up[a];
            lines *= up.rows;
            coarse *= up.columns;
            most *= up.rows > up.columns ? up.rows : up.columns;
        }
        coarse *= length;
        const Band<T>& down = g.down[0];
        span = 0;
        for (std::int64_t j = 0; j < down.rows; ++j) {
            const std::int64_t last = j + kTogether < down.rows ? j + kTogether - 1 : down.rows - 1;
            const std::int64_t needed = down.first[last] + down.width - down.first[j];
            span = needed > span ? needed : span;
        }
        wide = most * length > kTogether * coarse ? most * length : kTogether * coarse;
        return g.up[0].columns * coarse * (g.middle[0].width ? 2 : 1) + room() * threads;
    }
    void place(T* memory) {
        const std::int64_t size = grid->up[0].columns * coarse;
        gathered = memory;
        filtered = grid->middle[0].width ? gathered + size : gathered;
        spare = filtered + size;
    }

    // A thread's way through its rows of x.
    struct Taken {
        Team team;
        Range rows;
        std::int64_t cell;  // of the line at hand, the next to be found
        std::int64_t next;  // row of the coarse grid, to be gathered
    };
    Taken nothing(Team team) const {
        Taken taken{team, share(rows(), team.thread, team.threads), 0, 0};
        const Band<T>& down = grid->down[0];
        while (taken.next < down.rows && down.first[taken.next] < taken.rows.begin) ++taken.next;
        return taken;
    }
    // How many pixels of a line before those that are taken have to be there still.
    std::int64_t before() const { return last() ? grid->down[last()].width - 1 : 0; }

    // The next pixels of this thread's rows, all in one line, as cells.
    void take(const T* pixels, Range range, Taken& taken) const {
        const int thread = taken.team.thread;
        const std::int64_t l = range.begin / across, row = l / lines;
        T* const end = ring(thread).at(row);
        T* const line = (last() > 1 ? between(thread, 0) : end) + (l - row * lines) * length;
        if (last()) {
            const Band<T>& down = grid->down[last()];
            const std::int64_t begin = range.begin - l * across, stop = range.end - l * across, first = taken.cell;
            while (taken.cell < down.rows && down.first[taken.cell] + down.width <= stop) ++taken.cell;
            cells<T, NV>(down, {first, taken.cell}, pixels - begin * kCell, kCell, line + first * kCell);
            if (stop < across) return;
            taken.cell = 0;
        } else {
            std::memcpy(line, pixels, kCell * sizeof(T));
        }
        for (std::int64_t e = (last() ? grid->down[last()].rows : 1) * kCell; e < length; ++e) line[e] = 0;
        if (l + 1 < (row + 1) * lines) return;
        if (last() > 1) down_the_others(thread, end);
        const std::int64_t number = row - taken.rows.begin;
        if (number < kept() && taken.team.threads > 1) std::memcpy(head(thread, number), end, coarse * sizeof(T));
        gather(row + 1, taken);
    }

    // What this thread could not gather for want of rows that others took.
    void complete(Taken& taken) const {
        const Band<T>& down = grid->down[0];
        const auto [thread, threads] = taken.team;
        int other = thread;
        for (std::int64_t row = taken.rows.end; row < rows(); ++row) {
            if (taken.next == down.rows || down.first[taken.next] >= taken.rows.end) return;
            while (share(rows(), other, threads).end <= row) ++other;
            const T* const from = head(other, row - share(rows(), other, threads).begin);
            std::memcpy(ring(thread).at(row), from, coarse * sizeof(T));
            gather(row + 1, taken);
        }
    }

    // The rows of the coarse grid that need no row of x from `end` on, some together.
    void gather(std::int64_t end, Taken& taken) const {
        const Band<T>& down = grid->down[0];
        const Ring<T> rows = ring(taken.team.thread);
        T* const some = between(taken.team.thread, 0);
        while (taken.next < down.rows && down.first[taken.next] < taken.rows.end) {
            std::int64_t stop = taken.next;
            while (stop < down.rows && stop < taken.next + kTogether && down.first[stop] < taken.rows.end) ++stop;
            if (down.first[stop - 1] + down.width > end) return;
            band_rows<T>(down, {taken.next, stop}, {rows.rows, rows.apart, rows.count}, coarse, some, coarse);
            for (T* from = some; taken.next < stop; ++taken.next, from += coarse)
                filter_the_others(from, between(taken.team.thread, 1), gathered + taken.next * coarse);
        }
    }

    // `middle` of the first axis.
    void filter(Team team) const {
        const Band<T>& middle = grid->middle[0];
        if (!middle.width) return;
        const Range mine = share(middle.rows, team.thread, team.threads);
        for (std::int64_t j = mine.begin; j < mine.end; j += kTogether) {
            const Range some{j, j + kTogether < mine.end ? j + kTogether : mine.end};
            band_rows<T>(middle, some, {gathered, coarse, middle.columns}, coarse, filtered + j * coarse, coarse);
        }
    }

    // What a thread has read last.
    struct Read {
        std::int64_t group = -1, row = -1;
        const T* lines = nullptr;
    };

    // Line l of the image but for the last axis, on whose coarse grid it is left; in memory of this thread, until it
    // asks for a line of another row.
    const T* line(std::int64_t l, int thread, Read& read) const {
        const std::int64_t row = l / lines, group = row / kTogether;
        if (group != read.group) {
            const Band<T>& up = grid->up[0];
            const std::int64_t j = group * kTogether;
            const Range some{j, j + kTogether < up.rows ? j + kTogether : up.rows};
            band_rows<T>(up, some, {filtered, coarse, up.columns}, coarse, four(thread), coarse);
        }
        if (row != read.row) read = {group, row, up_the_others(four(thread) + row % kTogether * coarse, thread)};
        return read.lines + (l - row * lines) * length;
    }

    // Of a line, so many pixels from `first` on, as cells.
    void pixels(const T* line, std::int64_t first, std::int64_t count, T* target) const {
        if (last()) cells<T, NV>(grid->up[last()], {first, first + count}, line, kCell, target);
        else std::memcpy(target, line, kCell * sizeof(T));
    }

    // The lines of a row down the axes between the first and the last.
    void down_the_others(int thread, T* target) const {
        T* to = between(thread, 0);
        std::int64_t outer = lines, inner = length;
        for (int a = last() - 1, turn = 0; a >= 1; --a) {
            const Band<T>& b = grid->down[a];
            const T* const from = to;
            to = a > 1 ? between(thread, turn ^= 1) : target;
            outer /= b.columns;
            for (std::int64_t o = 0; o < outer; ++o)
                all_rows(b, inner, from + o * b.columns * inner, to + o * b.rows * inner);
            inner *= b.rows;
        }
    }

    // `middle` of all axes but the first, for a row of the coarse grid, which is written over.
    void filter_the_others(T* row, T* copy, T* target) const {
        T* from = row;
        int left = 0;
        for (int a = 1; a <= last(); ++a) left += grid->middle[a].width > 0;
        std::int64_t outer = 1, inner = coarse;
        for (int a = 1; a <= last(); ++a) {
            const Band<T>& b = grid->middle[a];
            const std::int64_t points = grid->up[a].columns;
            if (a < last()) inner /= points;
            if (b.width) {
                T* const to = --left == 0 ? target : from == row ? copy : row;
                for (std::int64_t o = 0; o < outer; ++o)
                    if (a == last()) cells<T, NV>(b, {0, points}, from + o * length, kCell, to + o * length);
                    else all_rows(b, inner, from + o * points * inner, to + o * points * inner);
                from = to;
            }
            outer *= points;
        }
        if (from != target) std::memcpy(target, from, coarse * sizeof(T));
    }

    // Axes between the first and the last.
    const T* up_the_others(const T* row, int thread) const {
        const T* from = row;
        std::int64_t outer = 1, inner = coarse;
        for (int a = 1, turn = 0; a < last(); ++a, turn ^= 1) {
            const Band<T>& b = grid->up[a];
            inner /= b.columns;
            T* const to = between(thread, 2 + turn);
            for (std::int64_t o = 0; o < outer; ++o)
                all_rows(b, inner, from + o * b.columns * inner, to + o * b.rows * inner);
            from = to;
            outer *= b.rows;
        }
        return from;
    }
};

}  // namespace fwcrf::FWCRF_ISA
