// Lazy steps: when few pixels change, a step costs what changes.
//
// P is linear, so that P x is kept up to date from the changes of x alone: the change goes through the kernels, and is
// added to the blurred lattices and filtered grids of x, from which P x can be read at any pixel. A pixel that is not
// read keeps its x, for a reason that is checked. With v = scale (P x + u) + keep x as in Update, and v_a, v_b its two
// largest entries at the last reading,
//
//     slack = v_a - v_b - 1                                          projection
//             v_a - v_b                                              vertex
//             log(1 + t / q), q >= 1 - x_a                           softmax, t half the tolerance
//
// With a positive slack a projection gives the vertex of label a, and still does while v_a - v_b has changed by less
// than the slack. For a softmax, when no difference of two entries of v changes by more than r, no ratio of two x
// changes by more than exp(r), and no x by more than q (exp(r) - 1), which is t for the slack. A step changes a
// difference of two entries of v by at most
//
//     |scale| sum_c |potts_c| bound_c,
//
// with the bounds of LatticeChange for the whole lattice and of GridChange for a block of pixels. These bounds are
// added up in `spent`, a number per block, and a pixel is read again when `spent` reaches until = spent + slack at the
// last reading. A projection to another point than a vertex is read in every step, and so is a pixel whose x has
// changed in the step before, which changes its own v through `keep` and the diagonal. A pixel that is read changes if
// p - x has an entry of more than `same`: t for a softmax, else the tolerance, and at least a few units of rounding.
//
// Pixels are read by parts of a block, as in a whole step: the vectors of `until` that have a pixel to be read, as many
// together as follow each other. So a pixel costs hardly more than in a whole step, and its neighbours little.
//
// When a step changes no pixel, no later step does.
#pragma once

#include "lattice/change.hpp"
#include "steps/few_pixels.hpp"
#include "steps/same.hpp"
#include "steps/step.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct Lazy {
    using Pixel = PixelRows<T, NV>;
    using Workspace = typename Terms<T, NV>::Workspace;
    using Rows = typename Step<T, NV>::Rows;
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;

    const StepArgs<T>& a;
    Terms<T, NV>& terms;
    LatticeChange<T> lattice[kMaxTerms];
    FewPixels<T, NV> few;
    T half = 0;            // half the tolerance of a softmax
    T same = kSame<T>;     // an x within this distance of p does not change
    const bool possible;   // false if steps are whole for another reason than their cost
    T* until;              // (slots, kPixels): of the pixels of each block, and infinity past them
    T* spent;              // (slots), see FewPixels::slot
    T* soonest;            // (slots): at most the least `until` of a block
    T* moved;              // (threads, kMaxTerms): bounds of the lattices
    std::int64_t* counts;  // (threads, kCounts)
    bool weighed = false;

    static constexpr int kCounts = 8;
    enum Count { kRead, kChanged, kTooMany, kSampled, kChanging, kMoving };
    // The kinds of the next step: of all pixels; of the pixels that need it; none, since nothing changes any more.
    enum class Way { whole, lazy, done };

    Lazy(const StepArgs<T>& a, Terms<T, NV>& terms, Scratch& scratch)
        : a(a), terms(terms), few(a, terms), possible(plan()) {
        if (!possible) return;
        Parts parts;
        layout(parts);
        parts.base = scratch.get<char>(parts.bytes);
        parts.bytes = 0;
        layout(parts);
        few.begin();
    }

    // Of a thread, for a run.
    struct State {
        Team team;
        Workspace work;
        std::int64_t* counts;
        int not_before;  // no search for lazy steps before this step
        typename FewPixels<T, NV>::Lines taking, reading;
        Rows at;    // of a part of a block: `rows` is v and then p, `others` the old x
        T* change;  // of x, for the pixels of a part of a block
    };
    void begin(State& state, Team team) const {
        state.team = team;
        state.work = terms.workspace(team, nullptr);
        state.counts = counts + team.thread * kCounts;
        state.not_before = 1;
        state.change = few.rows(team);
    }

    // True if a lazy step would pay after step k, or if step k may be the last, to be called when the kernels have been
    // applied for step k. Every thread of a region calls this, as all that follow.
    bool pays(int k, const Step<T, NV>& step, State& state, Barrier& barrier) const {
        if (!possible || k < state.not_before || a.steps - k < kFewest) return false;
        state.work = terms.workspace(state.team, nullptr);
        state.counts[kSampled] = state.counts[kChanging] = state.counts[kMoving] = 0;
        T& change = moved[state.team.thread * kMaxTerms];
        change = 0;
        const auto for_sample = [&](auto&& act) {
            const std::int64_t blocks = a.n / kPixels / kFewestSampled, apart = blocks < kApart ? blocks + 1 : kApart;
            std::int64_t number = apart / 2;
            terms.for_blocks(terms.pixels(state.team), [&](const Block& block) {
                if (number++ % apart == 0) act(block);
            });
        };
        // `until` is the slack of a pixel for now.
        for_sample([&](const Block& block) {
            T* const ends = until + few.slot(block, state.team) * kPixels;
            map(step, block, state, ends);
            for (std::int64_t q = 0; q < block.pixels; q += W)
                store_some(ends + q, slacks_after(step, state.at, q, ends + q, block.pixels - q), block.pixels - q);
            state.counts[kSampled] += block.pixels;
            for (std::int64_t q = 0; q < block.pixels; ++q) {
                const T far = distance(state.at, q);
                change += far;
                if (far <= same) continue;
                ends[q] = -kInfinity<T>;
                ++state.counts[kMoving];
            }
        });
        barrier.wait(state.team.threads);
        const T sampled = static_cast<T>(sum(kSampled, state.team));
        T all = 0;
        for (int t = 0; t < state.team.threads; ++t) all += moved[t * kMaxTerms];
        const T near = kNear * all / sampled;
        for_sample([&](const Block& block) {
            const T* const ends = until + few.slot(block, state.team) * kPixels;
            for (std::int64_t q = 0; q < block.pixels; ++q) state.counts[kChanging] += !(ends[q] > near);
        });
        barrier.wait(state.team.threads);
        // Pixels between labels are read in every step, but when none of them moves, a step that looks at all pixels
        // tells whether it is the last.
        return static_cast<T>(sum(kChanging, state.team)) * few.dear <= kMostSampled * sampled ||
               !sum(kMoving, state.team);
    }

    // A whole step, as `Step::run`, that prepares lazy steps: the change is scattered instead of the result.
    MessageBound<T> watch(const Step<T, NV>& step, State& state, Barrier& barrier, Stop& stop) {
        const Team team = state.team;
        const Range mine = terms.pixels(team);
        for (int c = 0; c < a.terms; ++c) {
            if (terms.is_grid(c)) continue;
            lattice[c].keep(terms.blurred[c].result(), team);
            if (!weighed) lattice[c].weigh(mine, team);
        }
        barrier.wait(team.threads);
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c) && !weighed) lattice[c].merge(team);
        start_changes(state);
        std::int64_t number = 0;
        terms.for_blocks(mine, [&](const Block& block) {
            if (stop.asked(++number)) return;
            const std::int64_t place = few.slot(block, team) * kPixels;
            spent[place / kPixels] = 0;
            soonest[place / kPixels] = kInfinity<T>;
            for (std::int64_t q = block.pixels; q < kPixels; ++q) until[place + q] = kInfinity<T>;
            settle(step, block, place, state);
        });
        barrier.wait(team.threads);
        if (team.thread == 0) weighed = true;
        return bound(state);
    }

    // A step of the pixels that need it.
    MessageBound<T> run(const Step<T, NV>& step, State& state, Barrier& barrier, Stop& stop) {
        const Team team = state.team;
        for (int c = 0; c < a.terms; ++c) {
            if (terms.is_grid(c)) {
                few.grid[c].filter(team, barrier);
            } else {
                terms.blurred[c].blur(terms.lattice[c], team, false);
                moved[team.thread * kMaxTerms + c] = lattice[c].add(terms.blurred[c].result(), team);
            }
        }
        for (int c = 0; c < a.terms && team.thread == 0; ++c)
            if (!terms.is_grid(c)) terms.kept[c] = lattice[c].values;
        barrier.wait(team.threads);
        const T size = size_of(step.update.scale) * (T(1) + kRounding), of_lattices = size * bound_of_lattices(team);
        start_changes(state);
        std::int64_t number = 0;
        terms.for_blocks(terms.pixels(team), [&](const Block& block) {
            if (stop.asked(++number)) return;
            const std::int64_t place = few.slot(block, team) * kPixels;
            const T now = spent[place / kPixels] += of_lattices + size * bound_of_grids(block, state);
            T& least = soonest[place / kPixels];
            if (least > now) return;
            least = kInfinity<T>;
            // Pixels are read by whole vectors of `until`, and as many of these together as follow each other.
            Vec<T> left = fill(kInfinity<T>);
            std::int64_t first = 0;
            const auto read = [&](std::int64_t end) {
                if (end > block.pixels) end = block.pixels;
                if (end > first) settle(step, {block.first + first, end - first}, place + first, state);
            };
            for (std::int64_t q = 0; q < kPixels; q += W) {
                T* const ends = until + place + q;
                const Vec<T> of_pixels = load(ends);
                if (any(of_pixels <= now)) {
                    bool found = any(of_pixels == -kInfinity<T>);
                    for (int r = 0; r < W && !found; ++r)
                        found = ends[r] <= now && !spared(block.first + q + r, ends[r], now, size, of_lattices);
                    if (found) continue;
                }
                left = min<T>(load(ends), left);
                read(q);
                first = q + W;
            }
            read(kPixels);
            for (int l = 0; l < W; ++l) least = lane(left, l) < least ? lane(left, l) : least;
        });
        barrier.wait(team.threads);
        return bound(state);
    }

    // The kind of the step after step k, which `watch` or `run` took.
    Way next(int k, bool watched, State& state) const {
        const T share = watched ? T(0) : static_cast<T>(sum(kRead, state.team)) / static_cast<T>(a.n);
        if (share * few.dear > kMostRead || sum(kTooMany, state.team)) {
            state.not_before = k + kPause;
            for (int c = 0; c < a.terms; ++c)
                if (terms.is_grid(c)) few.grid[c].forget(state.team);
                else if (state.team.thread == 0) terms.kept[c] = nullptr;
            return Way::whole;
        }
        return sum(kChanged, state.team) ? Way::lazy : Way::done;
    }
    // Pixels that the step has read.
    std::int64_t reads(Team team) const { return sum(kRead, team); }

  private:
    static constexpr int kPause = 2;        // steps until the next search, when a lazy step has cost too much
    static constexpr T kMostRead = T(0.5);  // with more, the next steps are whole
    // Slacks up to this multiple of the mean change of x are likely to be used up.
    static constexpr T kNear = 2;
    static constexpr int kFewest = 3;                                   // steps left for which a change of ways pays
    static constexpr std::int64_t kApart = 64, kFewestSampled = 32;     // one block in so many is a sample, but so many
    static constexpr T kRounding = kSingle<T> ? 1e-5 : 1e-12;           // of v, relative to 1 + |v|
    static constexpr T kMostSampled = T(0.45), kMostChanging = T(0.5);  // pixels; with more, steps are whole

    // Of all steps of a thread so far.
    MessageBound<T> bound(const State& state) const {
        MessageBound<T> found;
        found.raise(state.work.all, lane(state.work.last, (a.channels - 1) % W));
        return found;
    }
    static T size_of(T w) { return w < T(0) ? -w : w; }
    T* x() const { return a.out[0]; }
    std::int64_t sum(Count count, Team team) const {
        std::int64_t all = 0;
        for (int t = 0; t < team.threads; ++t) all += counts[t * kCounts + count];
        return all;
    }

    bool plan() {
        if (a.steps <= kFewest || !terms.carries() || terms.matrices_too || a.shared || a.plain || a.goal || a.other ||
            a.point || a.sum || a.dual || a.slopes || a.rates)
            return false;
        const Update<T>& first = a.update[0];
        if (first.map == Map::softmax) {
            if (!(a.tolerance > T(0)) || first.keep != T(0)) return false;
            half = same = a.tolerance / T(2);
        } else if (first.map != Map::project && first.map != Map::vertex) {
            return false;
        } else {
            same = at_least_rounding(a.tolerance);
        }
        if (!steps_alike(a)) return false;
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c)) lattice[c].plan(terms.lattice[c], kRow);
        return few.plan();
    }
    void layout(Parts& parts) {
        const std::int64_t slots = few.slots();
        parts.take(until, slots * kPixels);
        parts.take(spent, slots);
        parts.take(soonest, slots);
        parts.take(moved, a.threads * kMaxTerms);
        parts.take(counts, a.threads * kCounts);
        few.layout(parts);
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c)) lattice[c].layout(parts, a.threads);
    }
    T bound_of_lattices(Team team) const {
        T all = 0;
        for (int c = 0; c < a.terms; ++c) {
            T most = 0;
            for (int t = 0; t < team.threads && !terms.is_grid(c); ++t)
                most = moved[t * kMaxTerms + c] > most ? moved[t * kMaxTerms + c] : most;
            all += size_of(a.term[c].potts) * most;
        }
        return all;
    }
    // True if the lattices' bound for a pixel itself is so much less than the bound for all pixels, which is in `now`,
    // that it need not be read; `until` rises by the difference.
    bool spared(std::int64_t i, T& end, T now, T size, T of_all) const {
        T own = 0;
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c)) own += size_of(a.term[c].potts) * lattice[c].bound(i);
        end += of_all - size * own;
        return end > now;
    }
    T bound_of_grids(const Block& block, State& state) const {
        T all = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (!terms.is_grid(c)) continue;
            const std::int64_t line = few.grid[c].line_of(block.first),
                               p = block.first - line * few.grid[c].pixels(few.grid[c].last);
            few.grid[c].find_read(line, state.reading.of[c]);
            all += size_of(a.term[c].potts) * few.grid[c].bound(state.reading.of[c], p, p + block.pixels);
        }
        return all;
    }

    void start_changes(State& state) const {
        // A new workspace: the old one may keep a line of the grid as it was before.
        state.work = terms.workspace(state.team, nullptr);
        terms.clear(state.work);
        state.counts[kRead] = state.counts[kChanged] = state.counts[kTooMany] = 0;
    }
    // From x of a part of a block to p in `rows`, times `factor`; `others` is x. ends = the slacks, but of a softmax.
    void map(const Step<T, NV>& step, const Block& part, State& state, T* ends) const {
        Rows& at = state.at;
        terms.pixel.get(x(), part, at.others);
        do {
            terms.gradient(part, step.query(state.work), nullptr, state.work, at.rows, at.given);
            if (step.leaning()) step.lean(part, at);
            for (std::int64_t i = part.pixels * kRow, end = padded(part.pixels) * kRow; i < end; ++i) at.rows[i] = 0;
        } while (!map_part(step, part, state, ends));
    }
    static std::int64_t padded(std::int64_t pixels) { return (pixels + W - 1) / W * W; }
    // False if the fast softmax is not precise enough here.
    bool map_part(const Step<T, NV>& step, const Block& part, State& state, T* ends) const {
        Rows& at = state.at;
        const bool softmax = step.update.map == Map::softmax, fast = step.fast_softmax(state.work);
        for (std::int64_t q = 0; q < padded(part.pixels); q += W) {
            T* const rows = at.rows + q * kRow;
            const std::int64_t left = part.pixels - q;
            if (!softmax) store_some(ends + q, slacks(step.update.map, rows), left);
            if (fast) {
                if (!step.exponentials(part, at, q)) {
                    state.work.careful = true;
                    return false;
                }
            } else {
                step.map(rows);
                store(at.factor + q, fill(T(1)));
            }
        }
        return true;
    }
    // The slacks of W rows after `map`.
    Vec<T> slacks_after(const Step<T, NV>& step, const Rows& at, std::int64_t q, const T* ends,
                        std::int64_t left) const {
        if (step.update.map != Map::softmax) return load_some(ends, left);
        return slacks_of_softmax(at.rows + q * kRow, load(at.factor + q));
    }
    // The largest and the second largest entry of each of W rows.
    static void largest(const T* rows, Vec<T>& first, Vec<T>& second) {
        Vec<T> one[W], two[W];
        for (int r = 0; r < W; ++r) {
            one[r] = load(rows + r * kRow);
            two[r] = fill(-kInfinity<T>);
            for (int k = 1; k < NV; ++k) {
                const Vec<T> v = load(rows + r * kRow + k * W);
                two[r] = max<T>(min<T>(one[r], v), two[r]);
                one[r] = max<T>(v, one[r]);
            }
        }
        transpose<T>(one);
        if (NV > 1) transpose<T>(two);
        first = one[0], second = two[0];
        for (int c = 1; c < W; ++c) {
            const Vec<T> low = min<T>(first, one[c]);
            second = max<T>(NV > 1 ? max<T>(low, two[c]) : low, second);
            first = max<T>(one[c], first);
        }
    }
    // Of W rows of v, and less a little for rounding.
    static Vec<T> slacks(Map map, const T* rows) {
        Vec<T> first, second;
        largest(rows, first, second);
        return (first - second) - (map == Map::project ? T(1) : T(0)) - kRounding * (T(1) + max<T>(first, -first));
    }
    // Of W rows of p, divided by their factors.
    Vec<T> slacks_of_softmax(const T* rows, Vec<T> factor) const {
        Vec<T> first, second;
        largest(rows, first, second);
        const Vec<T> by_second = (static_cast<T>(a.channels) * (T(1) + kRounding)) * factor * second;
        const Vec<T> q = min<T>(T(1) - factor * first + kSame<T>, by_second), z = half / q;
        return select(z < T(0.1), z - T(0.5) * z * z, log<T>(min<T>(T(1) + z, fill(T(1e30)))));
    }

    // The largest entry of |p - x| of pixel q.
    static T distance(const Rows& at, std::int64_t q) {
        Vec<T> most{};
        for (int k = 0; k < NV; ++k) {
            const Vec<T> left = at.factor[q] * load(at.rows + q * kRow + k * W) - load(at.others + q * kRow + k * W);
            most = max<T>(max<T>(left, -left), most);
        }
        T found = 0;
        for (int l = 0; l < W; ++l) found = lane(most, l) > found ? lane(most, l) : found;
        return found;
    }

    // Reads a part of a block, whose `until` begins at `place`: writes pixels that change, scatters their changes, and
    // sets `until`.
    void settle(const Step<T, NV>& step, const Block& part, std::int64_t place, State& state) {
        Rows& at = state.at;
        T* const ends = until + place;
        map(step, part, state, ends);
        state.counts[kRead] += part.pixels;
        if (a.bound) step.raise_last(part, at, state.work);
        const T now = spent[place / kPixels], size = step.update.step;
        T& soon = soonest[place / kPixels];
        std::int64_t changed = 0, first = part.pixels, end = 0;
        Vec<T> least = fill(kInfinity<T>);
        for (std::int64_t begin = 0; begin < part.pixels; begin += W) {
            const std::int64_t left = part.pixels - begin, count = left < W ? left : W, before = changed;
            alignas(64) T stays[W] = {};
            for (std::int64_t q = begin; q < begin + count; ++q) {
                T* const change = state.change + q * kRow;
                Vec<T> p[NV], here[NV];
                Mask<T> far{};
                for (int k = 0; k < NV; ++k) {
                    p[k] = at.factor[q] * load(at.rows + q * kRow + k * W);
                    here[k] = load(at.others + q * kRow + k * W);
                    const Vec<T> away = p[k] - here[k];
                    far |= ~((away <= same) & (away >= -same));
                }
                if (!any(far)) {
                    for (int k = 0; k < NV; ++k) store(change + k * W, Vec<T>{});
                    stays[q - begin] = 1;
                    continue;
                }
                ++changed;
                first = first < q ? first : q;
                end = q + 1;
                alignas(64) T row[kRow];
                for (int k = 0; k < NV; ++k) {
                    const Vec<T> point = size == T(1) ? p[k] : here[k] + size * (p[k] - here[k]);
                    store(row + k * W, point);
                    store(change + k * W, point - here[k]);
                }
                terms.pixel.put(x(), part.first + q, row);
            }
            Vec<T> when = fill(-kInfinity<T>);
            if (changed < before + count) {
                const Vec<T> slack = slacks_after(step, at, begin, ends + begin, left);
                when = select((load(stays) > T(0)) & (slack > T(0)), now + slack, when);
            }
            store_some(ends + begin, when, left);
            least = min<T>(load(ends + begin), least);
        }
        for (int l = 0; l < W; ++l) soon = lane(least, l) < soon ? lane(least, l) : soon;
        if (changed) scatter(part.first, {first, end}, changed, state);
    }
    // The changes of a part of a block that begins at pixel i. `changed` of the pixels in the range are not 0.
    void scatter(std::int64_t i, Range range, std::int64_t changed, State& state) const {
        const Range mine = terms.pixels(state.team);
        if (state.counts[kTooMany]) return;
        state.counts[kChanged] += changed;
        if (static_cast<T>(state.counts[kChanged]) * few.dear > kMostChanging * static_cast<T>(mine.end - mine.begin)) {
            state.counts[kTooMany] = 1;
            return;
        }
        few.scatter({i + range.begin, range.end - range.begin}, state.change + range.begin * kRow, state.taking,
                    state.work);
    }
};

}  // namespace fwcrf::FWCRF_ISA
