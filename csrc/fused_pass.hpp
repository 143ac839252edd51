// P x + u, the oracle and the next splat of a block of pixels at a time: the last pass of a step, and what comes before it.
#pragma once

#include "grid_pass.hpp"
#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

constexpr std::int64_t kPixels = 64;  // per block of the last pass

// As many rows as a vector has lanes, each of `length` values, of which so many are labels.
template <typename T>
static inline void map_rows(Map map, const T* p, T* rows, std::int64_t length, std::int64_t labels, T* block) {
    switch (map) {
    case Map::softmax: return Softmax<T>::apply(rows, nullptr, rows, length, T(1), block);
    case Map::project: return Project<T>::apply(rows, nullptr, rows, length, T(1), block);
    case Map::softmax_derivative: return SoftmaxDerivative<T>::apply(rows, p, rows, length, T(1), block);
    case Map::project_derivative: return ProjectDerivative<T>::apply(rows, p, rows, length, T(1), block);
    case Map::vertex:
        for (int r = 0; r < kLanes<T>; ++r) {
            T* const row = rows + r * length;
            std::int64_t best = 0;
            for (std::int64_t s = 1; s < labels; ++s) best = row[s] > row[best] ? s : best;
            std::memset(row, 0, length * sizeof(T));
            row[best] = T(1);
        }
        return;
    case Map::none: return;
    }
}

// A part of P x, (pixels of a block, row), but for a weight.
template <typename T> struct Sum {
    const T* rows;
    T weight;
    int term;  // that it is of, or -1 for several
};

template <typename T, int NV> struct Fused {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = NV * W;

    const FusedArgs<T>& a;
    // Of the step at hand.
    const T* x;
    const T* other = nullptr;
    T* out = nullptr;
    T* sum = nullptr;
    Move<T> move{Map::none, T(1), T(0), T(1), T(1), T(0), Dual::none};
    bool carry = false;  // splat the answer
    bool noted = false;  // what all labels of a pixel get
    T scale;             // of what is answered
    Vec<T> nowhere;      // what it is past the labels

    FilterArgs<T> lattice[kMaxTerms];
    Blurred<T> blurred[kMaxTerms];
    Filtered<T> filtered[kMaxTerms];
    Vec<T> mask;            // 1 for the labels in the last vector of a row, 0 past them
    std::int64_t overhang;  // pixels that a whole vector at the end of a row may touch
    std::int64_t across;    // pixels in a line of the image, as far as a grid knows
    int inner = -1;         // the lattice that is read while its pixel is in the registers
    bool matrices_too = false;
    T* matrices = nullptr;  // (terms, channels, kRow)

    using LatticePass = Pass<T, NV, 0, 1>;
    LatticePass pass(int c) const { return LatticePass{lattice[c], 0, a.channels, 1}; }

    Fused(const FusedArgs<T>& a, Scratch& scratch) : a(a), x(a.x), overhang(1 + kRow / a.channels), across(a.n) {
        std::int64_t sizes[kMaxTerms], total = a.terms * a.channels * kRow;
        for (int c = 0; c < a.terms; ++c) {
            const Term<T>& term = a.term[c];
            if (term.grid.axes) {
                sizes[c] = filtered[c].plan(term.grid, a.channels, kRow, a.threads);
                if (term.grid.axes > 1) across = term.grid.up[term.grid.axes - 1].rows;
            } else {
                if (!term.matrix) inner = c;
                lattice[c] = term.lattice;
                lattice[c].n = a.n;
                lattice[c].channels = a.channels;
                lattice[c].shift = nullptr;
                lattice[c].threads = a.threads;
                sizes[c] = blurred[c].plan(lattice[c], kRow);
            }
            sizes[c] = (sizes[c] + 15) / 16 * 16;
            total += sizes[c];
        }
        T* memory = scratch.get<T>(total);
        matrices = memory;
        memory += a.terms * a.channels * kRow;
        for (int c = 0; c < a.terms; ++c) {
            if (a.term[c].grid.axes) filtered[c].place(memory);
            else blurred[c].base = memory;
            memory += sizes[c];
            if (!a.term[c].matrix) continue;
            matrices_too = true;
            T* padded = matrices + c * a.channels * kRow;
            std::memset(padded, 0, a.channels * kRow * sizeof(T));
            for (std::int64_t s = 0; s < a.channels; ++s)
                std::memcpy(padded + s * kRow, a.term[c].matrix + s * a.channels, a.channels * sizeof(T));
        }
        for (int l = 0; l < W; ++l) mask[l] = (NV - 1) * W + l < a.channels ? T(1) : T(0);
    }

    // Whether every thread can splat what it answers.
    bool carries() const {
        for (int c = 0; c < a.terms; ++c)
            if (!a.term[c].grid.axes && blurred[c].splatters < a.threads) return false;
        return true;
    }

    void begin(int step) {
        if (step) x = out;
        out = a.out[step];
        other = a.other ? a.other[step] : nullptr;
        move = a.move[step];
        const bool last = step + 1 == a.steps;
        sum = last ? nullptr : a.sum;
        carry = !last && carries();
        noted = a.reach && step < 2;  // after the first step they have all of a pixel, and get the same ever after
        scale = move.map == Map::none ? T(1) : move.scale;
        nowhere = Vec<T>{} + (move.map == Map::none || derivative() ? T(0) : -static_cast<T>(__builtin_inf()));
    }

    // False if a value was not finite. With `splatted`, the step before has done that part.
    bool fill(Team team, bool splatted) {
        bool finite = true;
        for (int c = 0; c < a.terms; ++c) {
            if (a.term[c].grid.axes) {
                finite &= filtered[c].fill(x, team);
            } else {
                if (!splatted) splat_all(c, team);
                finite &= blurred[c].blur(pass(c), team);
            }
        }
        return finite;
    }

    static inline T total(const Vec<T> (&v)[NV]) {
        Vec<T> sum = v[0];
        for (int k = 1; k < NV; ++k) sum += v[k];
        T t = 0;
        for (int l = 0; l < W; ++l) t += sum[l];
        return t;
    }

    // The last vector of a row, zero past the labels: what lies there need not be finite.
    inline Vec<T> within(Vec<T> v) const { return mask != T(0) ? v : Vec<T>{}; }

    // The labels of pixel i, zero past them.
    inline void labels(const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        const T* row = array + i * a.channels;
        for (int k = 0; k + 1 < NV; ++k) v[k] = load(row + k * W);
        if (i + overhang < a.n) v[NV - 1] = within(load(row + (NV - 1) * W));
        else v[NV - 1] = load_part(row + (NV - 1) * W, a.channels - (NV - 1) * W);
    }

    struct Block {
        std::int64_t first, pixels;
    };

    // What a thread works with while it answers.
    struct Bench {
        int thread;
        double* slopes;        // (terms, channels, kRow) or null
        T* splats[kMaxTerms];  // lattices to splat into, or null
        T all;                 // the most that the labels of a pixel got together
        Vec<T> last;           // the most that a label of the last vector got, times its part of the pixel
        struct Line {
            const T* values;
            std::int64_t begin, end;  // pixels
        } line[kMaxTerms];     // the row of each grid that was read last
    };

    // A block on its way through a step.
    struct Rows {
        alignas(64) T rows[kPixels * kRow];  // what the map is taken of, and then its answer but for a factor
        alignas(64) T tops[kPixels * W];     // of each pixel, one vector that has the largest entry of its row
        alignas(64) T given[kPixels * W];    // by the kernels to the labels of the last vector
        alignas(64) T factor[kPixels];       // of the answer
    };

    // A thread's share of the pixels.
    Reach<T> answer(Team team, double* slopes) const {
        Bench bench{team.thread, slopes, {}, T(0), Vec<T>{}, {}};
        for (int c = 0; carry && c < a.terms; ++c)
            if (!a.term[c].grid.axes) bench.splats[c] = blurred[c].cleared(team);
        const Range mine = share(a.n, team.thread, team.threads);
        for (std::int64_t i = mine.begin; i < mine.end;) {
            const std::int64_t line = (i / across + 1) * across, end = line < mine.end ? line : mine.end;
            const Block block{i, end - i < kPixels ? end - i : kPixels};
            answer(block, bench);
            i += block.pixels;
        }
        Reach<T> reach;
        reach.raise(bench.all, bench.last[(a.channels - 1) % W]);
        return reach;
    }

    void answer(const Block& block, Bench& bench) const {
        Rows at;
        alignas(64) T others[kPixels * kRow];
        if (other) read(other, block, others);
        matrices_too ? gradient_all(block, others, bench, at.rows) : gradient_potts(block, others, bench, at);
        for (T& value : at.factor) value = T(1);
        if (move.map != Map::none) go(block, others, at);
        if (a.reach && !matrices_too) note_last(block, at, bench);
        if (sum) accumulate(block, at.rows);
        finish(block, at, bench);
    }

    void note_last(const Block& block, const Rows& at, Bench& bench) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const Vec<T> part = at.factor[q] * load(at.rows + q * kRow + (NV - 1) * W);
            bench.last = larger<T>(load(at.given + q * W) * part, bench.last);
        }
    }

    // Write the answer, and splat it.
    void finish(const Block& block, Rows& at, Bench& bench) const {
        int first = -1;  // a lattice that takes the rows while they are in the registers
        for (int c = a.terms - 1; c >= 0; --c)
            if (bench.splats[c] && lattice[c].corners == 6) first = c;
        if (first >= 0) finish<6>(block, at, first, bench.splats[first]);
        else finish<0>(block, at, 0, nullptr);
        for (int c = 0; c < a.terms; ++c)
            if (bench.splats[c] && c != first)
                lattice[c].corners == 6 ? splat<6>(c, block, at.rows, bench.splats[c])
                                        : splat<0>(c, block, at.rows, bench.splats[c]);
    }

    template <int C> void finish(const Block& block, Rows& at, int c, T* values) const {
        const std::int64_t channels = a.channels;
        const std::int32_t* index = C ? lattice[c].index + block.first * C : nullptr;
        const T* weight = C ? lattice[c].splat + block.first * C : nullptr;
        T *row = at.rows, *to = out + block.first * channels;
        // Whole vectors may be written past a row that another one of this block follows.
        const std::int64_t whole = block.pixels - overhang;
        for (std::int64_t q = 0; q < block.pixels; ++q, row += kRow, to += channels, index += C, weight += C) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) {
                v[k] = at.factor[q] * load(row + k * W);
                store(row + k * W, v[k]);
            }
            if (q < whole) {
                for (int k = 0; k < NV; ++k) store(to + k * W, v[k]);
            } else {
                put_row(to, row, channels);
            }
            for (int m = 0; m < C; ++m) {
                T* const there = values + index[m] * kRow;
                const T w = weight[m];
                for (int k = 0; k < NV; ++k) store(there + k * W, load(there + k * W) + w * v[k]);
            }
        }
    }

    template <typename F> inline void for_pixels(const Block& block, F&& act) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) act(block.first + q, q);
    }

    // The labels of pixel i, from a row that may have more. Nothing past them is touched: other threads, and other
    // blocks of this one, still read there.
    inline void write(T* array, std::int64_t i, const T* row) const { put_row(array + i * a.channels, row, a.channels); }
    static inline void put_row(T* to, const T* row, std::int64_t channels) {
        for (int k = 0; k + 1 < NV; ++k) store(to + k * W, load(row + k * W));
        if (channels >= W) store(to + channels - W, load(row + channels - W));
        else store_part(to, load(row), channels);
    }

    void accumulate(const Block& block, const T* rows) const {
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            alignas(64) T row[kRow];
            Vec<T> v[NV];
            labels(sum, i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k] + load(rows + q * kRow + k * W));
            write(sum, i, row);
        });
    }

    // A thread's share of x.
    void splat_all(int c, Team team) const {
        T* const values = blurred[c].cleared(team);
        if (!values) return;
        alignas(64) T rows[kPixels * kRow];
        const Range mine = share(a.n, team.thread, blurred[c].active(team.threads));
        for (std::int64_t i = mine.begin; i < mine.end; i += kPixels) {
            const Block block{i, mine.end - i < kPixels ? mine.end - i : kPixels};
            read(x, block, rows);
            lattice[c].corners == 6 ? splat<6>(c, block, rows, values) : splat<0>(c, block, rows, values);
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
            for (int m = 0; m < corners; ++m) {
                T* const to = values + index[m] * kRow;
                const T w = weight[m];
                for (int k = 0; k < NV; ++k) store(to + k * W, load(to + k * W) + w * v[k]);
            }
        }
    }

    bool derivative() const { return move.map == Map::softmax_derivative || move.map == Map::project_derivative; }

    // From P x + u to what the map is taken of, where that is more than `scale` times it.
    void lean(const Block& block, T* rows) const {
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            T* const row = rows + q * kRow;
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(row + k * W);
            if (move.keep != T(0)) add(move.keep, x, i, v);
            if (move.lean != T(0)) add(move.lean, a.dual, i, v);
            v[NV - 1] = mask != T(0) ? v[NV - 1] : nowhere;
            if (move.dual == Dual::logits) keep_logits(i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k]);
        });
    }

    // From there to where the step ends; zero past the labels.
    void go(const Block& block, const T* others, Rows& at) const {
        const std::int64_t count = block.pixels, whole = (count + W - 1) / W * W;
        T* const rows = at.rows;
        const bool leaning = move.keep != T(0) || move.lean != T(0) || move.dual == Dual::logits;
        const bool straight = move.step == T(1) && move.dual == Dual::none && !sum;
        if (leaning) lean(block, rows);
        for (std::int64_t i = count * kRow; i < whole * kRow; ++i) rows[i] = 0;
        if (move.map == Map::softmax && !leaning && !matrices_too) {
            for (std::int64_t i = count * W; i < whole * W; ++i) at.tops[i] = 0;
            for (std::int64_t q = 0; q < whole; q += W) exponentials(at, q);
            if (!straight)
                for (std::int64_t q = 0; q < count; ++q) {
                    for (int k = 0; k < NV; ++k)
                        store(rows + q * kRow + k * W, at.factor[q] * load(rows + q * kRow + k * W));
                    at.factor[q] = T(1);
                }
        } else {
            for (std::int64_t q = 0; q < whole; q += W) map(others + q * kRow, rows + q * kRow);
        }
        if (move.dual == Dual::multipliers) add_multipliers(block, rows);
        if (derivative() || move.step == T(1)) return;
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            Vec<T> here[NV];
            labels(x, i, here);
            for (int k = 0; k < NV; ++k) {
                T* const at = rows + q * kRow + k * W;
                store(at, here[k] + move.step * (load(at) - here[k]));
            }
        });
    }

    // The same with a lane per pixel, which takes no longer than there are labels; these fit into one vector.
    void exponentials_of_few(Rows& at, std::int64_t first) const {
        Vec<T> v[W], sum{};
        for (int r = 0; r < W; ++r) v[r] = load(at.rows + (first + r) * kRow);
        transpose<T>(v);
        const int labels = static_cast<int>(a.channels);
        Vec<T> top = v[0];
        for (int s = 1; s < labels; ++s) top = larger<T>(v[s], top);
        for (int s = 0; s < W; ++s) {
            v[s] = s < labels ? exp<T>(v[s] - top) : Vec<T>{};
            sum += v[s];
        }
        transpose<T>(v);
        for (int r = 0; r < W; ++r) store(at.rows + (first + r) * kRow, v[r]);
        store(at.factor + first, T(1) / sum);
    }

    // Softmax of as many rows as a vector has lanes, but for the factor that makes their sums 1.
    void exponentials(Rows& at, std::int64_t first) const {
        if constexpr (NV == 1) return exponentials_of_few(at, first);
        Vec<T> v[W];
        for (int r = 0; r < W; ++r) v[r] = load(at.tops + (first + r) * W);
        transpose<T>(v);
        for (int c = 1; c < W; ++c) v[0] = larger<T>(v[0], v[c]);
        alignas(64) T tops[W];
        store(tops, v[0]);
        for (int r = 0; r < W; ++r) {
            T* const row = at.rows + (first + r) * kRow;
            Vec<T> e[NV];
            for (int k = 0; k < NV; ++k) {
                e[k] = exp<T>(load(row + k * W) - tops[r]);
                store(row + k * W, e[k]);
            }
            for (int k = 1; k < NV; ++k) e[0] += e[k];
            v[r] = e[0];
        }
        store(at.factor + first, T(1) / sums<T>(v));
    }

    inline void add(T weight, const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        Vec<T> there[NV];
        labels(array, i, there);
        for (int k = 0; k < NV; ++k) v[k] += weight * there[k];
    }

    // w = v less its largest entry, whose exponentials have the same ratios.
    void keep_logits(std::int64_t i, const Vec<T> (&v)[NV]) const {
        alignas(64) T row[kRow];
        Vec<T> most = v[0];
        for (int k = 1; k < NV; ++k) most = larger<T>(v[k], most);
        T top = most[0];
        for (int l = 1; l < W; ++l) top = most[l] > top ? most[l] : top;
        for (int k = 0; k < NV; ++k) store(row + k * W, v[k] - top);
        write(a.dual, i, row);
    }

    // w += x - p
    void add_multipliers(const Block& block, const T* rows) const {
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            alignas(64) T row[kRow];
            Vec<T> v[NV];
            labels(a.dual, i, v);
            add(T(1), x, i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k] - load(rows + q * kRow + k * W));
            write(a.dual, i, row);
        });
    }

    void map(const T* p, T* rows) const {
        alignas(64) T block[kRow * W];
        map_rows(move.map, p, rows, kRow, a.channels, block);
    }

    // Where every term is Potts.
    void gradient_potts(const Block& block, const T* others, Bench& bench, Rows& at) const {
        alignas(64) T sum[kPixels * kRow], against[kPixels * kRow], own[kPixels] = {};
        const T* const other = bench.slopes ? against : nullptr;
        if (other) against_the_others(block, others, against);
        // Slopes of two terms are found along with the rest, those of more one by one.
        const int slice = other && a.terms > 2 ? -1 : inner;
        const Sum<T> before = add_potts(block, sum, own, slice < 0 ? other : nullptr, slice, bench);
        const bool inside = block.first + block.pixels + overhang <= a.n;
        // What all labels get alike does not change where a map leads to.
        const bool total = (move.map == Map::none && !a.plain) || noted;
        if (slice < 0) combine<0, false, false>(block, before, slice, own, total, other, bench, at);
        else if (lattice[slice].corners != 6)
            combine<0, false, true>(block, before, slice, own, total, other, bench, at);
        else if (other) combine<6, false, true>(block, before, slice, own, total, other, bench, at);
        else if (total || !inside) combine<6, false, false>(block, before, slice, own, total, other, bench, at);
        else combine<6, true, false>(block, before, slice, own, false, other, bench, at);
    }

    static inline void ahead(const T* row) {
        constexpr int line = 64 / sizeof(T);
        for (int at = 0; at < kRow; at += line) __builtin_prefetch(row + at);
    }

    // rows = scale (P x + u), given the terms that are summed up already, and one that is not; and, Sloped, slopes +=
    // <other, K x> of both. Plain: all labels may be read as whole vectors, and their total is not asked for.
    template <int C, bool Plain, bool Sloped>
    void combine(const Block& block, Sum<T> before, int slice, const T* own, bool total_too, const T* other,
                 Bench& bench, Rows& at) const {
        const T factor = scale, of_sum = -factor * before.weight, of_unary = factor * move.unary;
        const T of_slice = slice < 0 ? T(0) : -factor * a.term[slice].potts;
        const FilterArgs<T>* const l = slice < 0 ? nullptr : &lattice[slice];
        const int corners = C ? C : l ? l->corners : 0;
        const std::int32_t* index = l ? l->index + block.first * corners : nullptr;
        const T* weight = l ? l->slice + block.first * corners : nullptr;
        const T* const values = l ? blurred[slice].result(*l) : nullptr;
        const std::int64_t channels = a.channels;
        const T* x = this->x + block.first * channels;
        const T* u = of_unary != T(0) && a.unary ? a.unary + block.first * channels : nullptr;
        const T *y = before.rows, *self = own;
        const Vec<T> last = mask, past = nowhere;
        const bool keeping = a.reach;
        constexpr int e = (NV - 1) * W;
        T most = 0;
        Vec<T> of_sliced{}, of_summed{}, of_shift[2] = {};
        for (std::int64_t q = 0; q < block.pixels; ++q, index += corners, weight += corners) {
            const bool inside = Plain || block.first + q + overhang < a.n;
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
                    of_diagonal += z * (k + 1 < NV || inside ? load(x + k * W) : load_part(x + e, channels - e));
                }
                for (int c = 0; c < a.terms; ++c)
                    if (a.term[c].shift) of_shift[c] += a.term[c].shift[block.first + q] * of_diagonal;
            }
            // The next block's, which the processor does not see coming: what is read between two blocks is elsewhere.
            ahead(x + kPixels * channels);
            if (u) ahead(u + kPixels * channels);
            const T shift = -factor * self[q];
            for (int k = 0; k < NV; ++k) {
                const Vec<T> here = k + 1 < NV || inside ? load(x + k * W) : load_part(x + e, channels - e);
                v[k] = of_slice * v[k] + of_sum * load(y + k * W) + shift * here;
            }
            if (keeping) store(at.given + q * W, v[NV - 1] * (T(-1) / factor));
            if (!Plain && total_too) {
                // What lies past the labels need not be finite.
                v[NV - 1] = last != T(0) ? v[NV - 1] : Vec<T>{};
                const T whole = total(v);
                most = whole / -factor > most ? whole / -factor : most;
                for (int k = 0; k < NV; ++k) v[k] -= whole;
            }
            if (a.plain)
                for (int k = 0; k < NV; ++k) v[k] = -v[k];
            if (u) {
                for (int k = 0; k < NV; ++k)
                    v[k] += of_unary * (k + 1 < NV || inside ? load(u + k * W) : load_part(u + e, channels - e));
                u += channels;
            }
            v[NV - 1] = last != T(0) ? v[NV - 1] : past;
            if constexpr (NV > 1) {
                Vec<T> top = v[0];
                for (int k = 1; k < NV; ++k) top = larger<T>(v[k], top);
                store(at.tops + q * W, top);
            }
            for (int k = 0; k < NV; ++k) store(at.rows + q * kRow + k * W, v[k]);
            x += channels;
            y += kRow;
        }
        bench.all = most > bench.all ? most : bench.all;
        if (!Sloped || !other) return;
        add_slope(slice, of_sliced, bench);
        if (before.term >= 0) add_slope(before.term, of_summed, bench);
        for (int c = 0; c < a.terms; ++c) add_slope(c, of_shift[c], bench);
    }

    // The Potts terms but for one of them and for their diagonals, which go into `own`; in `sum`, or where the only one
    // of them is found.
    Sum<T> add_potts(const Block& block, T* sum, T* own, const T* other, int but, Bench& bench) const {
        alignas(64) T here[kPixels * kRow];
        if (other) read(x, block, here);
        int count = 0, only = -1;
        for (int c = 0; c < a.terms; ++c) {
            if (a.term[c].matrix) continue;
            if (a.term[c].shift) add_shift(c, block, here, own, other, bench);
            if (c == but) continue;
            ++count;
            only = c;
        }
        if (count == 1 && !other) {
            if (!a.term[only].grid.axes) kernel<false>(only, block, T(1), sum, nullptr, bench);
            else
                for (std::int64_t q = 0; q < block.pixels;)
                    q += read_grid(only, block.first + q, block.pixels - q, sum + q * kRow, bench);
            return {sum, a.term[only].potts, only};
        }
        bool begun = false;
        for (int c = 0; c < a.terms; ++c) {
            if (a.term[c].matrix || c == but) continue;
            begun ? kernel<true>(c, block, a.term[c].potts, sum, other, bench)
                  : kernel<false>(c, block, a.term[c].potts, sum, other, bench);
            begun = true;
        }
        if (!begun) std::memset(sum, 0, block.pixels * kRow * sizeof(T));
        return {sum, T(1), -1};
    }

    void gradient_all(const Block& block, const T* others, Bench& bench, T* rows) const {
        alignas(64) T here[kPixels * kRow], against[kPixels * kRow], potts[kPixels * kRow];
        T own[kPixels] = {};
        read(x, block, here);
        std::memset(rows, 0, block.pixels * kRow * sizeof(T));
        for (int c = 0; c < a.terms; ++c)
            if (a.term[c].matrix) add_matrix(c, block, here, others, rows, bench);
        if (bench.slopes) against_the_others(block, others, against);
        const Sum<T> before = add_potts(block, potts, own, bench.slopes ? against : nullptr, -1, bench);
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            Vec<T> u[NV] = {}, v[NV];
            if (a.unary && move.unary != T(0)) labels(a.unary, i, u);
            for (int k = 0; k < NV; ++k)
                v[k] = before.weight * load(before.rows + q * kRow + k * W) + own[q] * load(here + q * kRow + k * W);
            v[NV - 1] = within(v[NV - 1]);
            const T sum = total(v);
            for (int k = 0; k < NV; ++k) {
                T* const at = rows + q * kRow + k * W;
                v[k] = scale * (sum - v[k] + load(at) + move.unary * u[k]);
                store(at, k + 1 < NV ? v[k] : mask != T(0) ? v[k] : nowhere);
            }
        });
    }

    void read(const T* array, const Block& block, T* __restrict rows) const {
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            Vec<T> v[NV];
            labels(array, i, v);
            for (int k = 0; k < NV; ++k) store(rows + q * kRow + k * W, v[k]);
        });
    }

    // From z to sum(z) - z: what the labels other than each one get.
    void against_the_others(const Block& block, const T* rows, T* target) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(rows + q * kRow + k * W);
            const T sum = total(v);
            for (int k = 0; k < NV; ++k) v[k] = sum - v[k];
            v[NV - 1] = within(v[NV - 1]);
            for (int k = 0; k < NV; ++k) store(target + q * kRow + k * W, v[k]);
        }
    }

    // target (+)= scale K_c x, and with `other` the slope of the term += <other, K_c x>. What lies past the labels is not defined, except
    // for `other`, which is zero there.
    template <bool Add>
    void kernel(int c, const Block& block, T scale, T* target, const T* other, Bench& bench) const {
        Vec<T> dots{};
        if (a.term[c].grid.axes) from_grid<Add>(c, block, scale, target, other, dots, bench);
        else if (lattice[c].corners == 6) from_lattice<Add, 6>(c, block, scale, target, other, dots);
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

    // Of grid c, the row that pixel i is in.
    const typename Bench::Line& line_of(int c, std::int64_t i, Bench& bench) const {
        auto& line = bench.line[c];
        if (i >= line.end) {
            const Filtered<T>& f = filtered[c];
            const std::int64_t row = i / f.across;
            line = {f.row(row, bench.thread), row * f.across, (row + 1) * f.across};
        }
        return line;
    }

    template <bool Add>
    void from_grid(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots, Bench& bench) const {
        const std::int64_t end = block.first + block.pixels;
        alignas(64) T found[kPixels * kRow];
        for (std::int64_t i = block.first; i < end;) {
            const std::int64_t count = read_grid(c, i, end - i, found, bench);
            const T* from = found;
            for (const std::int64_t stop = i + count; i < stop; ++i, from += kRow, target += kRow) {
                Vec<T> v[NV];
                for (int k = 0; k < NV; ++k) v[k] = load(from + k * W);
                put<Add>(v, scale, target, other, dots);
                if (other) other += kRow;
            }
        }
    }

    // K_c x of at most so many pixels from i on, those in one line of the grid.
    std::int64_t read_grid(int c, std::int64_t i, std::int64_t most, T* target, Bench& bench) const {
        const auto& line = line_of(c, i, bench);
        const std::int64_t left = filtered[c].along(i - line.begin), count = left < most ? left : most;
        filtered[c].pixels(line.values, i - line.begin, count, target);
        return count;
    }

    template <bool Add, int C>
    void from_lattice(int c, const Block& block, T scale, T* target, const T* other, Vec<T>& dots) const {
        const FilterArgs<T>& l = lattice[c];
        const T* const values = blurred[c].result(l);
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

    // The diagonal of a Potts term: own += potts shift, and slope += <other, shift x>.
    void add_shift(int c, const Block& block, const T* x, T* own, const T* other, Bench& bench) const {
        const Term<T>& term = a.term[c];
        Vec<T> dots{};
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            const T shift = term.shift[i];
            own[q] += term.potts * shift;
            if (!other) return;
            for (int k = 0; k < NV; ++k)
                dots += shift * load(other + q * kRow + k * W) * load(x + q * kRow + k * W);
        });
        if (other) add_slope(c, dots, bench);
    }

    // full += y M, and slopes += other' y, for y = (K_c + diag(shift)) x.
    void add_matrix(int c, const Block& block, const T* x, const T* other, T* full, Bench& bench) const {
        alignas(64) T y[kPixels * kRow];
        const Term<T>& term = a.term[c];
        const T* const matrix = matrices + c * a.channels * kRow;
        kernel<false>(c, block, T(1), y, nullptr, bench);
        for_pixels(block, [&](std::int64_t i, std::int64_t q) {
            T* const row = y + q * kRow;
            if (term.shift) {
                const T shift = term.shift[i];
                for (int k = 0; k < NV; ++k)
                    store(row + k * W, load(row + k * W) + shift * load(x + q * kRow + k * W));
            }
            Vec<T> sum[NV];
            for (int k = 0; k < NV; ++k) sum[k] = load(full + q * kRow + k * W);
            for (std::int64_t s = 0; s < a.channels; ++s)
                for (int k = 0; k < NV; ++k) sum[k] += row[s] * load(matrix + s * kRow + k * W);
            for (int k = 0; k < NV; ++k) store(full + q * kRow + k * W, sum[k]);
        });
        if (!bench.slopes) return;
        double* const slope = bench.slopes + c * a.channels * kRow;
        for (std::int64_t s = 0; s < a.channels; ++s) {
            Vec<T> sum[NV] = {};
            for (std::int64_t q = 0; q < block.pixels; ++q)
                for (int k = 0; k < NV; ++k) sum[k] += other[q * kRow + s] * load(y + q * kRow + k * W);
            for (int k = 0; k < NV; ++k)
                for (int l = 0; l < W; ++l) slope[s * kRow + k * W + l] += sum[k][l];
        }
    }
};

// What one of several threads has found.
template <typename T> static void note(const FusedArgs<T>& a, const Reach<T>& found) {
    if (!a.reach) return;
#ifdef _OPENMP
#pragma omp critical
#endif
    a.reach->raise(found.all, found.last);
}

}  // namespace fwcrf::FWCRF_ISA
