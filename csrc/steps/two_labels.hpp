// Steps with two labels and Potts terms: one number per pixel, z = x_1 - x_0.
//
// Kernels are applied to z alone: maps of v = scale (P x + unary u) + keep x depend only on the difference of its two
// entries, v_1 - v_0 = -scale sum_c potts_c K_c z + scale unary (u_1 - u_0) + keep z. Lattices and images with one
// value per vertex or pixel fit into the nearer caches, and pixels fill whole vectors.
//
// Steps become lazy when few pixels move, as those of Lazy: the changes of z alone are splatted, and what they give is
// added to V, the blurred lattices of z. The sum of the slices of a pixel is kept, and differs from the present one by
// at most the changes since it was read, of max_v reach_v |dV_v| each (see LatticeChange). The maps rise with
// v_1 - v_0, so that a vector of pixels is read again only if one of them could be led away from its z.
#pragma once

#include "grid/lines.hpp"
#include "lattice/single.hpp"
#include "runtime/scratch.hpp"
#include "runtime/stop.hpp"
#include "simd/math.hpp"
#include "steps/arguments.hpp"
#include "steps/same.hpp"

#include <type_traits>

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
    T *z, *bias, *self;    // (n): x_1 - x_0, u_1 - u_0, and the sum of potts * shift
    const bool possible;   // false if no step can be lazy
    T* sliced;             // (n): the sum of potts * slice when it was read
    T* since;              // (vectors of pixels + threads): `spent` at that time
    T* values[kMaxTerms];  // V, of lattices
    T* reach[kMaxTerms];   // (threads, size of V)
    T* bounds;             // (threads, kApart): the bound of a step
    std::int64_t* counts;  // (threads, kApart): vectors that have moved in the last step, and pixels read
    Barrier barrier{};
    Stop stop{};
    Any moved[3]{};  // pixels by a step; the numbers of steps modulo 3
    bool alike;      // steps differ in their sizes only

    bool is_grid(int c) const { return a.term[c].grid.axes > 0; }

    TwoLabels(const StepArgs<T>& a, Scratch& scratch) : a(a), possible(plan(a)) {
        std::int64_t sizes[kMaxTerms], total = 3 * a.n;
        for (int c = 0; c < a.terms; ++c) {
            const FilterArgs<T>& l = a.term[c].lattice;
            if (!is_grid(c)) lattice[c] = {l.vertices, l.corners, l.neighbors, l.tap, l.identity, l.order};
            sizes[c] = is_grid(c) ? line[c].plan(a.term[c].grid, a.n, a.threads) : lattice[c].room(a.threads);
            total += sizes[c];
        }
        Parts parts;
        const std::int64_t before = (total * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
        parts.bytes = before;
        if (possible) layout(parts);
        parts.base = scratch.get<char>(parts.bytes);
        parts.bytes = before;
        if (possible) layout(parts);
        z = reinterpret_cast<T*>(parts.base);
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
        Way way = Way::whole;
        T spent = 0;
        for (int step = 0, steps = a.steps; step < steps; ++step) {
            if (team.thread == 0) stop.asked(0);
            barrier.wait(team.threads);
            if (stop.stopped()) break;
            note_reads(step - 1, way, team);
            const Way before = way;
            way = next(way, step, steps, team);
            if (alike && step && !moved[(step - 1) % 3]) steps = step + 1;
            if (team.thread == 0) {
                moved[(step + 1) % 3] = Any{};
                for (int k = steps; k < a.steps && a.reads; ++k) a.reads[k] = 0;
            }
            if (way == Way::whole && before != Way::whole) {  // the lattices have changes
                clear(team, own);
                for (std::int64_t i = mine.begin; i < mine.end; i += kEach) scatter(i, mine.end, own);
            }
            for (int c = 0; c < a.terms; ++c)
                if (is_grid(c)) line[c].apply(z, team, barrier);
                else lattice[c].blur(team);
            if (way != Way::whole) keep_lattices(way, team);
            barrier.wait(team.threads);
            spent = way == Way::lazy ? spent + bound(team) : T(0);
            const bool last = step + 1 == steps;
            std::int64_t far = 0, read = 0;
            // All threads have read the lattices of the previous step.
            if (!last) clear(team, own);
            for (std::int64_t i = mine.begin; i < mine.end && !stop.asked(i / kEach); i += kEach) {
                if (way != Way::whole) {
                    settle(a.update[step], way, spent, i, mine.end, last, team, own, far, read);
                    continue;
                }
                far += answer(a.update[step], i, mine.end, last);
                if (!last) scatter(i, mine.end, own);
            }
            moved[step % 3] |= far > 0;
            if (!possible) continue;
            counts[team.thread * kApart] = far;
            counts[team.thread * kApart + 1] = read;
            if (!last) continue;
            barrier.wait(team.threads);
            note_reads(step, way, team);
        }
        return finite;
    }

  private:
    // A step of all pixels; the same, which prepares lazy steps; a step of the pixels that need it.
    enum class Way { whole, watch, lazy };
    static constexpr std::int64_t kApart = 64;  // of the numbers of two threads
    static constexpr int kFewest = 3;           // steps left for which a change of ways pays
    static constexpr T kMostMoved = T(0.4);     // vectors of pixels in a step; with more, the next one is whole
    static constexpr T kRounding = kSingle<T> ? 1e-5 : 1e-12;  // of v_1 - v_0, relative to 1 + |v_1 - v_0|

    static bool plan(const StepArgs<T>& a) {
        if (a.steps <= kFewest || !steps_alike(a) || a.update[0].scale == T(0)) return false;
        bool some = false;
        for (int c = 0; c < a.terms; ++c) some |= !a.term[c].grid.axes;
        return some && (a.update[0].map != Map::softmax || a.tolerance > T(0));
    }
    void layout(Parts& parts) {
        parts.take(sliced, a.n);
        parts.take(since, a.n / W + a.threads + 1);
        parts.take(bounds, a.threads * kApart);
        parts.take(counts, a.threads * kApart);
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) continue;
            parts.take(values[c], a.term[c].lattice.vertices + 1);
            parts.take(reach[c], a.threads * (a.term[c].lattice.vertices + 1));
        }
    }
    // All threads alike.
    Way next(Way before, int step, int steps, Team team) const {
        if (!possible || step == 0) return Way::whole;
        std::int64_t far = 0;
        for (int t = 0; t < team.threads; ++t) far += counts[t * kApart];
        const bool few = static_cast<T>(far) * W <= kMostMoved * static_cast<T>(a.n);
        if (before != Way::whole) return few ? Way::lazy : Way::whole;
        return few && steps - step >= kFewest ? Way::watch : Way::whole;
    }
    void note_reads(int step, Way way, Team team) const {
        if (team.thread || !a.reads || way != Way::lazy) return;
        a.reads[step] = 0;
        for (int t = 0; t < team.threads; ++t) a.reads[step] += counts[t * kApart + 1];
    }
    // V of the step, for a thread's share of the vertices; when steps are lazy, also their bound.
    void keep_lattices(Way way, Team team) const {
        T all = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) continue;
            const std::int64_t size = lattice[c].size();
            const Range mine = share(lattice[c].vertices, team.thread, team.threads);
            const T* const found = lattice[c].result();
            if (way == Way::watch) {
                std::memcpy(values[c] + mine.begin, found + mine.begin, (mine.end - mine.begin) * sizeof(T));
                std::memset(reach[c] + team.thread * size, 0, size * sizeof(T));
                continue;
            }
            T most = 0;
            for (std::int64_t v = mine.begin; v < mine.end; ++v) {
                T of_all = reach[c][v];
                for (int t = 1; t < team.threads; ++t)
                    of_all = reach[c][t * size + v] > of_all ? reach[c][t * size + v] : of_all;
                const T change = of_all * (found[v] < T(0) ? -found[v] : found[v]);
                values[c][v] += found[v];
                most = change > most ? change : most;
            }
            all += (a.term[c].potts < T(0) ? -a.term[c].potts : a.term[c].potts) * most;
        }
        bounds[team.thread * kApart] = all;
    }
    // At least the change of the sum of slices of any pixel by the last step.
    T bound(Team team) const {
        T all = 0;
        for (int t = 0; t < team.threads; ++t) all += bounds[t * kApart];
        return all * (T(1) + kRounding);
    }

    // Some pixels of a step that watches, or is lazy: moves the pixels of the vectors that are read and have one that
    // moves, and splats their changes.
    void settle(const Update<T>& update, Way way, T spent, std::int64_t begin, std::int64_t end, bool last, Team team,
                T* const (&own)[kMaxTerms], std::int64_t& far, std::int64_t& read) const {
        const std::int64_t stop = begin + kEach < end ? begin + kEach : end;
        const T near = T(2) * at_least_rounding(a.tolerance);
        for (std::int64_t p = begin; p < stop; p += W) {
            const std::int64_t count = stop - p < W ? stop - p : W;
            const Vec<T> here = load_some(z + p, count),
                         inside = lanes_of<Vec<T>>([count](int l) { return l < count ? T(1) : T(0); });
            T& read_at = since[p / W + team.thread];
            if (way == Way::lazy) {
                const Vec<T> lead = lead_of(update, load_some(sliced + p, count), here, p, count);
                const T scale = update.scale < T(0) ? -update.scale : update.scale;
                const Vec<T> off = scale * (spent - read_at) + kRounding * (T(1) + max<T>(lead, -lead));
                const Vec<T> low = inside * (mapped(update.map, lead - off) - here),
                             high = inside * (mapped(update.map, lead + off) - here);
                if (!any(~((low >= -near) & (high <= near)))) {
                    if (last) write(update, lead, here, p, count);
                    continue;
                }
            }
            alignas(64) T sums[W] = {}, change[W];
            for (int c = 0; c < a.terms; ++c) {
                if (is_grid(c)) continue;
                for_corners(c,
                            [&](auto corners) { slice<decltype(corners)::value>(c, p, p + count, sums, values[c]); });
                if (way == Way::watch) add_reach(c, p, p + count, reach[c] + team.thread * lattice[c].size());
            }
            store_some(sliced + p, load(sums), count);
            read_at = spent;
            read += count;
            const Vec<T> lead = lead_of(update, load(sums), here, p, count);
            const Vec<T> left = inside * (mapped(update.map, lead) - here);
            if (last) write(update, lead, here, p, count);
            if (!any(~((left <= near) & (left >= -near)))) continue;
            ++far;
            const Vec<T> there = here + update.step * left;
            store_some(z + p, there, count);
            store(change, there - here);
            for (int c = 0; c < a.terms && !last; ++c) {
                if (is_grid(c)) continue;
                const FilterArgs<T>& l = a.term[c].lattice;
                const auto value = [&change, p](std::int64_t q) { return change[q - p]; };
                for_corners(c, [&](auto corners) {
                    lattice[c].template splat<decltype(corners)::value>(l.index, l.splat, {p, p + count}, value,
                                                                        own[c]);
                });
            }
        }
    }
    void add_reach(int c, std::int64_t i, std::int64_t stop, T* most) const {
        const int corners = lattice[c].corners;
        for (std::int64_t p = i; p < stop; ++p) {
            const T* const weight = a.term[c].lattice.slice + p * corners;
            const std::int32_t* const index = a.term[c].lattice.index + p * corners;
            T sum = 0;
            for (int m = 0; m < corners; ++m) sum += weight[m] < T(0) ? -weight[m] : weight[m];
            for (int m = 0; m < corners; ++m) most[index[m]] = sum > most[index[m]] ? sum : most[index[m]];
        }
    }
    // Calls act with the number of corners of a lattice, or 0 if no code is compiled for it.
    template <typename F> void for_corners(int c, F&& act) const {
        if (lattice[c].corners == 6) act(std::integral_constant<int, 6>{});
        else if (lattice[c].corners == 3) act(std::integral_constant<int, 3>{});
        else act(std::integral_constant<int, 0>{});
    }

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
            for_corners(c, [&](auto corners) {
                lattice[c].template splat<decltype(corners)::value>(l.index, l.splat, {i, stop}, value, own[c]);
            });
        }
    }

    // sums += weight K_c z of the pixels from i to stop.
    template <int C> void slice(int c, std::int64_t i, std::int64_t stop, T* sums, const T* blurred) const {
        const FilterArgs<T>& l = a.term[c].lattice;
        const SingleLattice<T>& from = lattice[c];
        const T weight = a.term[c].potts;
        for (std::int64_t p = i; p < stop; ++p)
            sums[p - i] += weight * from.template slice<C>(l.index, l.slice, p, blurred);
    }

    // The number of vectors with a pixel that moves.
    std::int64_t answer(const Update<T>& update, std::int64_t i, std::int64_t end, bool last) const {
        const std::int64_t stop = i + kEach < end ? i + kEach : end;
        alignas(64) T sums[kEach] = {};
        for (int c = 0; c < a.terms; ++c) {
            if (is_grid(c)) continue;
            for_corners(c,
                        [&](auto corners) { slice<decltype(corners)::value>(c, i, stop, sums, lattice[c].result()); });
        }
        std::int64_t far = 0;
        for (std::int64_t p = i; p < stop; p += W) far += finish(update, load(sums + p - i), p, stop - p, last);
        return far;
    }
    // v_1 - v_0, from the sum over the lattices.
    inline Vec<T> lead_of(const Update<T>& update, Vec<T> sum, Vec<T> here, std::int64_t i, std::int64_t count) const {
        sum += load_some(self + i, count) * here;
        for (int c = 0; c < a.terms; ++c)
            if (is_grid(c)) sum += a.term[c].potts * load_some(line[c].result() + i, count);
        Vec<T> lead = -update.scale * sum;
        if (update.unary != T(0)) lead += update.scale * update.unary * load_some(bias + i, count);
        if (update.keep != T(0)) lead += update.keep * here;
        return lead;
    }

    // From the sum over the lattices to the result of the step. True if a pixel moves: if p - x has an entry of more
    // than the tolerance, or rounding.
    inline bool finish(const Update<T>& update, Vec<T> sum, std::int64_t i, std::int64_t count, bool last) const {
        const Vec<T> here = load_some(z + i, count);
        const Vec<T> lead = lead_of(update, sum, here, i, count);
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
