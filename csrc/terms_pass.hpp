// The terms of a model: what all its kernels, the compatibility and the unary say about a block of pixels.
//
// x is scattered, lattices by splats and grids line by line; lattices are blurred and grids filtered; then P x + u is read
// off for any block.
#pragma once

#include "grid_pass.hpp"
#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "pixel_rows.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct Terms {
    using Pixel = PixelRows<T, NV>;
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;

    const FusedArgs<T>& a;
    const Pixel pixel;
    FilterArgs<T> lattice[kMaxTerms];
    Blurred<T> blurred[kMaxTerms];
    Filtered<T, NV> filtered[kMaxTerms];
    std::int64_t rows;        // of the image, as far as a grid knows
    std::int64_t across;      // pixels that are taken one after the other: a line of the image
    int inner = -1;           // the Potts lattice that is read while its pixel is in the registers
    bool matrices_too = false;
    T* matrices;              // (terms, channels, kRow)
    T* own;                   // (n): what Potts terms have on their diagonals, times their weights
    std::int64_t before = 0;  // pixels of a line that grids need once more, while they take those after them
    T* windows;               // (threads, before + kPixels, kRow): those and a block

    bool is_grid(int c) const { return a.term[c].grid.axes > 0; }
    bool is_potts(int c) const { return !a.term[c].matrix; }

    Terms(const FusedArgs<T>& a, Scratch& scratch)
        : a(a), pixel(a.n, a.channels), rows(a.n), across(kPixels) {
        std::int64_t sizes[kMaxTerms], total = 0;
        const auto room = [&total](std::int64_t values) {
            const std::int64_t begin = total;
            total += (values + 15) / 16 * 16;
            return begin;
        };
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) {
                sizes[c] = room(filtered[c].plan(a.term[c].grid, a.threads));
                rows = filtered[c].rows();
                if (filtered[c].last()) across = filtered[c].across;
                before = filtered[c].before() > before ? filtered[c].before() : before;
                continue;
            }
            if (is_potts(c)) inner = c;
            lattice[c] = a.term[c].lattice;
            lattice[c].n = a.n;
            lattice[c].channels = a.channels;
            lattice[c].shift = nullptr;
            lattice[c].threads = a.threads;
            sizes[c] = room(blurred[c].plan(lattice[c], kRow));
        }
        const std::int64_t of_own = room(a.n), of_windows = room(a.threads * (before + kPixels) * kRow);
        const std::int64_t of_matrices = room(a.terms * a.channels * kRow);
        T* const memory = scratch.get<T>(total);
        own = memory + of_own;
        windows = memory + of_windows;
        matrices = memory + of_matrices;
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) filtered[c].place(memory + sizes[c]);
            else blurred[c].base = memory + sizes[c];
            if (is_potts(c)) continue;
            matrices_too = true;
            T* const padded = matrices + c * a.channels * kRow;
            std::memset(padded, 0, a.channels * kRow * sizeof(T));
            for (std::int64_t s = 0; s < a.channels; ++s)
                std::memcpy(padded + s * kRow, a.term[c].matrix + s * a.channels, a.channels * sizeof(T));
        }
    }

    // A thread's pixels: whole rows of the image, where a grid knows of them.
    Range pixels(Team team) const {
        const Range mine = share(rows, team.thread, team.threads);
        return {mine.begin * (a.n / rows), mine.end * (a.n / rows)};
    }

    // Blocks do not reach over the end of a line.
    template <typename F> void for_blocks(Range range, F&& act) const {
        for (std::int64_t i = range.begin; i < range.end;) {
            const std::int64_t line = (i / across + 1) * across, end = line < range.end ? line : range.end;
            const Block block{i, end - i < kPixels ? end - i : kPixels};
            act(block);
            i += block.pixels;
        }
    }

    // What a thread works with.
    struct Bench {
        Team team;
        T* block;              // (kPixels, kRow), after those before it
        double* slopes;        // (terms, channels, kRow) or null
        T* splats[kMaxTerms];  // lattices to splat into, or null
        T all;                 // the most that the labels of a pixel got together
        Vec<T> last;           // the most that a label of the last vector got, times its part of the pixel
        bool careful;          // softmax looks for the largest entries first
        // Of each grid.
        typename Filtered<T, NV>::Read read[kMaxTerms];
        typename Filtered<T, NV>::Taken taken[kMaxTerms];
    };
    Bench bench(Team team, double* slopes) const {
        T* const block = windows + (team.thread * (before + kPixels) + before) * kRow;
        Bench made{team, block, slopes, {}, T(0), Vec<T>{}, false, {}, {}};
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) made.taken[c] = filtered[c].nothing(team);
        return made;
    }

    // Whether every thread can splat what it answers.
    bool carries() const {
        for (int c = 0; c < a.terms; ++c)
            if (!is_grid(c) && blurred[c].splatters < a.threads) return false;
        return true;
    }
    // The lattices that a thread splats its answers into.
    void clear(Bench& bench) const {
        for (int c = 0; c < a.terms; ++c)
            if (!is_grid(c)) bench.splats[c] = blurred[c].cleared(bench.team);
    }

    // A block to all grids; it is in `bench.block`.
    void take(const Block& block, Bench& bench) const {
        const std::int64_t end = block.first + block.pixels;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_grid(c)) continue;
            const T* at = bench.block;
            for (std::int64_t i = block.first; i < end; i += across_of(c), at += across_of(c) * kRow)
                filtered[c].take(at, {i, i + across_of(c) < end ? i + across_of(c) : end}, bench.taken[c]);
        }
        std::memmove(bench.block - before * kRow, bench.block + (block.pixels - before) * kRow, before * kRow * sizeof(T));
    }
    // The most pixels that a grid takes at a time: it has lines of them, or of one.
    std::int64_t across_of(int c) const { return filtered[c].last() ? kPixels : 1; }
    // When all threads have let the grids take their lines.
    void complete(Bench& bench) const {
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) filtered[c].complete(bench.taken[c]);
    }

    // What does not depend on x.
    void prepare(Team team) const {
        const Range mine = pixels(team);
        for (std::int64_t i = mine.begin; i < mine.end; ++i) own[i] = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c) || !a.term[c].shift) continue;
            const T potts = a.term[c].potts, *const shift = a.term[c].shift;
            T* const to = own;
            for (std::int64_t i = mine.begin; i < mine.end; ++i) to[i] += potts * shift[i];
        }
        if (!a.shared || !a.shared->factor) return;
        for (std::int64_t i = mine.begin; i < mine.end; ++i) own[i] *= a.shared->factor[i];
    }

    // A thread's part of x to all kernels. False if a value was not finite.
    bool scatter(const T* x, Team team, Barrier& barrier) const {
        Bench bench = this->bench(team, nullptr);
        if (carries()) clear(bench);
        Vec<T> nothing[NV] = {};
        for_blocks(pixels(team), [&](const Block& block) {
            get(x, block, bench.block, nothing);
            for (int c = 0; c < a.terms; ++c)
                if (bench.splats[c]) splat(c, block, bench.block, bench.splats[c]);
            take(block, bench);
        });
        for (int c = 0; c < a.terms && !carries(); ++c)
            if (!is_grid(c)) splat_all(c, x, team);
        barrier.wait(team.threads);
        complete(bench);
        return Pixel::total(nothing) == T(0);
    }
    // Pixels of x, times a factor where that is left to do. `nothing` stays so as long as they are finite.
    void get(const T* x, const Block& block, T* rows, Vec<T> (&nothing)[NV]) const {
        const T* const factor = a.shared ? a.shared->factor : nullptr;
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            ahead(x + (block.first + q + kPixels) * a.channels, kRow);
            pixel.get(x, block.first + q, v);
            const T times = factor ? factor[block.first + q] : T(1);
            for (int k = 0; k < NV; ++k) {
                v[k] *= times;
                nothing[k] += v[k] * T(0);
                store(rows + q * kRow + k * W, v[k]);
            }
        }
    }

    // Every kernel applied to what was scattered, but for the way back to pixels.
    void filter(Team team) {
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) filtered[c].filter(team);
            else blurred[c].blur(lattice[c], team);
    }

    // A thread's share of x, of as many threads as have a lattice of their own.
    void splat_all(int c, const T* x, Team team) const {
        T* const values = blurred[c].cleared(team);
        if (!values) return;
        alignas(64) T rows[kPixels * kRow];
        Vec<T> unused[NV] = {};
        const Range mine = share(a.n, team.thread, blurred[c].active(team.threads));
        for (std::int64_t i = mine.begin; i < mine.end; i += kPixels) {
            const Block block{i, mine.end - i < kPixels ? mine.end - i : kPixels};
            get(x, block, rows, unused);
            splat(c, block, rows, values);
        }
    }
    void splat(int c, const Block& block, const T* rows, T* values) const {
        switch (lattice[c].corners) {
        case 6: return splat<6>(c, block, rows, values);
        case 3: return splat<3>(c, block, rows, values);
        default: return splat<0>(c, block, rows, values);
        }
    }
    template <int C> void splat(int c, const Block& block, const T* rows, T* values) const {
        const int corners = C ? C : lattice[c].corners;
        const std::int32_t* index = lattice[c].index + block.first * corners;
        const T* weight = lattice[c].splat + block.first * corners;
        const T* const end = rows + block.pixels * kRow;
        for (; rows < end; rows += kRow, index += corners, weight += corners) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + k * W);
            for (int m = 0; m < corners; ++m) add_row<T, NV>(values + index[m] * kRow, weight[m], v);
        }
    }

    // What is asked for: scale (P x + unary u).
    struct Ask {
        const T* x;
        T scale, unary;
        bool total;    // what all labels get alike counts too
        bool noted;    // Reach::last too
        bool level;    // the labels of each pixel of x add up to nothing
        Vec<T> past;   // what comes past the labels
    };

    // rows = scale x
    void scaled(const Block& block, const Ask& ask, T* rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const T* const x = ask.x + (block.first + q) * a.channels;
            Vec<T> v[NV];
            ahead(x + kPixels * a.channels, kRow);
            for (int k = 0; k + 1 < NV; ++k) v[k] = ask.scale * load(x + k * W);
            v[NV - 1] = pixel.within(ask.scale * Pixel::last(x, pixel.inside(block.first + q), a.channels), ask.past);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        }
    }

    // rows = what is asked for; `given`, if it is noted, what kernels gave to the labels of the last vector. With
    // slopes, these += <other, K x> of each term.
    void gradient(const Block& block, const Ask& ask, const T* other, Bench& bench, T* rows, T* given) const {
        matrices_too ? with_matrices(block, ask, other, bench, rows) : of_potts(block, ask, other, bench, rows, given);
    }

  private:
    // A part of P x, (pixels of a block, row), but for a weight.
    struct Sum {
        const T* rows;
        T weight;
        int term;  // that it is of, or -1 for several
    };

    void of_potts(const Block& block, const Ask& ask, const T* others, Bench& bench, T* rows, T* given) const {
        alignas(64) T sum[kPixels * kRow], against[kPixels * kRow];
        // What all labels get alike is nothing where they give nothing together.
        // Slopes of two terms are found along with the rest, those of more one by one.
        const int slice = bench.slopes && a.terms > 2 ? -1 : inner;
        const T* const other = !bench.slopes ? nullptr : ask.level && slice >= 0 ? others : against;
        if (other == against) against_the_others(block, others, against);
        const Sum before = add_potts(block, ask.x, sum, slice < 0 ? other : nullptr, slice, bench);
        const bool inside = pixel.inside(block.first + block.pixels - 1);
        if (slice < 0) combine<0, false, false>(block, ask, before, slice, other, bench, rows, given);
        else if (lattice[slice].corners != 6)
            combine<0, false, true>(block, ask, before, slice, other, bench, rows, given);
        else if (other) combine<6, false, true>(block, ask, before, slice, other, bench, rows, given);
        else if (ask.total || !inside) combine<6, false, false>(block, ask, before, slice, other, bench, rows, given);
        else combine<6, true, false>(block, ask, before, slice, other, bench, rows, given);
    }

    // Given the terms that are summed up already, and one that is not. Simple: all labels may be read as whole vectors,
    // and their total is not asked for. Sloped: slopes += <other, K x> of both.
    template <int C, bool Simple, bool Sloped>
    void combine(const Block& block, const Ask& ask, Sum before, int slice, const T* other, Bench& bench, T* rows,
                 T* given) const {
        const T scale = ask.scale, of_sum = -scale * before.weight, of_unary = scale * ask.unary;
        const T of_slice = slice < 0 ? T(0) : -scale * a.term[slice].potts;
        const FilterArgs<T>* const l = slice < 0 ? nullptr : &lattice[slice];
        const int corners = C ? C : l ? l->corners : 0;
        const std::int32_t* index = l ? l->index + block.first * corners : nullptr;
        const T* weight = l ? l->slice + block.first * corners : nullptr;
        const T* const values = l ? blurred[slice].result() : nullptr;
        const std::int64_t channels = a.channels;
        const T* x = ask.x + block.first * channels;
        const T* u = of_unary != T(0) && a.unary ? a.unary + block.first * channels : nullptr;
        const T *y = before.rows, *self = own + block.first;
        const bool total = !Simple && ask.total, noted = ask.noted, plain = a.plain;
        const Vec<T> mask = pixel.mask, past = ask.past;
        T most = 0;
        Vec<T> of_sliced{}, of_summed{}, of_shift[2] = {};
        const T *const one = a.term[0].shift, *const two = a.terms > 1 ? a.term[1].shift : nullptr;
        for (std::int64_t q = 0; q < block.pixels; ++q, index += corners, weight += corners) {
            const bool inside = Simple || pixel.inside(block.first + q);
            Vec<T> v[NV] = {};
            for (int m = 0; m < corners; ++m) {
                const T* const row = values + index[m] * kRow;
                for (int k = 0; k < NV; ++k) v[k] += weight[m] * load(row + k * W);
            }
            if (Sloped && other) {
                Vec<T> of_diagonal{};
                for (int k = 0; k < NV; ++k) {
                    const Vec<T> z = load(other + q * kRow + k * W);
                    of_sliced += z * v[k];
                    of_summed += z * load(y + k * W);
                    of_diagonal += z * (k + 1 < NV ? load(x + k * W) : Pixel::last(x, inside, channels));
                }
                if (one) of_shift[0] += one[block.first + q] * of_diagonal;
                if (two) of_shift[1] += two[block.first + q] * of_diagonal;
            }
            // The next block's, which the processor does not see coming: what is read between two blocks is elsewhere.
            ahead(x + kPixels * channels, kRow);
            if (u) ahead(u + kPixels * channels, kRow);
            if (C) ahead(index + kPixels * C, C), ahead(weight + kPixels * C, C);
            const T shift = -scale * self[q];
            for (int k = 0; k < NV; ++k) {
                const Vec<T> here = k + 1 < NV ? load(x + k * W) : Pixel::last(x, inside, channels);
                v[k] = of_slice * v[k] + of_sum * load(y + k * W) + shift * here;
            }
            if (noted) store(given + q * W, v[NV - 1] * (T(-1) / scale));
            if (total) {
                // What lies past the labels need not be finite.
                v[NV - 1] = mask != T(0) ? v[NV - 1] : Vec<T>{};
                const T whole = Pixel::total(v);
                most = whole / -scale > most ? whole / -scale : most;
                for (int k = 0; k < NV; ++k) v[k] -= whole;
            }
            if (plain)
                for (int k = 0; k < NV; ++k) v[k] = -v[k];
            if (u) {
                for (int k = 0; k < NV; ++k)
                    v[k] += of_unary * (k + 1 < NV ? load(u + k * W) : Pixel::last(u, inside, channels));
                u += channels;
            }
            v[NV - 1] = mask != T(0) ? v[NV - 1] : past;
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
            x += channels;
            y += kRow;
        }
        bench.all = most > bench.all ? most : bench.all;
        if (!Sloped || !other) return;
        const T sign = ask.level ? T(-1) : T(1);
        add_slope(slice, sign * of_sliced, bench);
        if (before.term >= 0) add_slope(before.term, sign * of_summed, bench);
        for (int c = 0; c < a.terms; ++c) add_slope(c, sign * of_shift[c], bench);
    }

    // The Potts terms but for one of them, and for their diagonals; with `other` slopes too, those of diagonals as well.
    Sum add_potts(const Block& block, const T* x, T* sum, const T* other, int but, Bench& bench) const {
        int count = 0, only = -1;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c)) continue;
            if (other && a.term[c].shift) add_diagonal_slope(c, block, x, other, bench);
            if (c == but) continue;
            ++count;
            only = c;
        }
        if (count == 1 && !other) {
            kernel<false>(only, block, T(1), sum, nullptr, bench);
            return {sum, a.term[only].potts, only};
        }
        bool begun = false;
        for (int c = 0; c < a.terms; ++c) {
            if (!is_potts(c) || c == but) continue;
            begun ? kernel<true>(c, block, a.term[c].potts, sum, other, bench)
                  : kernel<false>(c, block, a.term[c].potts, sum, other, bench);
            begun = true;
        }
        if (!begun) std::memset(sum, 0, block.pixels * kRow * sizeof(T));
        return {sum, T(1), -1};
    }

    void with_matrices(const Block& block, const Ask& ask, const T* others, Bench& bench, T* rows) const {
        alignas(64) T here[kPixels * kRow], against[kPixels * kRow], potts[kPixels * kRow];
        pixel.get(ask.x, block, here);
        std::memset(rows, 0, block.pixels * kRow * sizeof(T));
        for (int c = 0; c < a.terms; ++c)
            if (!is_potts(c)) add_matrix(c, block, here, others, rows, bench);
        if (bench.slopes) against_the_others(block, others, against);
        const Sum before = add_potts(block, ask.x, potts, bench.slopes ? against : nullptr, -1, bench);
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> u[NV] = {}, v[NV];
            if (a.unary && ask.unary != T(0)) pixel.get(a.unary, block.first + q, u);
            for (int k = 0; k < NV; ++k)
                v[k] = before.weight * load(before.rows + q * kRow + k * W) +
                       own[block.first + q] * load(here + q * kRow + k * W);
            v[NV - 1] = pixel.within(v[NV - 1], Vec<T>{});
            const T sum = Pixel::total(v);
            for (int k = 0; k < NV; ++k) {
                T* const at = rows + q * kRow + k * W;
                v[k] = ask.scale * (sum - v[k] + load(at) + ask.unary * u[k]);
                store(at, k + 1 < NV ? v[k] : pixel.within(v[k], ask.past));
            }
        }
    }

    // From z to sum(z) - z: what the labels other than each one get.
    void against_the_others(const Block& block, const T* rows, T* target) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + q * kRow + k * W);
            const T sum = Pixel::total(v);
            for (int k = 0; k < NV; ++k) v[k] = sum - v[k];
            v[NV - 1] = pixel.within(v[NV - 1], Vec<T>{});
            for (int k = 0; k < NV; ++k) store(target + q * kRow + k * W, v[k]);
        }
    }

    // target (+)= scale K_c x, and with `other` the slope of the term += <other, K_c x>. What lies past the labels is not
    // defined, except for `other`, which is zero there.
    template <bool Add>
    void kernel(int c, const Block& block, T scale, T* target, const T* other, Bench& bench) const {
        Vec<T> dots{};
        if (is_grid(c)) from_grid<Add>(c, block, scale, target, other, dots, bench);
        else if (lattice[c].corners == 6) from_lattice<Add, 6>(c, block, scale, target, other, dots);
        else if (lattice[c].corners == 3) from_lattice<Add, 3>(c, block, scale, target, other, dots);
        else from_lattice<Add, 0>(c, block, scale, target, other, dots);
        if (other) add_slope(c, dots, bench);
    }

    void add_slope(int c, Vec<T> dots, Bench& bench) const {
        for (int l = 0; l < W; ++l) bench.slopes[c * a.channels * kRow] += dots[l];
    }

    template <bool Add>
    inline void put(const Vec<T> (&v)[NV], T scale, T* target, const T* other, Vec<T>& dots) const {
        for (int k = 0; k < NV; ++k) {
            store(target + k * W, Add ? load(target + k * W) + scale * v[k] : scale * v[k]);
            if (other) dots += load(other + k * W) * v[k];
        }
    }

    template <bool Add>
    void from_grid(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots, Bench& bench) const {
        if (!Add && scale == T(1) && !other) return read_grid(c, block, target, bench);
        alignas(64) T found[kPixels * kRow];
        read_grid(c, block, found, bench);
        for (std::int64_t q = 0; q < block.pixels; ++q, target += kRow) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(found + q * kRow + k * W);
            put<Add>(v, scale, target, other, dots);
            if (other) other += kRow;
        }
    }

    // K_c x of a block, which is in one line of a grid unless lines are single pixels.
    void read_grid(int c, const Block& block, T* target, Bench& bench) const {
        const Filtered<T, NV>& f = filtered[c];
        for (std::int64_t i = block.first, end = i + block.pixels; i < end;) {
            const std::int64_t line = i / f.across, first = i - line * f.across;
            const std::int64_t count = f.across - first < end - i ? f.across - first : end - i;
            f.pixels(f.line(line, bench.team.thread, bench.read[c]), first, count, target);
            target += count * kRow;
            i += count;
        }
    }

    template <bool Add, int C>
    void from_lattice(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots) const {
        const FilterArgs<T>& l = lattice[c];
        const T* const values = blurred[c].result();
        const int corners = C ? C : l.corners;
        const std::int32_t* index = l.index + block.first * corners;
        const T* weight = l.slice + block.first * corners;
        for (std::int64_t p = 0; p < block.pixels; ++p, index += corners, weight += corners, target += kRow) {
            Vec<T> v[NV] = {};
            for (int m = 0; m < corners; ++m) {
                const T* row = values + index[m] * kRow;
                for (int k = 0; k < NV; ++k) v[k] += weight[m] * load(row + k * W);
            }
            put<Add>(v, scale, target, other, dots);
            if (other) other += kRow;
        }
    }

    // The slope of a Potts term += <other, shift x>.
    void add_diagonal_slope(int c, const Block& block, const T* x, const T* other, Bench& bench) const {
        Vec<T> dots{};
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            pixel.get(x, block.first + q, v);
            for (int k = 0; k < NV; ++k)
                dots += a.term[c].shift[block.first + q] * load(other + q * kRow + k * W) * v[k];
        }
        add_slope(c, dots, bench);
    }

    // full += y M, and slopes += other' y, for y = (K_c + diag(shift)) x.
    void add_matrix(int c, const Block& block, const T* x, const T* other, T* full, Bench& bench) const {
        alignas(64) T y[kPixels * kRow];
        const Term<T>& term = a.term[c];
        const T* const matrix = matrices + c * a.channels * kRow;
        kernel<false>(c, block, T(1), y, nullptr, bench);
        for (std::int64_t q = 0; q < block.pixels && term.shift; ++q) {
            const T shift = term.shift[block.first + q];
            for (int k = 0; k < NV; ++k)
                store(y + q * kRow + k * W, load(y + q * kRow + k * W) + shift * load(x + q * kRow + k * W));
        }
        std::int64_t q = 0;
        for (; q + kRows <= block.pixels; q += kRows) add_product<kRows>(y + q * kRow, matrix, full + q * kRow);
        for (; q < block.pixels; ++q) add_product<1>(y + q * kRow, matrix, full + q * kRow);
        if (!bench.slopes) return;
        double* const slope = bench.slopes + c * a.channels * kRow;
        std::int64_t s = 0;
        for (; s + kRows <= a.channels; s += kRows) add_outer<kRows>(block, other + s, y, slope + s * kRow);
        for (; s < a.channels; ++s) add_outer<1>(block, other + s, y, slope + s * kRow);
    }

    // Rows of a product that are found together: as many as the registers hold, for each thing read from memory is then
    // used so many times.
    static constexpr int kRows = 9 / NV;

    // sum_r += the sum over i of factor(r, i) times row i.
    template <int R, typename F>
    static inline void add_rows(const T* rows, std::int64_t count, F&& factor, Vec<T> (&sum)[R][NV]) {
        for (std::int64_t i = 0; i < count; ++i) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load_once(rows + i * kRow + k * W);
            for (int r = 0; r < R; ++r)
                for (int k = 0; k < NV; ++k) sum[r][k] += factor(r, i) * v[k];
        }
    }

    // target += y M, so many rows.
    template <int Q> inline void add_product(const T* y, const T* matrix, T* target) const {
        Vec<T> sum[Q][NV];
        for (int q = 0; q < Q; ++q)
            for (int k = 0; k < NV; ++k) sum[q][k] = load(target + q * kRow + k * W);
        add_rows<Q>(matrix, a.channels, [y](int q, std::int64_t s) { return y[q * kRow + s]; }, sum);
        for (int q = 0; q < Q; ++q)
            for (int k = 0; k < NV; ++k) store(target + q * kRow + k * W, sum[q][k]);
    }

    // slope += other' y of a block, so many rows of it.
    template <int S> inline void add_outer(const Block& block, const T* other, const T* y, double* slope) const {
        Vec<T> sum[S][NV] = {};
        add_rows<S>(y, block.pixels, [other](int s, std::int64_t q) { return other[q * kRow + s]; }, sum);
        for (int s = 0; s < S; ++s)
            for (int k = 0; k < NV; ++k)
                for (int l = 0; l < W; ++l) slope[s * kRow + k * W + l] += sum[s][k][l];
    }
};

}  // namespace fwcrf::FWCRF_ISA
