// The terms of a model: P x + u for a block of pixels, from all kernels, their compatibilities and the unary.
//
// x is scattered (splat into lattices, taken by grids line by line); then lattices are blurred and grids filtered; then
// P x + u is read for any block.
#pragma once

#include "grid/coarse.hpp"
#include "lattice/blur.hpp"
#include "runtime/scratch.hpp"
#include "simd/sparse.hpp"
#include "steps/arguments.hpp"
#include "steps/corners.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct Terms {
    using Pixel = PixelRows<T, NV>;
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;

    const StepArgs<T>& a;
    const Pixel pixel;
    FilterArgs<T> lattice[kMaxTerms];
    BlurredLattice<T> blurred[kMaxTerms];
    CoarseGrid<T, NV> grid[kMaxTerms];
    std::int64_t rows;              // rows of the image if a grid knows them, else pixels
    std::int64_t across;            // pixels of a line of the image
    const T* kept[kMaxTerms] = {};  // blurred lattices to read instead of those of the last `filter`
    int sliced = -1;                // the Potts lattice that `combine` reads itself
    bool matrices_too = false, potts_too = false;
    bool shifted = false;  // a term has diagonals: P x + u reads x itself, not its lattices and grids only
    T* matrices;           // (terms, channels, kRow)
    T* pairs = nullptr;    // (terms / 2, channels, 2 kRow): matrices of two terms side by side; null: not used
    // True for a term whose matrix multiplies the blurred lattice or the coarse grid, which are smaller than the image.
    bool early[kMaxTerms] = {};
    T* products[kMaxTerms];        // blurred lattices times their matrix, (vertices, kRow)
    T* point_products[kMaxTerms];  // the same of the points
    T* diagonal;                   // (n): sum of weight * shift of the Potts terms
    std::int64_t halo = 0;         // pixels of the previous block that grids still read
    T* windows;                    // (threads, halo + kPixels, kRow): the halo and a block

    static constexpr std::int64_t kPixelsAhead = 16;  // of prefetches

    bool is_grid(int c) const { return a.term[c].grid.axes > 0; }
    bool is_potts(int c) const { return !a.term[c].matrix; }

    Terms(const StepArgs<T>& a, Scratch& scratch) : a(a), pixel(a.n, a.channels), rows(a.n), across(kPixels) {
        std::int64_t sizes[kMaxTerms], total = 0;
        const auto room = [&total](std::int64_t values) {
            const std::int64_t begin = total;
            total += (values + 15) / 16 * 16;
            return begin;
        };
        for (int c = 0; c < a.terms; ++c) {
            shifted = shifted || a.term[c].shift;
            if (is_grid(c)) {
                sizes[c] = room(grid[c].plan(a.term[c].grid, a.threads));
                rows = grid[c].rows();
                if (grid[c].last()) across = grid[c].across;
                halo = grid[c].halo() > halo ? grid[c].halo() : halo;
                continue;
            }
            if (is_potts(c)) sliced = c;
            lattice[c] = a.term[c].lattice;
            lattice[c].n = a.n;
            lattice[c].channels = a.channels;
            lattice[c].shift = nullptr;
            lattice[c].threads = a.threads;
            if (lattice[c].borders && lattice[c].borders->threads != a.threads) lattice[c].borders = nullptr;
            sizes[c] = room(blurred[c].plan(lattice[c], kRow));
        }
        const std::int64_t of_diagonal = room(a.n), of_windows = room(a.threads * (halo + kPixels) * kRow);
        const std::int64_t of_matrices = room(a.terms * a.channels * kRow);
        const bool wide = NV == 3 && a.wide;
        const std::int64_t of_pairs = room(wide ? a.terms / 2 * a.channels * 2 * kRow : 0);
        std::int64_t of_products[kMaxTerms], of_points[kMaxTerms];
        for (int c = 0; c < a.terms; ++c) {
            early[c] = !is_potts(c) && has_spread(a.term[c], a.n) && (!a.slopes || point_spread(0, c));
            const std::int64_t size = early[c] && !is_grid(c) ? spread_size(a.term[c], kRow, W) : 0;
            of_products[c] = room(size);
            of_points[c] = room(corner_slopes(c) ? size : 0);
        }
        T* const memory = scratch.get<T>(total);
        diagonal = memory + of_diagonal;
        windows = memory + of_windows;
        matrices = memory + of_matrices;
        for (int c = 0; c < a.terms; ++c) {
            products[c] = memory + of_products[c];
            point_products[c] = memory + of_points[c];
            if (is_grid(c)) grid[c].place(memory + sizes[c]);
            else blurred[c].base = memory + sizes[c];
            (is_potts(c) ? potts_too : matrices_too) = true;
            if (is_potts(c)) continue;
            pad_rows<T, NV>(a.term[c].matrix, a.channels, matrices + c * a.channels * kRow);
        }
        if (!wide) return;
        pairs = memory + of_pairs;
        int place = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (!has_diagonal(c)) continue;
            T* const to = pairs + place / 2 * a.channels * 2 * kRow + place % 2 * kRow;
            for (std::int64_t s = 0; s < a.channels && place / 2 < a.terms / 2; ++s)
                std::memcpy(to + s * 2 * kRow, matrices + (c * a.channels + s) * kRow, kRow * sizeof(T));
            ++place;
        }
    }
    // True for a term with a matrix whose diagonal is computed apart from its kernel.
    bool has_diagonal(int c) const { return !is_potts(c) && ((early[c] && a.term[c].shift) || shift_slopes(c)); }

    // A thread's pixels: whole rows of the image if a grid knows them.
    Range pixels(Team team) const {
        const Range mine = share(rows, team, a.threads);
        return {mine.begin * (a.n / rows), mine.end * (a.n / rows)};
    }

    // Calls act(block) for all blocks of a range. No block crosses the end of a line.
    template <typename F> void for_blocks(Range range, F&& act) const {
        for (std::int64_t i = range.begin; i < range.end;) {
            const std::int64_t line = (i / across + 1) * across, end = line < range.end ? line : range.end;
            const Block block{i, end - i < kPixels ? end - i : kPixels};
            act(block);
            i += block.pixels;
        }
    }

    // The spread points of a step, and the derivatives that they are for; or null.
    const T* point_spread(int step, int c) const {
        return a.point_spreads ? a.point_spreads[step * a.terms + c] : nullptr;
    }
    T* corner_slopes(int c) const { return a.tables ? a.tables[c].weights : nullptr; }
    T* shift_slopes(int c) const { return a.tables ? a.tables[c].shift : nullptr; }

    // The workspace of a thread.
    struct Workspace {
        Team team;
        int step;              // from 0 on, -1 for a start
        T* block;              // (kPixels, kRow), after the halo
        double* slopes;        // (terms, channels, kRow) or null
        T* splats[kMaxTerms];  // lattices to splat into, or null
        T all;                 // MessageBound::all so far
        Vec<T> last;           // MessageBound::last so far, for all labels of the last vector
        bool careful;          // softmax subtracts the largest entry first
        // Rows of x and of the points of the current block, for derivatives in tables.
        const T *here, *points;
        // Of each grid.
        typename CoarseGrid<T, NV>::Read read[kMaxTerms];
        typename CoarseGrid<T, NV>::Taken taken[kMaxTerms];
    };
    // Of a step, in which x of the step `next` is scattered.
    Workspace workspace(Team team, double* slopes, int step = -1, int next = -1) const {
        T* const block = windows + (team.thread * (halo + kPixels) + halo) * kRow;
        Workspace made{team, step, block, slopes, {}, T(0), Vec<T>{}, false, nullptr, nullptr, {}, {}};
        for (int c = 0; c < a.terms; ++c) {
            if (!is_grid(c)) continue;
            made.taken[c] = grid[c].nothing(team);
            if (a.spreads && next >= 0 && next < a.steps) made.taken[c].plain = a.spreads[next * a.terms + c];
        }
        return made;
    }

    // True if every thread splats into every lattice, so that a step can splat its result for the next step.
    bool carries() const {
        for (int c = 0; c < a.terms; ++c)
            if (!is_grid(c) && !blurred[c].by_all(a.threads)) return false;
        return true;
    }
    // Clears the lattices that a thread splats into.
    void clear(Workspace& work) const {
        for (int c = 0; c < a.terms; ++c)
            if (!is_grid(c)) work.splats[c] = blurred[c].cleared(work.team);
    }

    // Gives the block in `work.block` to all grids, and keeps its end as halo.
    void take(const Block& block, Workspace& work) const {
        const std::int64_t end = block.first + block.pixels;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_grid(c)) continue;
            const T* at = work.block;
            for (std::int64_t i = block.first; i < end; i += at_once(c), at += at_once(c) * kRow)
                grid[c].take(at, {i, i + at_once(c) < end ? i + at_once(c) : end}, work.taken[c]);
        }
        std::memmove(work.block - halo * kRow, work.block + (block.pixels - halo) * kRow, halo * kRow * sizeof(T));
    }
    // The most pixels that a grid takes in one call: a one-dimensional grid has lines of one pixel.
    std::int64_t at_once(int c) const { return grid[c].last() ? kPixels : 1; }
    // To be called when the grids have taken the lines of all threads.
    void complete(Workspace& work) const {
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) grid[c].complete(work.taken[c]);
    }

    // Computes `diagonal`, which does not depend on x.
    void prepare(Team team) const {
        const Range mine = pixels(team);
        for (std::int64_t i = mine.begin; i < mine.end; ++i) diagonal[i] = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c) || !a.term[c].shift) continue;
            const T potts = a.term[c].potts, *const shift = a.term[c].shift;
            T* const to = diagonal;
            for (std::int64_t i = mine.begin; i < mine.end; ++i) to[i] += potts * shift[i];
        }
        if (!a.shared || !a.shared->factor) return;
        for (std::int64_t i = mine.begin; i < mine.end; ++i) diagonal[i] *= a.shared->factor[i];
    }

    // Scatters a thread's part of x to all kernels. False if a value is not finite.
    bool scatter(const T* x, Team team, Barrier& barrier, int step) const {
        Workspace work = workspace(team, nullptr, -1, step);
        if (carries()) clear(work);
        Vec<T> nothing[NV] = {};
        for_blocks(pixels(team), [&](const Block& block) {
            get(x, block, work.block, nothing);
            for (int c = 0; c < a.terms; ++c)
                if (work.splats[c]) splat(c, block, work.block, work.splats[c]);
            take(block, work);
        });
        for (int c = 0; c < a.terms && !carries(); ++c)
            if (!is_grid(c)) splat_all(c, x, team);
        barrier.wait(team.threads);
        complete(work);
        return Pixel::row_total(nothing) == T(0);
    }
    // Pixels of x, times Shared::factor. `nothing` becomes NaN if a value is not finite.
    void get(const T* x, const Block& block, T* rows, Vec<T> (&nothing)[NV]) const {
        const T* const factor = a.shared ? a.shared->factor : nullptr;
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            prefetch(x + (block.first + q + kPixels) * a.channels, kRow);
            pixel.get(x, block.first + q, v);
            const T times = factor ? factor[block.first + q] : T(1);
            for (int k = 0; k < NV; ++k) {
                v[k] *= times;
                nothing[k] += v[k] * T(0);
                store(rows + q * kRow + k * W, v[k]);
            }
        }
    }

    // Blurs all lattices and filters all grids, and multiplies them by matrices.
    void filter(Team team, int step, double* slopes) {
        for (int c = 0; c < a.terms; ++c) {
            double* const slope = slopes ? slopes + c * a.channels * kRow : nullptr;
            if (is_grid(c)) {
                grid[c].filter(team);
                if (early[c]) multiply_grid(c, team, point_spread(step, c), slope);
            } else {
                blurred[c].blur(lattice[c], team, false);
                multiply_lattice(c, team, step, slope);
            }
        }
    }
    // The slope of a matrix is <spread points, x> on the grid or lattice, but for the diagonal: K is the transpose of
    // itself.
    void multiply_grid(int c, Team team, const T* points, double* slope) const {
        const CoarseGrid<T, NV>& g = grid[c];
        const T* const matrix = matrices + c * a.channels * kRow;
        const std::int64_t lines = g.grid->up[0].columns * (g.coarse / g.length), cells = g.length / kRow;
        const std::int64_t of_row = g.coarse / g.length;
        const Range rows = share(g.grid->middle[0].rows, team.thread, team.threads);
        alignas(64) T read[kPixels * kRow];
        for (std::int64_t l = rows.begin * of_row; l < rows.end * of_row && l < lines; ++l)
            for (std::int64_t j = 0; j < cells; j += kPixels) {
                const std::int64_t count = j + kPixels < cells ? kPixels : cells - j, at = l * g.length + j * kRow;
                if (slope) add_outers({0, count}, points + at, g.filtered + at, slope);
                std::memcpy(read, g.filtered + at, count * kRow * sizeof(T));
                multiply(read, matrix, count, g.filtered + at);
            }
    }
    void multiply_lattice(int c, Team team, int step, double* slope) const {
        const T* const values = blurred[c].result();
        const T* const points = point_spread(step, c);
        const T* const matrix = matrices + c * a.channels * kRow;
        const Range mine = share(lattice[c].vertices, team.thread, team.threads);
        if (T* const to = a.spreads ? a.spreads[step * a.terms + c] : nullptr)
            std::memcpy(to + mine.begin * kRow, values + mine.begin * kRow, (mine.end - mine.begin) * kRow * sizeof(T));
        for (std::int64_t v = mine.begin; v < mine.end && early[c]; v += kPixels) {
            const std::int64_t count = v + kPixels < mine.end ? kPixels : mine.end - v, at = v * kRow;
            if (slope) add_outers({0, count}, points + at, blurred[c].own(0) + at, slope);
            multiply(values + at, matrix, count, products[c] + at);
            if (corner_slopes(c)) multiply(points + at, matrix, count, point_products[c] + at);
        }
    }
    void multiply(const T* rows, const T* matrix, std::int64_t count, T* target) const {
        std::memset(target, 0, count * kRow * sizeof(T));
        add_products<T, NV>(rows, matrix, a.channels, count, target);
    }
    // The values of a lattice that pixels read: K x, or K x M if the matrix comes early.
    const T* values_of(int c) const { return kept[c] ? kept[c] : early[c] ? products[c] : blurred[c].result(); }

    // Splats a thread's share of x, if fewer threads have a lattice than there are threads. Another thread begins for
    // each term, so that two lattices of one thread each are splatted side by side.
    void splat_all(int c, const T* x, Team all) const {
        const Team team{(all.thread + c) % all.threads, all.threads};
        T* const values = blurred[c].cleared(team);
        if (!values) return;
        alignas(64) T rows[kPixels * kRow];
        Vec<T> unused[NV] = {};
        const Range mine = blurred[c].borders ? pixels(team) : share(a.n, team.thread, blurred[c].active(team.threads));
        for (std::int64_t i = mine.begin; i < mine.end; i += kPixels) {
            const Block block{i, mine.end - i < kPixels ? mine.end - i : kPixels};
            get(x, block, rows, unused);
            splat(c, block, rows, values);
        }
    }
    void splat(int c, const Block& block, const T* rows, T* values) const {
        switch (lattice[c].corners) {
        case 6: return splat<6>(c, block, rows, values);
        case 5: return splat<5>(c, block, rows, values);
        case 3: return splat<3>(c, block, rows, values);
        default: return splat<0>(c, block, rows, values);
        }
    }
    template <int C> void splat(int c, const Block& block, const T* rows, T* values) const {
        const int corners = C ? C : lattice[c].corners;
        const std::int32_t* index = blurred[c].rows_of(lattice[c]) + block.first * corners;
        const T* weight = lattice[c].splat + block.first * corners;
        const bool far = blurred[c].far;
        for (std::int64_t q = 0; q < block.pixels; ++q, rows += kRow, index += corners, weight += corners) {
            if (far) fetch(index, corners, block.first + q, values);
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + k * W);
            for (int m = 0; m < corners; ++m) add_row<T, NV>(values + index[m] * kRow, weight[m], v);
        }
    }

    // Prefetches the rows of a lattice for a pixel that follows pixel i, whose corners `index` points to.
    __attribute__((always_inline)) inline void fetch(const std::int32_t* index, int corners, std::int64_t i,
                                                     const T* values) const {
        if (i + kPixelsAhead >= a.n) return;
        for (int m = 0; m < corners; ++m)
            prefetch<3>(values + index[kPixelsAhead * corners + m] * kRow, static_cast<int>(kRow));
    }

    // The requested result: rows = scale (P x + unary u).
    struct Query {
        const T* x;
        T scale, unary;
        bool total;      // include the part that is the same for all labels
        bool bounded;    // also compute MessageBound::last
        bool zero_sums;  // the labels of each pixel of x sum to 0
        Vec<T> past;     // value of the rows past the labels
    };

    // rows = scale x
    void scaled(const Block& block, const Query& query, T* rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const T* const x = query.x + (block.first + q) * a.channels;
            Vec<T> v[NV];
            prefetch(x + kPixels * a.channels, kRow);
            const bool inside = pixel.inside(block.first + q);
            for (int k = 0; k < NV; ++k) v[k] = query.scale * Pixel::vector(x, k, inside, a.channels);
            pixel.set_past(v, query.past);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
    }

    // rows = the result of the query; given = the messages to the labels of the last vector, if query.bounded. With
    // slopes, work.slopes += <other, K_c x> of each term c.
    void gradient(const Block& block, const Query& query, const T* other, Workspace& work, T* rows, T* given) const {
        alignas(64) T here[kPixels * kRow];
        if (matrices_too || a.tables) {
            if (shifted || a.tables) pixel.get(query.x, block, here);
            work.here = here;
            work.points = other;
        }
        for (int c = 0; c < a.terms; ++c)
            if (is_potts(c) && shift_slopes(c)) add_row_products(block, here, kRow, other, shift_slopes(c));
        matrices_too ? with_matrices(block, query, other, work, rows)
                     : of_potts(block, query, other, work, rows, given);
    }

  private:
    // The terms of P x that are summed before `combine`: weight * rows.
    struct Summed {
        const T* rows;  // (pixels of a block, kRow)
        T weight;
        int term;  // the only term, or -1 if there are several
    };
    enum class Mode { simple, total, slopes };

    void of_potts(const Block& block, const Query& query, const T* others, Workspace& work, T* rows, T* given) const {
        alignas(64) T sum[kPixels * kRow], against[kPixels * kRow];
        // Slopes of up to two terms are computed in `combine`, of more terms one by one.
        const int slice = (work.slopes && a.terms > 2) || a.tables ? -1 : sliced;
        // <other, total - y> = <total(other) - other, y>; with zero sums it is -<other, y>.
        const T* const other = !work.slopes ? nullptr : query.zero_sums && slice >= 0 ? others : against;
        if (other == against) total_minus(block, others, against);
        const Summed summed = add_potts(block, query.x, sum, slice < 0 ? other : nullptr, slice, work);
        const bool inside = pixel.inside(block.first + block.pixels - 1);
        if (slice < 0) combine<0, Mode::total>(block, query, summed, slice, other, work, rows, given);
        else if (lattice[slice].corners == 5 && !other && !query.total && inside)
            combine<5, Mode::simple>(block, query, summed, slice, other, work, rows, given);
        else if (lattice[slice].corners != 6)
            combine<0, Mode::slopes>(block, query, summed, slice, other, work, rows, given);
        else if (other) combine<6, Mode::slopes>(block, query, summed, slice, other, work, rows, given);
        else if (query.total || !inside) combine<6, Mode::total>(block, query, summed, slice, other, work, rows, given);
        else combine<6, Mode::simple>(block, query, summed, slice, other, work, rows, given);
    }

    // The hot loop. For each pixel i of the block, per label, with Potts weights w_c:
    //
    //     m_i    = sum_c w_c (K_c x)_i + diagonal_i x_i        messages: summed terms, sliced lattice, diagonals
    //     rows_i = scale (total(m_i) - m_i + unary u_i)        total: the sum over the labels
    //
    // All labels get total(m_i), so that maps do not depend on it: it is left out unless query.total.
    // In the code v = -scale m, then v - total(v) = scale (total(m) - m). With a.plain, rows = scale (m + unary u).
    //
    // C is the number of corners of the sliced lattice, 0 if unknown at compile time. Mode::simple: no total, and the
    // block can be read as whole vectors. Mode::slopes: slopes_c += <other, y_c> with y_c = (K_c + diag(shift_c)) x,
    // unless `other` is null.
    template <int C, Mode M>
    void combine(const Block& block, const Query& query, Summed summed, int slice, const T* other, Workspace& work,
                 T* rows, T* given) const {
        const T scale = query.scale, of_sum = -scale * summed.weight, of_unary = scale * query.unary;
        const T of_slice = slice < 0 ? T(0) : -scale * a.term[slice].potts;
        const FilterArgs<T>* const l = slice < 0 ? nullptr : &lattice[slice];
        const int corners = C ? C : l ? l->corners : 0;
        const std::int32_t* index = l ? l->index + block.first * corners : nullptr;
        const T* weight = l ? l->slice + block.first * corners : nullptr;
        const T* const values = l ? values_of(slice) : nullptr;
        const bool far = l && blurred[slice].far;
        const std::int64_t channels = a.channels;
        const T* x = query.x + block.first * channels;
        const T* u = of_unary != T(0) && a.unary ? a.unary + block.first * channels : nullptr;
        const T *y = summed.rows, *self = diagonal + block.first;
        const bool total = M != Mode::simple && query.total, bounded = query.bounded, plain = a.plain;
        const Vec<T> past = query.past;
        Vec<T> mask[Pixel::kTail];
        for (int k = 0; k < Pixel::kTail; ++k) mask[k] = pixel.mask[k];
        T most = 0;
        Vec<T> of_sliced{}, of_summed{}, of_shift[2] = {};
        const T *const one = a.term[0].shift, *const two = a.terms > 1 ? a.term[1].shift : nullptr;
        for (std::int64_t q = 0; q < block.pixels; ++q, index += corners, weight += corners) {
            const bool inside = M == Mode::simple || pixel.inside(block.first + q);
            if (far) fetch(index, corners, block.first + q, values);
            Vec<T> v[NV] = {};
            for (int m = 0; m < corners; ++m) {
                const T* const row = values + index[m] * kRow;
                for (int k = 0; k < NV; ++k) v[k] += weight[m] * load(row + k * W);
            }
            if (M == Mode::slopes && other) {
                Vec<T> of_diagonal{};
                for (int k = 0; k < NV; ++k) {
                    const Vec<T> z = load(other + q * kRow + k * W);
                    of_sliced += z * v[k];
                    of_summed += z * load(y + k * W);
                    of_diagonal += z * Pixel::vector(x, k, inside, channels);
                }
                if (one) of_shift[0] += one[block.first + q] * of_diagonal;
                if (two) of_shift[1] += two[block.first + q] * of_diagonal;
            }
            // The next block: the processor does not prefetch it, because other arrays are read between two blocks.
            if (shifted) prefetch(x + kPixels * channels, kRow);
            if (u) prefetch(u + kPixels * channels, kRow);
            if (C) prefetch(index + kPixels * C, C), prefetch(weight + kPixels * C, C);
            for (int k = 0; k < NV; ++k) v[k] = of_slice * v[k] + of_sum * load(y + k * W);
            if (shifted) {
                const T shift = -scale * self[q];
                for (int k = 0; k < NV; ++k) v[k] += shift * Pixel::vector(x, k, inside, channels);
            }
            if (bounded) store(given + q * W, pixel.last_vector(v) * (T(-1) / scale));
            if (total) {
                Pixel::set_past(v, mask, Vec<T>{});
                const T whole = Pixel::row_total(v);
                most = whole / -scale > most ? whole / -scale : most;
                for (int k = 0; k < NV; ++k) v[k] -= whole;
            }
            if (plain)
                for (int k = 0; k < NV; ++k) v[k] = -v[k];
            if (u) {
                for (int k = 0; k < NV; ++k) v[k] += of_unary * Pixel::vector(u, k, inside, channels);
                u += channels;
            }
            Pixel::set_past(v, mask, past);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
            x += channels;
            y += kRow;
        }
        work.all = most > work.all ? most : work.all;
        if (M != Mode::slopes || !other) return;
        const T sign = query.zero_sums ? T(-1) : T(1);
        add_slope(slice, sign * of_sliced, work);
        if (summed.term >= 0) add_slope(summed.term, sign * of_summed, work);
        for (int c = 0; c < a.terms; ++c) add_slope(c, sign * of_shift[c], work);
    }

    // sum = weight K_c x over all Potts terms but `but`, without diagonals. With `other` also their slopes, with
    // diagonals.
    Summed add_potts(const Block& block, const T* x, T* sum, const T* other, int but, Workspace& work) const {
        int count = 0, only = -1;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c)) continue;
            if (other && a.term[c].shift) add_diagonal_slope(c, block, x, other, work);
            if (c == but) continue;
            ++count;
            only = c;
        }
        if (count == 1 && !other) {
            kernel<false>(only, block, T(1), sum, nullptr, work);
            return {sum, a.term[only].potts, only};
        }
        bool begun = false;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c) || c == but) continue;
            begun ? kernel<true>(c, block, a.term[c].potts, sum, other, work)
                  : kernel<false>(c, block, a.term[c].potts, sum, other, work);
            begun = true;
        }
        if (!begun) std::memset(sum, 0, block.pixels * kRow * sizeof(T));
        return {sum, T(1), -1};
    }

    // As `combine`, plus y_c M_c of the terms with matrices, y_c = (K_c + diag(shift_c)) x.
    void with_matrices(const Block& block, const Query& query, const T* others, Workspace& work, T* rows) const {
        alignas(64) T against[kPixels * kRow], potts[kPixels * kRow];
        const T* const here = work.here;
        bool begun = false;
        const Entries of_x = shifted || a.tables ? entries(block, here) : Entries{};
        const Entries of_points = work.slopes ? entries(block, others) : Entries{};
        int waiting = -1;  // a term whose diagonal is added with the one of the next term
        const T* pair = pairs;
        for (int c = 0; c < a.terms; ++c) {
            if (is_potts(c)) continue;
            if (!early[c]) {
                if (!begun) std::memset(rows, 0, block.pixels * kRow * sizeof(T));
                add_matrix(c, block, here, others, rows, work);
            } else if (begun) kernel<true>(c, block, T(1), rows, nullptr, work);
            else kernel<false>(c, block, T(1), rows, nullptr, work);
            begun = true;
            if (!has_diagonal(c)) continue;
            if (waiting >= 0) {
                add_diagonals<2>({waiting, c}, pair, block, of_x, of_points, rows, work);
                if (pair) pair += a.channels * 2 * kRow;
            }
            waiting = waiting >= 0 ? -1 : c;
        }
        if (waiting >= 0) add_diagonals<1>({waiting}, nullptr, block, of_x, of_points, rows, work);
        if (!potts_too) return scale_rows(block, query, rows);
        Summed summed{nullptr, T(0), -1};
        if (work.slopes) total_minus(block, others, against);
        summed = add_potts(block, query.x, potts, work.slopes ? against : nullptr, -1, work);
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> u[NV] = {}, v[NV] = {};
            if (a.unary && query.unary != T(0)) pixel.get(a.unary, block.first + q, u);
            for (int k = 0; k < NV; ++k) {
                v[k] = summed.weight * load(summed.rows + q * kRow + k * W);
                if (shifted) v[k] += diagonal[block.first + q] * load(here + q * kRow + k * W);
            }
            pixel.set_past(v, Vec<T>{});
            const T sum = Pixel::row_total(v);
            for (int k = 0; k < NV; ++k)
                v[k] = query.scale * (sum - v[k] + load(rows + q * kRow + k * W) + query.unary * u[k]);
            pixel.set_past(v, query.past);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
    }

    // rows = scale (rows + unary u), with the values past the labels.
    void scale_rows(const Block& block, const Query& query, T* rows) const {
        const T* const u = query.unary != T(0) ? a.unary : nullptr;
        const bool inside = pixel.inside(block.first + block.pixels - 1);
        for (std::int64_t q = 0; q < block.pixels; ++q, rows += kRow) {
            const T* const given = u ? u + (block.first + q) * a.channels : nullptr;
            if (u) prefetch(given + kPixels * a.channels, kRow);
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) {
                v[k] = load(rows + k * W);
                if (u) v[k] += query.unary * Pixel::vector(given, k, inside, a.channels);
                v[k] *= query.scale;
            }
            pixel.set_past(v, query.past);
            for (int k = 0; k < NV; ++k) store(rows + k * W, v[k]);
        }
    }

    // target = total(z) - z for each row z, zero past the labels.
    void total_minus(const Block& block, const T* rows, T* target) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + q * kRow + k * W);
            const T sum = Pixel::row_total(v);
            for (int k = 0; k < NV; ++k) v[k] = sum - v[k];
            pixel.set_past(v, Vec<T>{});
            for (int k = 0; k < NV; ++k) store(target + q * kRow + k * W, v[k]);
        }
    }

    // target (+)= scale K_c x, and with `other` slope_c += <other, K_c x>. Values past the labels are undefined, but
    // `other` is zero there.
    template <bool Add>
    void kernel(int c, const Block& block, T scale, T* target, const T* other, Workspace& work) const {
        Vec<T> dots{};
        if (is_grid(c)) from_grid<Add>(c, block, scale, target, other, dots, work);
        else if (corner_slopes(c)) from_corners<Add>(c, block, scale, target, other, dots, work);
        else if (lattice[c].corners == 6) from_lattice<Add, 6>(c, block, scale, target, other, dots);
        else if (lattice[c].corners == 3) from_lattice<Add, 3>(c, block, scale, target, other, dots);
        else from_lattice<Add, 0>(c, block, scale, target, other, dots);
        if (other) add_slope(c, dots, work);
    }

    void add_slope(int c, Vec<T> dots, Workspace& work) const {
        for (int l = 0; l < W; ++l) work.slopes[c * a.channels * kRow] += lane(dots, l);
    }

    template <bool Add> inline void put(const Vec<T> (&v)[NV], T scale, T* target, const T* other, Vec<T>& dots) const {
        for (int k = 0; k < NV; ++k) {
            store(target + k * W, Add ? load(target + k * W) + scale * v[k] : scale * v[k]);
            if (other) dots += load(other + k * W) * v[k];
        }
    }

    template <bool Add>
    void from_grid(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots, Workspace& work) const {
        if (!Add && scale == T(1) && !other) return read_grid(c, block, target, work);
        alignas(64) T found[kPixels * kRow];
        read_grid(c, block, found, work);
        for (std::int64_t q = 0; q < block.pixels; ++q, target += kRow) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(found + q * kRow + k * W);
            put<Add>(v, scale, target, other, dots);
            if (other) other += kRow;
        }
    }

    // K_c x of a block. The block is in one line of the grid, unless lines are single pixels.
    void read_grid(int c, const Block& block, T* target, Workspace& work) const {
        const CoarseGrid<T, NV>& f = grid[c];
        for (std::int64_t i = block.first, end = i + block.pixels; i < end;) {
            const std::int64_t line = i / f.across, first = i - line * f.across;
            const std::int64_t count = f.across - first < end - i ? f.across - first : end - i;
            f.pixels(f.line(line, work.team.thread, work.read[c]), first, count, target);
            target += count * kRow;
            i += count;
        }
    }

    template <bool Add, int C>
    void from_lattice(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots) const {
        const FilterArgs<T>& l = lattice[c];
        const T* const values = values_of(c);
        const int corners = C ? C : l.corners;
        const std::int32_t* index = l.index + block.first * corners;
        const T* weight = l.slice + block.first * corners;
        const bool far = blurred[c].far;
        for (std::int64_t p = 0; p < block.pixels; ++p, index += corners, weight += corners, target += kRow) {
            if (far) fetch(index, corners, block.first + p, values);
            Vec<T> v[NV] = {};
            for (int m = 0; m < corners; ++m) {
                const T* row = values + index[m] * kRow;
                for (int k = 0; k < NV; ++k) v[k] += weight[m] * load(row + k * W);
            }
            put<Add>(v, scale, target, other, dots);
            if (other) other += kRow;
        }
    }

    // The same, and the derivatives in the weights of the lattice.
    template <bool Add>
    void from_corners(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots,
                      const Workspace& work) const {
        const T* const points = early[c] ? point_products[c] : point_spread(work.step, c);
        const CornerSlopes<T, NV> slopes{lattice[c], values_of(c), points, corner_slopes(c)};
        if (scale == T(1) && !other) return slopes.template slice<Add>(block, work.here, work.points, target);
        alignas(64) T y[kPixels * kRow];
        slopes.template slice<false>(block, work.here, work.points, y);
        for (std::int64_t q = 0; q < block.pixels; ++q, target += kRow) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(y + q * kRow + k * W);
            put<Add>(v, scale, target, other, dots);
            if (other) other += kRow;
        }
    }

    // sums += <a_q, b_q> of the rows of a block, the ones of `some` `apart` values apart; `sums` is for all pixels.
    void add_row_products(const Block& block, const T* some, std::int64_t apart, const T* others, T* sums) const {
        for (std::int64_t q = 0; q < block.pixels; q += W) {
            const std::int64_t count = q + W < block.pixels ? W : block.pixels - q;
            Vec<T> sum[W] = {};
            for (std::int64_t r = 0; r < count; ++r)
                for (int k = 0; k < NV; ++k)
                    sum[r] += load(some + (q + r) * apart + k * W) * load(others + (q + r) * kRow + k * W);
            T* const to = sums + block.first + q;
            store_some(to, load_some<T>(to, count) + FWCRF_ISA::sums<T>(sum), count);
        }
    }

    // The entries of rows that are not 0, if they are few.
    struct Entries {
        std::uint64_t of[kPixels];
        bool few;  // so few that sparse products are faster than the ones there are
    };
    Entries entries(const Block& block, const T* rows) const {
        Entries found;
        const auto count = [&](std::int64_t apart) {
            std::int64_t all = 0, seen = 0;
            for (std::int64_t q = 0; q < block.pixels; q += apart, ++seen) {
                found.of[q] = present<T, NV>(rows + q * kRow);
                all += __builtin_popcountll(found.of[q]);
            }
            found.few = all * (pairs ? 7 : 3) < seen * a.channels;
        };
        count(8);  // most blocks show it by some of their pixels
        if (found.few) count(1);
        return found;
    }

    // The diagonals of P terms with matrices: derivatives in `shift`, and of early terms also rows += shift x M, and
    // the slopes of M. `pair` has the matrices of two terms side by side, or is null.
    template <int P>
    void add_diagonals(const int (&term)[P], const T* pair, const Block& block, const Entries& of_x,
                       const Entries& of_points, T* rows, Workspace& work) const {
        alignas(64) T memory[P * kPixels * kRow], sum[P][kMostLabels<T> * kRow];
        T* moved[P];  // a row of each term for every pixel, `apart` values apart
        const std::int64_t apart = pair ? P * kRow : kRow;
        const T *matrix[P], *shift[P];
        bool added = false, kept = !of_x.few;
        for (int p = 0; p < P; ++p) {
            const int c = term[p];
            matrix[p] = matrices + c * a.channels * kRow;
            shift[p] = early[c] ? a.term[c].shift : nullptr;
            added = added || shift[p];
            kept = kept || shift_slopes(c);
            moved[p] = memory + p * (pair ? kRow : kPixels * kRow);
            if (!of_x.few && !pair) multiply(work.here, matrix[p], block.pixels, moved[p]);
        }
        if (!of_x.few && pair) a.wide->products({work.here, pair, block.pixels, a.channels, memory});
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> product[P][NV], v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + q * kRow + k * W);
            if (of_x.few) {
                sparse_products<T, NV, P>(work.here + q * kRow, of_x.of[q], matrix, product);
                for (int p = 0; kept && p < P; ++p)
                    for (int k = 0; k < NV; ++k) store(moved[p] + q * apart + k * W, product[p][k]);
            } else {
                for (int p = 0; p < P; ++p)
                    for (int k = 0; k < NV; ++k) product[p][k] = load(moved[p] + q * apart + k * W);
            }
            for (int p = 0; p < P; ++p)
                for (int k = 0; shift[p] && k < NV; ++k) v[k] += shift[p][block.first + q] * product[p][k];
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
        for (int p = 0; p < P; ++p)
            if (shift_slopes(term[p])) add_row_products(block, moved[p], apart, work.points, shift_slopes(term[p]));
        if (!work.slopes || !added) return;
        if (of_points.few) {
            T* sums[P];
            for (int p = 0; p < P; ++p) {
                sums[p] = sum[p];
                std::memset(sum[p], 0, a.channels * kRow * sizeof(T));
            }
            for (std::int64_t q = 0; q < block.pixels; ++q) {
                Vec<T> y[NV];
                T weight[P];
                for (int k = 0; k < NV; ++k) y[k] = load_once(work.here + q * kRow + k * W);
                for (int p = 0; p < P; ++p) weight[p] = shift[p] ? shift[p][block.first + q] : T(0);
                sparse_outer<T, NV, P>(work.points + q * kRow, of_points.of[q], y, weight, sums);
            }
            for (int p = 0; p < P; ++p) {
                double* const slope = work.slopes + term[p] * a.channels * kRow;
                for (std::int64_t e = 0; e < a.channels * kRow; ++e) slope[e] += sum[p][e];
            }
            return;
        }
        double* slope[P];
        for (int p = 0; p < P; ++p) {
            slope[p] = work.slopes + term[p] * a.channels * kRow;
            for (std::int64_t q = 0; q < block.pixels; ++q) {
                const T weight = shift[p] ? shift[p][block.first + q] : T(0);
                for (int k = 0; k < NV; ++k)
                    store(moved[p] + q * apart + k * W, weight * load(work.here + q * kRow + k * W));
            }
            if (!pair && shift[p]) add_outers(block, work.points, moved[p], slope[p]);
        }
        if (pair) a.wide->outers({work.points, memory, a.channels, block.pixels, nullptr}, slope[0], slope[P - 1]);
    }

    // The slope of a Potts term += <other, shift x>.
    void add_diagonal_slope(int c, const Block& block, const T* x, const T* other, Workspace& work) const {
        Vec<T> dots{};
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            pixel.get(x, block.first + q, v);
            for (int k = 0; k < NV; ++k)
                dots += a.term[c].shift[block.first + q] * load(other + q * kRow + k * W) * v[k];
        }
        add_slope(c, dots, work);
    }

    // full += y M, and slopes += other' y, for y = (K_c + diag(shift)) x.
    void add_matrix(int c, const Block& block, const T* x, const T* other, T* full, Workspace& work) const {
        alignas(64) T y[kPixels * kRow];
        const Term<T>& term = a.term[c];
        const T* const matrix = matrices + c * a.channels * kRow;
        kernel<false>(c, block, T(1), y, nullptr, work);
        for (std::int64_t q = 0; q < block.pixels && term.shift; ++q) {
            const T shift = term.shift[block.first + q];
            for (int k = 0; k < NV; ++k)
                store(y + q * kRow + k * W, load(y + q * kRow + k * W) + shift * load(x + q * kRow + k * W));
        }
        add_products<T, NV>(y, matrix, a.channels, block.pixels, full);
        if (work.slopes) add_outers(block, other, y, work.slopes + c * a.channels * kRow);
    }

    // slope += other' y of a block.
    void add_outers(const Block& block, const T* other, const T* y, double* slope) const {
        std::int64_t s = 0;
        constexpr int kRows = kProductRows<NV>;
        for (; s + kRows <= a.channels; s += kRows) add_outer<kRows>(block, other + s, y, slope + s * kRow);
        for (; s < a.channels; ++s) add_outer<1>(block, other + s, y, slope + s * kRow);
    }

    // slope += other' y of a block, for S rows.
    template <int S> inline void add_outer(const Block& block, const T* other, const T* y, double* slope) const {
        Vec<T> sum[S][NV] = {};
        add_rows<T, NV, S>(y, block.pixels, [other](int s, std::int64_t q) { return other[q * kRow + s]; }, sum);
        alignas(64) T found[S * kRow];  // an array, whose sums become vectors of double
        for (int s = 0; s < S; ++s)
            for (int k = 0; k < NV; ++k) store(found + s * kRow + k * W, sum[s][k]);
        for (int e = 0; e < S * kRow; ++e) slope[e] += found[e];
    }
};

}  // namespace fwcrf::FWCRF_ISA
