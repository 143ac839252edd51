// The steps back through a run of projections, when few pixels have a derivative.
//
// The derivative of a projection to p gives v less its mean over the support of p, and 0 outside of it: 0 for all
// labels of a pixel where p is a vertex. With d_k = step J_k scale P d_{k+1} of step k, such pixels of d_k are 0 and
// stay so whatever P d_{k+1} is, which is therefore not read there. The other pixels are scattered alone. The last
// step back, to the start of the run, is a whole step.
//
// Slopes of symmetric kernels K = S B S' need no pixel: <x, K d> = <B S' x, S' d>, with the spread x that the run has
// kept, on lattices and coarse grids; and <x, shift d> is added up where d is not 0.
#pragma once

#include "steps/few_pixels.hpp"
#include "steps/step.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct Vanishing {
    using Pixel = PixelRows<T, NV>;
    using Workspace = typename Terms<T, NV>::Workspace;
    using Rows = typename Step<T, NV>::Rows;
    using Bits = std::uint32_t;  // of a block: one for each vector of pixels
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;
    static_assert(kPixels / W <= 32, "a bit for each vector");

    const StepArgs<T>& a;
    Terms<T, NV>& terms;
    FewPixels<T, NV> few;
    const bool possible;  // false if whole steps have to be taken, or are faster
    Bits* moving;         // (slots): where d is not 0, see FewPixels::slot
    std::int64_t* read;   // (threads): pixels of the last step

    Vanishing(const StepArgs<T>& a, Terms<T, NV>& terms, Scratch& scratch)
        : a(a), terms(terms), few(a, terms), possible(plan()) {
        if (!possible) return;
        Parts parts;
        layout(parts);
        parts.base = scratch.get<char>(parts.bytes);
        parts.bytes = 0;
        layout(parts);
        few.begin();
    }

    // Takes all steps, with the start. Every thread of a region calls this, with its slopes or null.
    void run(Step<T, NV>& step, Team team, double* slopes, Barrier& barrier, Stop& stop) {
        State state{team, {}, {}, {}, few.rows(team), slopes};
        step.begin(*a.start);
        take(step, state, stop);
        for (int k = 0; k < a.steps; ++k) {
            step.begin(k);
            if (team.thread == 0) stop.asked(0);
            barrier.wait(team.threads);
            if (stop.stopped()) return;  // all threads alike: the next change comes after the next barrier
            for (int t = 0; t < team.threads && k && team.thread == 0 && a.reads; ++t)
                a.reads[k - 1] = read[t] + (t ? a.reads[k - 1] : 0);
            for (int c = 0; c < a.terms; ++c) {
                if (!terms.is_grid(c)) {
                    terms.blurred[c].blur(terms.lattice[c], team, false);
                    continue;
                }
                few.grid[c].clear(team, k == 0);
                few.grid[c].filter(team, barrier);
            }
            barrier.wait(team.threads);
            if (slopes) {
                add_slopes(k, state);
                barrier.wait(team.threads);  // the next splat clears the lattices that slopes read
            }
            if (k + 1 < a.steps) take(step, state, stop);
            else step.run(team, nullptr, barrier, stop);
        }
    }

  private:
    static constexpr std::int64_t kApart = 32;  // one block in so many is a sample
    static constexpr T kMostMoving = T(0.4);    // of the samples; with more, whole steps are as fast

    // Of a thread.
    struct State {
        Team team;
        Workspace work;
        typename FewPixels<T, NV>::Lines taking;
        Rows at;
        T* d;  // of a part of a block, see FewPixels::rows
        double* slopes;
    };

    bool plan() {
        if (!a.start || a.start->map != Map::project_derivative || !a.other || !terms.carries() || terms.matrices_too ||
            a.shared || a.plain || a.goal || a.point || a.dual || a.rates || a.bound || a.tables || a.spreads)
            return false;
        for (int k = 0; k < a.steps; ++k) {
            const Update<T>& m = a.update[k];
            if (m.keep != T(0) || m.lean != T(0)) return false;
            // Only the last result is left in the array of d.
            if (k + 1 < a.steps && (m.map != Map::project_derivative || a.out[k] != a.start->out)) return false;
            for (int c = 0; c < a.terms && a.slopes; ++c)
                if (!has_spread(a.term[c], a.n) || !terms.point_spread(k, c)) return false;
        }
        return few.plan() && few_move();
    }
    void layout(Parts& parts) {
        few.layout(parts);
        parts.take(moving, few.slots());
        parts.take(read, a.threads);
    }
    // True if few vectors of pixels have a derivative in the start and in all steps but the last, by samples.
    bool few_move() const {
        std::int64_t parts = 0, found = 0;
        for (int k = -1; k + 1 < a.steps; ++k) {
            const T* const p = k < 0 ? a.start->other : a.other[k];
            for (std::int64_t i = kApart / 2 * kPixels; i < a.n; i += kApart * kPixels) {
                const Block block{i, a.n - i < kPixels ? a.n - i : kPixels};
                parts += (block.pixels + W - 1) / W;
                found += __builtin_popcount(between_vertices(p, block));
            }
        }
        return parts > 0 && static_cast<T>(found) * few.dear <= kMostMoving * static_cast<T>(parts);
    }

    // The vectors of pixels of a block that have an entry other than 0 and 1. `p` has rows of sum 1.
    Bits between_vertices(const T* p, const Block& block) const {
        Bits found = 0;
        for (std::int64_t q = 0; q < block.pixels; q += W) {
            const std::int64_t count = block.pixels - q < W ? block.pixels - q : W, all = count * a.channels;
            const T* const at = p + (block.first + q) * a.channels;
            Mask<T> inner{};
            std::int64_t e = 0;
            for (; e + W <= all; e += W) {
                const Vec<T> v = load(at + e);
                inner |= ~((v == T(0)) | (v == T(1)));
            }
            if (e < all) {
                const Vec<T> v = load_some(at + e, all - e);
                inner |= ~((v == T(0)) | (v == T(1)));
            }
            if (any(inner)) found |= Bits{1} << q / W;
        }
        return found;
    }
    // Calls act(part) for each run of vectors of a block.
    template <typename F> static void for_parts(Bits some, const Block& block, F&& act) {
        while (some) {
            const int begin = __builtin_ctz(some);
            int end = begin;
            while (end < 32 && some >> end & 1) some &= ~(Bits{1} << end++);
            const std::int64_t first = begin * W, stop = end * W < block.pixels ? end * W : block.pixels;
            act(Block{block.first + first, stop - first});
        }
    }

    // The derivatives of a step, or of the start, at all pixels that have any.
    void take(const Step<T, NV>& step, State& state, Stop& stop) const {
        state.work = terms.workspace(state.team, nullptr);
        terms.clear(state.work);
        std::int64_t number = 0, count = 0;
        terms.for_blocks(terms.pixels(state.team), [&](const Block& block) {
            if (stop.asked(++number)) return;
            Bits& some = moving[few.slot(block, state.team)];
            const Bits now = between_vertices(step.other, block);
            if (step.alone) {
                zero(step.out, block);
                if (step.sum) zero(step.sum, block);
            } else {
                for_parts(some & ~now, block, [&](const Block& part) { zero(step.out, part); });
            }
            some = now;
            for_parts(now, block, [&](const Block& part) {
                derive(step, part, state);
                count += part.pixels;
            });
        });
        read[state.team.thread] = count;
    }
    void zero(T* array, const Block& block) const {
        std::memset(array + block.first * a.channels, 0, block.pixels * a.channels * sizeof(T));
    }
    void derive(const Step<T, NV>& step, const Block& part, State& state) const {
        Rows& at = state.at;
        terms.pixel.get(step.other, part, at.others);
        const auto query = step.query(state.work);
        if (step.alone) terms.scaled(part, query, at.rows);
        else terms.gradient(part, query, nullptr, state.work, at.rows, at.given);
        for (std::int64_t q = 0; q < part.pixels; q += W) step.derive(at, q);
        for (std::int64_t q = 0; q < part.pixels; ++q) {
            T *const d = state.d + q * kRow, *const all = step.sum;
            Vec<T> v[NV], sum[NV];
            for (int k = 0; k < NV; ++k) {
                v[k] = Step<T, NV>::template result<Map::project_derivative>(
                    load(at.rows + q * kRow + k * W), at.factor[q], at.others + q * kRow + k * W, step.update.step);
                store(d + k * W, v[k]);
            }
            terms.pixel.put(step.out, part.first + q, d);
            if (!all) continue;
            terms.pixel.get(all, part.first + q, sum);
            alignas(64) T row[kRow];
            for (int k = 0; k < NV; ++k) store(row + k * W, sum[k] + v[k]);
            terms.pixel.put(all, part.first + q, row);
        }
        if (state.slopes && terms.shifted) add_slopes_of_shifts(a.other[step.number + 1], part, state);
        few.scatter(part, state.d, state.taking, state.work);
    }

    // Rows of d sum to 0, so that a Potts term w (sum(y) - y) has the slope -<x, y>.
    static void subtract(double product, int c, const State& state, std::int64_t channels) {
        state.slopes[c * channels * kRow] -= product;
    }
    // Of a thread's share of the lattices and grids.
    void add_slopes(int k, const State& state) const {
        for (int c = 0; c < a.terms; ++c) {
            const T* const x = terms.point_spread(k, c);
            if (terms.is_grid(c)) {
                subtract(few.grid[c].product(x, state.team), c, state, a.channels);
                continue;
            }
            const Range mine = share(terms.lattice[c].vertices, state.team.thread, state.team.threads);
            const T* const d = terms.blurred[c].own(0);
            for (std::int64_t v = mine.begin; v < mine.end; v += kPixels) {
                Vec<T> sum{};
                const std::int64_t end = v + kPixels < mine.end ? v + kPixels : mine.end;
                for (std::int64_t e = v * kRow; e < end * kRow; e += W) sum += load(x + e) * load(d + e);
                subtract(total<T>(sum), c, state, a.channels);
            }
        }
    }
    void add_slopes_of_shifts(const T* x, const Block& part, const State& state) const {
        double of_terms[kMaxTerms] = {};
        for (std::int64_t q = 0; q < part.pixels; ++q) {
            Vec<T> here[NV], sum{};
            terms.pixel.get(x, part.first + q, here);
            for (int k = 0; k < NV; ++k) sum += here[k] * load(state.d + q * kRow + k * W);
            const T product = total<T>(sum);
            for (int c = 0; c < a.terms; ++c)
                if (const T* const shift = a.term[c].shift) of_terms[c] += shift[part.first + q] * product;
        }
        for (int c = 0; c < a.terms; ++c) subtract(of_terms[c], c, state, a.channels);
    }
};

}  // namespace fwcrf::FWCRF_ISA
