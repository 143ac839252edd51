// A kernel on a grid, applied together by the threads of one parallel region.
//
// Along every axis the kernel is up * middle * down: to fewer points, a filter there, and back. A line of x is filtered
// while it is in the cache: down the last axis; then each row of lines down the axes before; and, as soon as there are
// enough rows, down the first axis. When all rows are there, `middle` of the first axis is applied. The way up happens
// when pixels are read, a line at a time.
//
// A cell holds the labels of a pixel or of a coarse point in whole vectors; values past the labels are finite and
// unused.
#pragma once

#include "grid/bands.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// The threads of a region call `take` for the lines of their own rows of x, then `complete`, then `filter`, then read
// `line`. All threads must have finished one of these phases before any thread starts the next.
template <typename T, int NV> struct CoarseGrid {
    static constexpr std::int64_t kCell = NV * kLanes<T>;

    const Grid<T>* grid;
    std::int64_t lines;         // lines of the last axis in a row of x
    std::int64_t across;        // pixels of a line
    std::int64_t length;        // values of a coarse line, an even number of vectors
    std::int64_t coarse, wide;  // values of a coarse row, and the most values between a row of x and a coarse row
    std::int64_t span;          // rows of x that kTogether coarse rows need
    int parts;                  // of the rows of x: threads that were asked for
    T* gathered;                // (coarse rows, coarse)
    T* filtered;                // (coarse rows, coarse), after `middle` of the first axis
    T* spare;                   // (threads, room())

    int last() const { return grid->axes - 1; }
    std::int64_t rows() const { return grid->up[0].rows; }

    // Per thread: a ring of its last rows, a copy of its first rows (for the thread before), kTogether rows of the
    // result, and four temporaries, two for the way down and two for the way up.
    std::int64_t kept() const { return span; }
    std::int64_t room() const { return (2 * kept() + kTogether) * coarse + 4 * wide; }
    T* own(int thread) const { return spare + thread * room(); }
    Ring<T> ring(int thread) const { return {own(thread), coarse, kept()}; }
    T* head(int thread, std::int64_t row) const { return own(thread) + (kept() + row) * coarse; }
    T* four(int thread) const { return own(thread) + 2 * kept() * coarse; }
    T* between(int thread, int which) const { return four(thread) + kTogether * coarse + which * wide; }

    // Returns the number of values needed.
    std::int64_t plan(const Grid<T>& g, int threads) {
        grid = &g;
        parts = threads;
        across = last() ? g.up[last()].rows : 1;
        length = coarse_line(g, kCell, kLanes<T>);
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

    // The progress of a thread through its rows of x.
    struct Taken {
        Team team;
        Range rows;
        std::int64_t cell;   // next cell of the current coarse line
        std::int64_t next;   // next coarse row to be gathered
        T* plain = nullptr;  // (coarse rows, coarse) or null: gets the coarse rows before `middle`
    };
    Taken nothing(Team team) const {
        Taken taken{team, share(rows(), team, parts), 0, 0};
        const Band<T>& down = grid->down[0];
        while (taken.next < down.rows && down.first[taken.next] < taken.rows.begin) ++taken.next;
        return taken;
    }
    // Pixels of the previous block that the next block of the same line still reads.
    std::int64_t halo() const { return last() ? grid->down[last()].width - 1 : 0; }

    // Takes the next pixels of this thread's rows, all in one line, as cells.
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
        if (last() > 1) down_inner_axes(thread, end);
        const std::int64_t number = row - taken.rows.begin;
        if (number < kept() && taken.team.threads > 1) std::memcpy(head(thread, number), end, coarse * sizeof(T));
        gather(row + 1, taken);
    }

    // Gathers the coarse rows that also need the first rows of the next threads.
    void complete(Taken& taken) const {
        const Band<T>& down = grid->down[0];
        const auto [thread, threads] = taken.team;
        int other = thread;
        for (std::int64_t row = taken.rows.end; row < rows(); ++row) {
            if (taken.next == down.rows || down.first[taken.next] >= taken.rows.end) return;
            while (share(rows(), Team{other, threads}, parts).end <= row) ++other;
            const T* const from = head(other, row - share(rows(), Team{other, threads}, parts).begin);
            std::memcpy(ring(thread).at(row), from, coarse * sizeof(T));
            gather(row + 1, taken);
        }
    }

    // Gathers the coarse rows that need only rows of x before `end`.
    void gather(std::int64_t end, Taken& taken) const {
        const Band<T>& down = grid->down[0];
        const Ring<T> rows = ring(taken.team.thread);
        T* const some = between(taken.team.thread, 0);
        while (taken.next < down.rows && down.first[taken.next] < taken.rows.end) {
            std::int64_t stop = taken.next;
            while (stop < down.rows && stop < taken.next + kTogether && down.first[stop] < taken.rows.end) ++stop;
            if (down.first[stop - 1] + down.width > end) return;
            band_rows<T>(down, {taken.next, stop}, {rows.rows, rows.apart, rows.count}, coarse, some, coarse);
            if (taken.plain)
                std::memcpy(taken.plain + taken.next * coarse, some, (stop - taken.next) * coarse * sizeof(T));
            for (T* from = some; taken.next < stop; ++taken.next, from += coarse)
                filter_inner_axes(from, between(taken.team.thread, 1), gathered + taken.next * coarse);
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

    // The rows that a thread has read last.
    struct Read {
        std::int64_t group = -1, row = -1;
        const T* lines = nullptr;
    };

    // Line l of the result, still coarse along the last axis. The memory belongs to the thread and is valid until the
    // thread reads another row.
    const T* line(std::int64_t l, int thread, Read& read) const {
        const std::int64_t row = l / lines, group = row / kTogether;
        if (group != read.group) {
            const Band<T>& up = grid->up[0];
            const std::int64_t j = group * kTogether;
            const Range some{j, j + kTogether < up.rows ? j + kTogether : up.rows};
            band_rows<T>(up, some, {filtered, coarse, up.columns}, coarse, four(thread), coarse);
        }
        if (row != read.row) read = {group, row, up_inner_axes(four(thread) + row % kTogether * coarse, thread)};
        return read.lines + (l - row * lines) * length;
    }

    // `count` pixels of a line from `first` on, as cells.
    void pixels(const T* line, std::int64_t first, std::int64_t count, T* target) const {
        if (last()) cells<T, NV>(grid->up[last()], {first, first + count}, line, kCell, target);
        else std::memcpy(target, line, kCell * sizeof(T));
    }

    // A row of lines, down the axes between the first and the last.
    void down_inner_axes(int thread, T* target) const {
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

    // `middle` of all axes but the first, for a coarse row; overwrites `row`.
    void filter_inner_axes(T* row, T* copy, T* target) const {
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

    // A coarse row, up the axes between the first and the last.
    const T* up_inner_axes(const T* row, int thread) const {
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
