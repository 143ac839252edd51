// Steps of a solver, a block of pixels at a time: P x + u, the oracle, and what the next step needs of the answer.
#pragma once

#include "kernels.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "terms_pass.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// As many rows as a vector has lanes, each of `length` values, of which so many are labels.
template <typename T>
static inline void map_rows(Map map, T* rows, std::int64_t length, std::int64_t labels, T* block) {
    switch (map) {
    case Map::softmax: return Softmax<T>::apply(rows, nullptr, rows, length, T(1), block);
    case Map::project: return Project<T>::apply(rows, rows, length, labels, T(1), block);
    case Map::vertex:
        for (int r = 0; r < kLanes<T>; ++r) {
            T* const row = rows + r * length;
            std::int64_t best = 0;
            for (std::int64_t s = 1; s < labels; ++s) best = row[s] > row[best] ? s : best;
            std::memset(row, 0, length * sizeof(T));
            row[best] = T(1);
        }
        return;
    default: return;
    }
}

// A thread's way through the steps.
template <typename T, int NV> struct Fused {
    using Kernels = Terms<T, NV>;
    using Pixel = typename Kernels::Pixel;
    using Bench = typename Kernels::Bench;
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;

    const FusedArgs<T>& a;
    const Kernels& terms;
    const Pixel& pixel;
    // Of the step at hand.
    const T* x = nullptr;
    const T* other = nullptr;
    T* out = nullptr;
    T* sum = nullptr;
    Move<T> move{Map::none, T(1), T(0), T(1), T(1), T(0), Dual::none};
    bool carry = false;  // the answer to the kernels
    bool noted = false;  // what all labels of a pixel get
    bool alone = false;  // without the kernels
    bool level = false;  // the labels of a pixel of x add up to nothing

    Fused(const FusedArgs<T>& a, const Kernels& terms) : a(a), terms(terms), pixel(terms.pixel) {}

    // Where the step before has ended.
    const T* end() const { return out ? out : a.x; }

    void begin(int step) {
        x = end();
        out = a.out[step];
        other = a.other ? a.other[step] : nullptr;
        level = derivative();
        move = a.move[step];
        const bool last = step + 1 == a.steps;
        sum = derivative() ? a.sum : nullptr;
        carry = !last && terms.carries();
        noted = a.reach && step < 2;  // after the first step they have all of a pixel, and get the same ever after
        alone = false;
    }

    void begin(const Before<T>& before) {
        x = a.x;
        out = before.out;
        other = before.other;
        move = Move<T>{before.map, before.scale, T(0), T(1), T(0), T(0), Dual::none};
        sum = derivative() ? a.sum : nullptr;
        carry = a.steps > 0 && terms.carries();
        alone = true;
    }

    bool derivative() const { return move.map == Map::softmax_derivative || move.map == Map::project_derivative; }
    bool leaning() const { return move.keep != T(0) || move.lean != T(0) || move.dual == Dual::logits; }
    // Whether softmax is taken without a look at the largest entries, and of logarithms to the base of Power.
    bool quickly(const Bench& bench) const {
        return move.map == Map::softmax && !leaning() && !bench.careful;
    }

    // A thread's share of the pixels.
    Reach<T> answer(Team team, double* slopes, Barrier& barrier) const {
        Bench bench = terms.bench(team, slopes);
        if (carry) terms.clear(bench);
        terms.for_blocks(terms.pixels(team), [&](const Block& block) { answer(block, bench); });
        barrier.wait(team.threads);
        if (carry) terms.complete(bench);
        Reach<T> reach;
        reach.raise(bench.all, bench.last[(a.channels - 1) % W]);
        return reach;
    }

    // A block on its way through a step.
    struct Rows {
        alignas(64) T rows[kPixels * kRow];    // what the map is taken of, and then its answer but for a factor
        alignas(64) T given[kPixels * W];      // by the kernels to the labels of the last vector
        alignas(64) T factor[kPixels];         // of the answer
        alignas(64) T others[kPixels * kRow];  // where derivatives are taken
    };

    void answer(const Block& block, Bench& bench) const {
        Rows at;
        if (other) pixel.get(other, block, at.others);
        do {
            if (alone) terms.scaled(block, asked(bench), at.rows);
            else terms.gradient(block, asked(bench), at.others, bench, at.rows, at.given);
            for (T& value : at.factor) value = T(1);
        } while (move.map != Map::none && !go(block, at, bench));
        if (a.reach && !alone && !terms.matrices_too) note_last(block, at, bench);
        finish(block, at, bench);
        if (carry) terms.take(block, bench);
    }

    typename Kernels::Ask asked(const Bench& bench) const {
        const bool plain = move.map == Map::none;
        const T scale = plain ? T(1) : quickly(bench) ? move.scale * Power<T>::per_e : move.scale;
        const T past = plain || derivative() ? T(0) : -static_cast<T>(__builtin_inf());
        // What all labels get alike does not change where a map leads to.
        return {x, scale, move.unary, (plain && !a.plain) || noted, a.reach != nullptr, level, fill(past)};
    }

    void note_last(const Block& block, const Rows& at, Bench& bench) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const Vec<T> part = at.factor[q] * load(at.rows + q * kRow + Pixel::kLast);
            bench.last = larger<T>(load(at.given + q * W) * part, bench.last);
        }
    }

    // Write the answer, to `bench.block` too, and splat it.
    void finish(const Block& block, const Rows& at, const Bench& bench) const {
        switch (move.map) {
        case Map::softmax_derivative: return finish<Map::softmax_derivative>(block, at, bench);
        case Map::project_derivative: return finish<Map::project_derivative>(block, at, bench);
        default: return finish<Map::none>(block, at, bench);
        }
    }
    template <Map M> void finish(const Block& block, const Rows& at, const Bench& bench) const {
        int first = -1;  // a lattice that takes the rows while they are in the registers
        for (int c = a.terms - 1; c >= 0; --c)
            if (bench.splats[c] && terms.lattice[c].corners == 6) first = c;
        if (first >= 0) finish<M, 6>(block, at, bench.block, first, bench.splats[first]);
        else finish<M, 0>(block, at, bench.block, 0, nullptr);
        for (int c = 0; c < a.terms; ++c)
            if (bench.splats[c] && c != first) terms.splat(c, block, bench.block, bench.splats[c]);
    }

    template <Map M, int C> void finish(const Block& block, const Rows& at, T* copy, int c, T* values) const {
        const std::int64_t channels = a.channels;
        const std::int32_t* index = C ? terms.lattice[c].index + block.first * C : nullptr;
        const T* weight = C ? terms.lattice[c].splat + block.first * C : nullptr;
        const T *row = at.rows, *p = at.others;
        T* to = out ? out + block.first * channels : nullptr;
        T* all = M == Map::none || !sum ? nullptr : sum + block.first * channels;
        // Whole vectors may be written past a row that another one of this block follows.
        const std::int64_t whole = block.pixels - pixel.overhang;
        for (std::int64_t q = 0; q < block.pixels; ++q, row += kRow, p += kRow, copy += kRow, index += C, weight += C) {
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) {
                v[k] = ended<M>(load(row + k * W), at.factor[q], p + k * W);
                store(copy + k * W, v[k]);
            }
            if (M != Map::none && all) {
                add_to(all, q < whole, alone, v);
                all += channels;
            }
            if (M == Map::none || to) {
                // It has left the first-level cache since it was read, and stores wait for one another.
                for (int e = 0; e < kRow; e += 64 / static_cast<int>(sizeof(T)))
                    __builtin_prefetch(to + 8 * channels + e, 1, 3);
                write(to, q < whole, v);
                to += channels;
            }
            for (int m = 0; m < C; ++m) add_row<T, NV>(values + index[m] * kRow, weight[m], v);
        }
    }

    // From a vector of a row, and what was found for the row, to where the step ends.
    template <Map M> static inline Vec<T> ended(Vec<T> v, T found, const T* p) {
        if (M == Map::softmax_derivative) return load(p) * (v - found);
        if (M == Map::project_derivative) return load(p) > T(0) ? v - found : Vec<T>{};
        return found * v;
    }

    // Rows are zero past the labels.
    inline void write(T* to, bool whole, const Vec<T> (&v)[NV]) const {
        if (whole) {
            for (int k = 0; k < NV; ++k) store(to + k * W, v[k]);
            return;
        }
        alignas(64) T row[kRow];
        for (int k = 0; k < NV; ++k) store(row + k * W, v[k]);
        Pixel::put(to, row, a.channels);
    }
    inline void add_to(T* all, bool whole, bool fresh, const Vec<T> (&v)[NV]) const {
        if (fresh) return write(all, whole, v);
        ahead(all + kPixels * a.channels, kRow);
        Vec<T> added[NV];
        for (int k = 0; k + 1 < NV; ++k) added[k] = load(all + k * W) + v[k];
        added[NV - 1] = Pixel::last(all, whole, a.channels) + v[NV - 1];
        write(all, whole, added);
    }

    // From what the map is taken of to where the step ends; zero past the labels. False if that needs more care, and has to
    // begin anew.
    bool go(const Block& block, Rows& at, Bench& bench) const {
        const std::int64_t count = block.pixels, whole = (count + W - 1) / W * W;
        T* const rows = at.rows;
        if (leaning()) lean(block, rows);
        for (std::int64_t i = count * kRow; i < whole * kRow; ++i) rows[i] = 0;
        if (quickly(bench)) {
            for (std::int64_t q = 0; q < whole; q += W)
                if (!exponentials(block, at, q)) {
                    bench.careful = true;
                    return false;
                }
            if (move.step != T(1) || move.dual != Dual::none) divide(block, at);
        } else if (derivative()) {
            for (std::int64_t q = 0; q < whole; q += W) derive(at, q);
            return true;
        } else {
            for (std::int64_t q = 0; q < whole; q += W) map(rows + q * kRow);
        }
        if (move.dual == Dual::multipliers) add_multipliers(block, rows);
        if (move.step != T(1)) step_towards(block, rows);
        return true;
    }

    void divide(const Block& block, Rows& at) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            for (int k = 0; k < NV; ++k)
                store(at.rows + q * kRow + k * W, at.factor[q] * load(at.rows + q * kRow + k * W));
            at.factor[q] = T(1);
        }
    }

    void step_towards(const Block& block, T* rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            Vec<T> here[NV];
            pixel.get(x, block.first + q, here);
            for (int k = 0; k < NV; ++k) {
                T* const at = rows + q * kRow + k * W;
                store(at, here[k] + move.step * (load(at) - here[k]));
            }
        }
    }

    // Softmax of as many rows as a vector has lanes, but for the factor that makes their sums 1. False if a row is too
    // far from zero.
    bool exponentials(const Block& block, Rows& at, std::int64_t first) const {
        if constexpr (NV == 1)
            if (!a.shared) return exponentials_of_few(at, first);
        Vec<T> sum[W];
        for (int r = 0; r < W; ++r) {
            T* const row = at.rows + (first + r) * kRow;
            Vec<T> e[NV];
            for (int k = 0; k < NV; ++k) {
                e[k] = power<T>(load(row + k * W));
                store(row + k * W, e[k]);
            }
            for (int k = 1; k < NV; ++k) e[0] += e[k];
            sum[r] = e[0];
        }
        const Vec<T> whole = sums<T>(sum);
        if (a.shared) {
            T* const all = a.shared->sum + block.first + first;
            const std::int64_t left = block.pixels - first;
            store_some(all, load_some(all, left) + whole, left);
            return true;
        }
        store(at.factor + first, T(1) / whole);
        return !any(~((whole > Power<T>::least) & (whole < Power<T>::most)));
    }

    // The same with a lane per pixel, which takes no longer than there are labels; these fit into one vector.
    bool exponentials_of_few(Rows& at, std::int64_t first) const {
        Vec<T> v[W], sum{};
        for (int r = 0; r < W; ++r) v[r] = load(at.rows + (first + r) * kRow);
        transpose<T>(v);
        const int labels = static_cast<int>(a.channels);
        Vec<T> top = v[0];
        for (int s = 1; s < labels; ++s) top = larger<T>(v[s], top);
        for (int s = 0; s < W; ++s) {
            v[s] = s < labels ? power<T>(v[s] - top) : Vec<T>{};
            sum += v[s];
        }
        transpose<T>(v);
        for (int r = 0; r < W; ++r) store(at.rows + (first + r) * kRow, v[r]);
        store(at.factor + first, T(1) / sum);
        return true;
    }

    void map(T* rows) const {
        alignas(64) T block[kRow * W];
        map_rows(move.map, rows, kRow, a.channels, block);
    }

    // What the derivative of the map takes from as many rows as a vector has lanes: the mean of those with a part of p.
    void derive(Rows& at, std::int64_t first) const {
        const T *const p = at.others + first * kRow, *const rows = at.rows + first * kRow;
        if (move.map == Map::softmax_derivative) {
            Vec<T> sum[W];
            for (int r = 0; r < W; ++r) {
                sum[r] = load(p + r * kRow) * load(rows + r * kRow);
                for (int k = 1; k < NV; ++k) sum[r] += load(p + r * kRow + k * W) * load(rows + r * kRow + k * W);
            }
            return store(at.factor + first, sums<T>(sum));
        }
        Vec<T> sum[W], count[W];
        for (int r = 0; r < W; ++r) {
            sum[r] = count[r] = Vec<T>{};
            for (int k = 0; k < NV; ++k) {
                const auto support = load(p + r * kRow + k * W) > T(0);
                sum[r] += support ? load(rows + r * kRow + k * W) : Vec<T>{};
                count[r] += support ? fill(T(1)) : Vec<T>{};
            }
        }
        store(at.factor + first, sums<T>(sum) / sums<T>(count));
    }

    // From P x + u to what the map is taken of, where that is more than a multiple of it.
    void lean(const Block& block, T* rows) const {
        const Vec<T> nowhere = fill(derivative() ? T(0) : -static_cast<T>(__builtin_inf()));
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const std::int64_t i = block.first + q;
            T* const row = rows + q * kRow;
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(row + k * W);
            if (move.keep != T(0)) add(move.keep, x, i, v);
            if (move.lean != T(0)) add(move.lean, a.dual, i, v);
            v[NV - 1] = pixel.within(v[NV - 1], nowhere);
            if (move.dual == Dual::logits) keep_logits(i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k]);
        }
    }

    inline void add(T weight, const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        Vec<T> there[NV];
        pixel.get(array, i, there);
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
        pixel.put(a.dual, i, row);
    }

    // w += x - p
    void add_multipliers(const Block& block, const T* rows) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const std::int64_t i = block.first + q;
            alignas(64) T row[kRow];
            Vec<T> v[NV];
            pixel.get(a.dual, i, v);
            add(T(1), x, i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k] - load(rows + q * kRow + k * W));
            pixel.put(a.dual, i, row);
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
