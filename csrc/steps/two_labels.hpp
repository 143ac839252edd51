// Steps with two labels and Potts terms: one number per pixel, z = x_1 - x_0.
//
// Kernels are applied to z alone: maps of v = scale (P x + unary u) + keep x depend only on the difference of its two
// entries, v_1 - v_0 = -scale sum_c potts_c K_c z + scale unary (u_1 - u_0) + keep z. Lattices and images with one
// value per vertex or pixel fit into the nearer caches, and pixels fill whole vectors.
#pragma once

#include "grid/lines.hpp"
#include "lattice/single.hpp"
#include "runtime/scratch.hpp"
#include "runtime/stop.hpp"
#include "simd/math.hpp"
#include "steps/arguments.hpp"
#include "steps/same.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> struct TwoLabels {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kEach =
        64;  // pixels at a time: single stores are complete before they are read as vectors

    // True if two_labels supports all terms and updates.
    static bool takes(const StepArgs<T>& a) {
        if (a.channels != 2 || a.shared || a.plain || a.goal || a.other || a.spreads || a.sum || a.dual || a.slopes ||
            a.bound || !a.unary)
            return false;
        const Start<T>* const s = a.start;
        // The start is written to the array of the steps only.
        if (s && (a.x != a.unary || s->map != Map::softmax || s->scale != T(-1) || s->out != a.out[0])) return false;
        for (int k = 0; k < a.steps; ++k)
            if (a.update[k].map == Map::none || a.out[k] != a.out[0]) return false;
        for (int c = 0; c < a.terms; ++c) {
            const Term<T>& term = a.term[c];
            if (term.matrix) return false;
            if (term.grid.axes && !LineFilter<T>::takes(term.grid)) return false;
        }
        return true;
    }

    const StepArgs<T>& a;
    SingleLattice<T> lattice[kMaxTerms];
    LineFilter<T> line[kMaxTerms];
    T *z, *bias, *self;  // (n): x_1 - x_0, u_1 - u_0, and the sum of potts * shift
    Barrier barrier{};
    Stop stop{};
    Any moved[3]{};  // pixels by a step; the numbers of steps modulo 3
    bool alike;      // steps differ in their sizes only

    bool is_grid(int c) const { return a.term[c].grid.axes > 0; }

    TwoLabels(const StepArgs<T>& a, Scratch& scratch) : a(a) {
        std::int64_t sizes[kMaxTerms], total = 3 * a.n;
        for (int c = 0; c < a.terms; ++c) {
            const FilterArgs<T>& l = a.term[c].lattice;
            if (!is_grid(c)) lattice[c] = {l.vertices, l.corners, l.neighbors, l.tap, l.identity, l.order};
            sizes[c] = is_grid(c) ? line[c].plan(a.term[c].grid, a.n, a.threads) : lattice[c].room(a.threads);
            total += sizes[c];
        }
        z = scratch.get<T>(total);
        bias = z + a.n;
        self = bias + a.n;
        T* memory = self + a.n;
        for (int c = 0; c < a.terms; memory += sizes[c++])
            if (is_grid(c)) line[c].place(memory);
            else lattice[c].base = memory;
        alike = steps_alike(a);
    }

    // False if x is not finite. When a step has moved no pixel from its p, one more step is the last.
    bool run(Team team) {
        const Range mine = share(a.n, team.thread, team.threads);
        T* own[kMaxTerms];
        bool finite = begin(mine);
        clear(team, own);
        for (std::int64_t i = mine.begin; i < mine.end; i += kEach) scatter(i, mine.end, own);
        for (int step = 0, steps = a.steps; step < steps; ++step) {
            if (team.thread == 0) stop.asked(0);
            barrier.wait(team.threads);
            if (stop.stopped()) break;
            if (alike && step && !moved[(step - 1) % 3]) steps = step + 1;
            if (team.thread == 0) {
                moved[(step + 1) % 3] = Any{};
                for (int k = steps; k < a.steps && a.reads; ++k) a.reads[k] = 0;
            }
            for (int c = 0; c < a.terms; ++c)
                if (is_grid(c)) line[c].apply(z, team, barrier);
                else lattice[c].blur(team);
            barrier.wait(team.threads);
            const bool last = step + 1 == steps;
            bool some = false;
            // All threads have read the lattices of the previous step.
            if (!last) clear(team, own);
            for (std::int64_t i = mine.begin; i < mine.end && !stop.asked(i / kEach); i += kEach) {
                some |= answer(a.update[step], i, mine.end, last);
                if (!last) scatter(i, mine.end, own);
            }
            moved[step % 3] |= some;
        }
        return finite;
    }

  private:
    // Both labels of up to W pixels.
    static inline void pairs(const T* p, std::int64_t count, Vec<T>& first, Vec<T>& second) {
        alignas(64) T one[W] = {}, other[W] = {};
        for (std::int64_t l = 0; l < W && l < count; ++l) one[l] = p[2 * l], other[l] = p[2 * l + 1];
        first = load(one);
        second = load(other);
    }

    bool begin(Range mine) {
        Vec<T> nothing{};  // 0 * v is NaN unless v is finite
        for (std::int64_t i = mine.begin; i < mine.end; i += W) {
            const std::int64_t count = mine.end - i;
            Vec<T> first, second, shift{};
            pairs(a.unary + 2 * i, count, first, second);
            const Vec<T> difference = second - first;
            store_some(bias + i, difference, count);
            if (!a.start) {
                pairs(a.x + 2 * i, count, first, second);
                nothing += first * T(0) + second * T(0);
            }
            store_some(z + i, a.start ? mapped(Map::softmax, -difference) : second - first, count);
            for (int c = 0; c < a.terms; ++c)
                if (a.term[c].shift) shift += a.term[c].potts * load_some(a.term[c].shift + i, count);
            store_some(self + i, shift, count);
        }
        return all_zero<T>(nothing);
    }

    void clear(Team team, T* (&own)[kMaxTerms]) const {
        for (int c = 0; c < a.terms; ++c) own[c] = is_grid(c) ? nullptr : lattice[c].cleared(team);
    }

    void scatter(std::int64_t i, std::int64_t end, T* const (&own)[kMaxTerms]) const {
        const std::int64_t stop = i + kEach < end ? i + kEach : end;
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) continue;
            const FilterArgs<T>& l = a.term[c].lattice;
            const auto value = [this](std::int64_t p) { return z[p]; };
            if (l.corners == 6) lattice[c].template splat<6>(l.index, l.splat, {i, stop}, value, own[c]);
            else if (l.corners == 3) lattice[c].template splat<3>(l.index, l.splat, {i, stop}, value, own[c]);
            else lattice[c].template splat<0>(l.index, l.splat, {i, stop}, value, own[c]);
        }
    }

    // sums += weight K_c z of the pixels from i to stop.
    template <int C> void slice(int c, std::int64_t i, std::int64_t stop, T* sums) const {
        const FilterArgs<T>& l = a.term[c].lattice;
        const SingleLattice<T>& from = lattice[c];
        const T weight = a.term[c].potts;
        for (std::int64_t p = i; p < stop; ++p) sums[p - i] += weight * from.template slice<C>(l.index, l.slice, p);
    }

    // True if a pixel moves.
    bool answer(const Update<T>& update, std::int64_t i, std::int64_t end, bool last) const {
        const std::int64_t stop = i + kEach < end ? i + kEach : end;
        alignas(64) T sums[kEach] = {};
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) continue;
            if (lattice[c].corners == 6) slice<6>(c, i, stop, sums);
            else if (lattice[c].corners == 3) slice<3>(c, i, stop, sums);
            else slice<0>(c, i, stop, sums);
        }
        bool some = false;
        for (std::int64_t p = i; p < stop; p += W) some |= finish(update, load(sums + p - i), p, stop - p, last);
        return some;
    }

    // From the sum over the lattices to the result of the step. True if a pixel moves: if p - x has an entry of more
    // than the tolerance, or rounding.
    inline bool finish(const Update<T>& update, Vec<T> sum, std::int64_t i, std::int64_t count, bool last) const {
        const Vec<T> here = load_some(z + i, count);
        sum += load_some(self + i, count) * here;
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) sum += a.term[c].potts * load_some(line[c].result() + i, count);
        Vec<T> lead = -update.scale * sum;
        if (update.unary != T(0)) lead += update.scale * update.unary * load_some(bias + i, count);
        if (update.keep != T(0)) lead += update.keep * here;
        Vec<T> there = mapped(update.map, lead);
        const Vec<T> left = there - here;
        if (update.step != T(1)) there = here + update.step * left;
        store_some(z + i, there, count);
        if (last) write(update, lead, here, i, count);
        const T near = T(2) * at_least_rounding(a.tolerance);
        if (count >= W) return any(~((left <= near) & (left >= -near)));
        for (std::int64_t l = 0; l < count; ++l)
            if (!(lane(left, l) <= near && lane(left, l) >= -near)) return true;
        return false;
    }

    // The new x_1 - x_0, for lead = v_1 - v_0.
    static inline Vec<T> mapped(Map map, Vec<T> lead) {
        if (map == Map::project) return min<T>(fill(T(1)), max<T>(fill(T(-1)), lead));
        if (map == Map::vertex) return select(lead > T(0), fill(T(1)), fill(T(-1)));
        const Vec<T> e = odds(lead);
        return (e - T(1)) / (e + T(1));
    }
    static inline Vec<T> odds(Vec<T> lead) { return power<T>(lead * Power<T>::per_e); }

    // Writes both labels, each with full relative precision.
    void write(const Update<T>& update, Vec<T> lead, Vec<T> here, std::int64_t i, std::int64_t count) const {
        Vec<T> first, second;
        if (update.map == Map::softmax) {
            const Vec<T> e = odds(lead), whole = T(1) / (e + T(1));
            first = select(lead > Power<T>::certain, Vec<T>{}, whole);
            second = e * whole;
        } else {
            const Vec<T> p = mapped(update.map, lead);
            first = T(0.5) - T(0.5) * p;
            second = T(0.5) + T(0.5) * p;
        }
        if (update.step != T(1)) {
            first = (T(0.5) - T(0.5) * here) * (T(1) - update.step) + update.step * first;
            second = (T(0.5) + T(0.5) * here) * (T(1) - update.step) + update.step * second;
        }
        for (std::int64_t l = 0; l < W && l < count; ++l) {
            a.out[a.steps - 1][2 * (i + l)] = lane(first, l);
            a.out[a.steps - 1][2 * (i + l) + 1] = lane(second, l);
        }
    }
};

}  // namespace fwcrf::FWCRF_ISA
