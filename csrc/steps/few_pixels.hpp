// Rows of a few pixels, scattered to all kernels: splatted into lattices, and taken by grids as changes.
#pragma once

#include "grid/change.hpp"
#include "steps/terms.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct FewPixels {
    using Workspace = typename Terms<T, NV>::Workspace;
    static constexpr std::int64_t kRow = PixelRows<T, NV>::kRow;

    const StepArgs<T>& a;
    const Terms<T, NV>& terms;
    GridChange<T, NV> grid[kMaxTerms];
    T dear = 1;  // the cost of a pixel, relative to a grid with five coarse points along two axes
    T* windows;  // (threads, margin + kPixels + margin, kRow), see `rows`
    std::int64_t margin = 0;

    FewPixels(const StepArgs<T>& a, const Terms<T, NV>& terms) : a(a), terms(terms) {}

    // False if one pixel costs so much that whole steps are faster.
    bool plan() {
        for (int c = 0; c < a.terms; ++c) {
            if (!terms.is_grid(c)) continue;
            if (!grid[c].plan(a.term[c].grid, terms.grid[c], kPixels, a.threads)) return false;
            if (const T cost = static_cast<T>(grid[c].touched) / T(25); cost > dear) dear = cost;
        }
        return true;
    }
    void layout(Parts& parts) {
        for (int c = 0; c < a.terms; ++c)
            if (terms.is_grid(c) && grid[c].margin() > margin) margin = grid[c].margin();
        parts.take(windows, a.threads * (2 * margin + kPixels) * kRow);
        for (int c = 0; c < a.terms; ++c)
            if (terms.is_grid(c)) grid[c].layout(parts);
    }
    // To be called once, by one thread.
    void begin() const {
        for (int c = 0; c < a.terms; ++c)
            if (terms.is_grid(c)) grid[c].begin();
    }

    // The number of a block, less than `slots()`; threads whose shares meet inside a line have blocks of their own.
    std::int64_t slot(const Block& block, Team team) const {
        const std::int64_t line = block.first / terms.across;
        return line * blocks_per_line() + (block.first - line * terms.across) / kPixels + team.thread;
    }
    std::int64_t slots() const { return (a.n / terms.across + 1) * blocks_per_line() + a.threads; }

    // Of a thread: the coarse lines of the line of pixels that came last.
    struct Lines {
        typename GridChange<T, NV>::Lines of[kMaxTerms];
    };
    // A thread's rows for the pixels of a block. The rows before and after them are 0.
    T* rows(Team team) const {
        T* const found = windows + (team.thread * (2 * margin + kPixels) + margin) * kRow;
        std::memset(found - margin * kRow, 0, margin * kRow * sizeof(T));
        return found;
    }
    // Scatters the rows of a part of a block, which are among the `rows` of the thread, after rows that are 0.
    void scatter(const Block& part, T* rows, Lines& taking, const Workspace& work) const {
        std::memset(rows + part.pixels * kRow, 0, margin * kRow * sizeof(T));
        for (int c = 0; c < a.terms; ++c) {
            if (terms.is_grid(c)) {
                const std::int64_t line = grid[c].line_of(part.first);
                grid[c].find_taking(line, taking.of[c]);
                grid[c].take(rows, taking.of[c], part.first - line * grid[c].pixels(grid[c].last), part.pixels,
                             work.team.thread);
            } else {
                terms.splat(c, part, rows, work.splats[c]);
            }
        }
    }

  private:
    std::int64_t blocks_per_line() const { return (terms.across + kPixels - 1) / kPixels; }
};

}  // namespace fwcrf::FWCRF_ISA
