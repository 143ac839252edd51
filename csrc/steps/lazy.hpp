// Lazy steps: when few pixels change, a step costs what changes.
//
// P is linear, so that P x is kept up to date from the changes of x alone: the change goes through the kernels, and is
// added to the blurred lattices and filtered grids of x, from which P x can be read at any pixel. A pixel that is not
// read keeps its x, for a reason that is checked. With v = scale (P x + u) + keep x as in Update, and v_a, v_b its two
// largest entries at the last reading,
//
//     slack = v_a - v_b - 1                                          projection
//             v_a - v_b                                              vertex
//             log(1 + t / q), q = (labels - 1) exp(v_b - v_a)        softmax, t half the tolerance
//
// With a positive slack a projection gives the vertex of label a, and still does while v_a - v_b has changed by less
// than the slack. For a softmax q is at least 1 - x_a; when no difference of two entries of v changes by more than r,
// no ratio of two x changes by more than exp(r), and no x by more than q (exp(r) - 1), which is t for the slack. A step
// changes a difference of two entries of v by at most
//
//     |scale| sum_c |potts_c| bound_c,
//
// with the bounds of LatticeChange for the whole lattice and of GridChange for a block of pixels. These bounds are
// added up in `spent`, a number per block, and a pixel is read again when `spent` reaches until = spent + slack at the
// last reading. A projection to another point than a vertex is read in every step, and so is a pixel whose x has
// changed in the step before, which changes its own v through `keep` and the diagonal. A pixel that is read changes if
// p - x has an entry of more than `same`: t for a softmax, else the tolerance, and at least a few units of rounding.
//
// When a step changes no pixel, no later step does.
#pragma once

#include "grid/change.hpp"
#include "lattice/change.hpp"
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
    GridChange<T, NV> grid[kMaxTerms];
    T dear = 1;            // the cost of a pixel, relative to a grid with five coarse points along two axes
    T half = 0;            // half the tolerance of a softmax
    T same = kSame<T>;     // an x within this distance of p does not change
    int fewest = kFewest;  // steps left for which a change of ways pays
    const bool possible;   // false if steps are whole for another reason than their cost
    T* until;              // (n)
    T* spent;              // per block, see `slot`
    T* moved;              // (threads, kMaxTerms): bounds of the lattices
    std::int64_t* counts;  // (threads, kCounts)
    bool weighed = false;

    static constexpr int kCounts = 8;
    enum Count { kRead, kChanged, kTooMany, kSampled, kChanging, kMoving };
    // The kinds of the next step: of all pixels; of the pixels that need it; none, since nothing changes any more.
    enum class Way { whole, lazy, done };

    Lazy(const StepArgs<T>& a, Terms<T, NV>& terms, Scratch& scratch) : a(a), terms(terms), possible(plan()) {
        if (!possible) return;
        Parts parts;
        layout(parts);
        parts.base = scratch.get<char>(parts.bytes);
        parts.bytes = 0;
        layout(parts);
        for (int c = 0; c < a.terms; ++c)
            if (terms.is_grid(c)) grid[c].begin();
    }

    // Of a thread, for a run.
    struct State {
        Team team;
        Workspace work;
        std::int64_t* counts;
        int not_before;              // no search for lazy steps before this step
        const T* values[kMaxTerms];  // the blurred lattices to read from
        typename GridChange<T, NV>::Lines taking[kMaxTerms], reading[kMaxTerms];
        // A batch of pixels: their numbers, and `spent` of their blocks.
        std::int64_t count, pixel[kPixels];
        T spent[kPixels];
        Rows at;  // `others` is the old x
    };
    void begin(State& state, Team team) const {
        state.team = team;
        state.work = terms.workspace(team, nullptr);
        state.counts = counts + team.thread * kCounts;
        state.not_before = 1;
        state.count = 0;
    }

    // True if a lazy step would pay after step k, or if step k may be the last, to be called when the kernels have been
    // applied for step k. Every thread of a region calls this, as all that follow.
    bool pays(int k, const Step<T, NV>& step, State& state, Barrier& barrier) const {
        if (!possible || k < state.not_before || a.steps - k < fewest) return false;
        for (int c = 0; c < a.terms; ++c) state.values[c] = terms.is_grid(c) ? nullptr : terms.blurred[c].result();
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
            state.count = block.pixels;
            for (std::int64_t q = 0; q < block.pixels; ++q) state.pixel[q] = block.first + q;
            read(step.update, state);
            map(step, state, [&](std::int64_t q, T slack) { until[block.first + q] = slack; });
            state.counts[kSampled] += block.pixels;
            for (std::int64_t q = 0; q < block.pixels; ++q) {
                const T far = distance(state.at, q);
                change += far;
                if (far <= same) continue;
                until[block.first + q] = -kInfinity<T>;
                ++state.counts[kMoving];
            }
        });
        barrier.wait(state.team.threads);
        const T sampled = static_cast<T>(sum(kSampled, state.team));
        T all = 0;
        for (int t = 0; t < state.team.threads; ++t) all += moved[t * kMaxTerms];
        const T near = kNear * all / sampled;
        for_sample([&](const Block& block) {
            for (std::int64_t q = 0; q < block.pixels; ++q) state.counts[kChanging] += !(until[block.first + q] > near);
        });
        state.count = 0;
        barrier.wait(state.team.threads);
        // Pixels between labels are read in every step, but when none of them moves, a step that looks at all pixels
        // tells whether it is the last.
        return static_cast<T>(sum(kChanging, state.team)) * dear <= kMostSampled * sampled || !sum(kMoving, state.team);
    }

    // A whole step, as `Step::run`, that prepares lazy steps: the change is scattered instead of the result.
    MessageBound<T> watch(const Step<T, NV>& step, State& state, Barrier& barrier, Stop& stop) {
        const Team team = state.team;
        const Range mine = terms.pixels(team);
        for (int c = 0; c < a.terms; ++c) {
            if (terms.is_grid(c)) continue;
            lattice[c].keep(terms.blurred[c].result(), team);
            state.values[c] = lattice[c].values;
            if (!weighed) lattice[c].weigh(mine, team);
        }
        barrier.wait(team.threads);
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c) && !weighed) lattice[c].merge(team);
        start_changes(state);
        state.work.careful = true;  // a softmax in units of v
        std::int64_t number = 0;
        terms.for_blocks(mine, [&](const Block& block) {
            if (stop.asked(++number)) return;
            spent[slot(block, team)] = 0;
            terms.gradient(block, step.query(state.work), nullptr, state.work, state.at.rows, state.at.given);
            if (step.leaning()) step.lean(block, state.at);
            state.count = block.pixels;
            for (std::int64_t q = 0; q < block.pixels; ++q) {
                state.pixel[q] = block.first + q;
                state.spent[q] = 0;
            }
            terms.pixel.get(x(), block, state.at.others);
            settle(step, state);
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
                grid[c].filter(team, barrier);
            } else {
                terms.blurred[c].blur(terms.lattice[c], team, false);
                moved[team.thread * kMaxTerms + c] = lattice[c].add(terms.blurred[c].result(), team);
            }
        }
        barrier.wait(team.threads);
        const T size = size_of(step.update.scale) * (T(1) + kRounding), of_lattices = size * bound_of_lattices(team);
        start_changes(state);
        std::int64_t number = 0;
        state.count = 0;
        terms.for_blocks(terms.pixels(team), [&](const Block& block) {
            if (stop.asked(++number)) return;
            T& now = spent[slot(block, team)];
            now += of_lattices + size * bound_of_grids(block, state);
            for (std::int64_t i = block.first, end = i + block.pixels; i < end; i += W) {
                if (!any(load_some(until + i, end - i) <= now)) continue;
                for (std::int64_t p = i; p < i + W && p < end; ++p) {
                    if (!(until[p] <= now) || spared(p, now, size, of_lattices)) continue;
                    state.pixel[state.count] = p;
                    state.spent[state.count] = now;
                    if (++state.count == kPixels) finish(step, state);
                }
            }
        });
        if (state.count) finish(step, state);
        barrier.wait(team.threads);
        return bound(state);
    }

    // The kind of the step after step k, which `watch` or `run` took.
    Way next(int k, bool watched, State& state) const {
        const T share = watched ? T(0) : static_cast<T>(sum(kRead, state.team)) / static_cast<T>(a.n);
        if (share * dear > kMostRead || sum(kTooMany, state.team)) {
            state.not_before = k + kPause;
            for (int c = 0; c < a.terms; ++c)
                if (terms.is_grid(c)) grid[c].forget(state.team);
            return Way::whole;
        }
        return sum(kChanged, state.team) ? Way::lazy : Way::done;
    }
    // Pixels that the step has read.
    std::int64_t reads(Team team) const { return sum(kRead, team); }

  private:
    static constexpr int kPause = 4;  // steps until the next search, when a lazy step has cost too much
    static constexpr T kMostRead = T(0.3);
    // Slacks up to this multiple of the mean change of x are likely to be used up.
    static constexpr T kNear = 2;
    static constexpr int kFewest = 3, kFewestOfSoftmax = 6;
    static constexpr std::int64_t kApart = 64, kFewestSampled = 32;    // one block in so many is a sample, but so many
    static constexpr T kRounding = kSingle<T> ? 1e-5 : 1e-12;          // of v, relative to 1 + |v|
    static constexpr T kMostSampled = T(0.2), kMostChanging = T(0.2);  // pixels; with more, steps are whole

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
            fewest = kFewestOfSoftmax;
        } else if (first.map != Map::project && first.map != Map::vertex) {
            return false;
        } else {
            same = at_least_rounding(a.tolerance);
        }
        if (!steps_alike(a)) return false;
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c)) lattice[c].plan(terms.lattice[c], kRow);
            else if (!grid[c].plan(a.term[c].grid, terms.grid[c], a.threads)) return false;
            else if (const T cost = static_cast<T>(grid[c].touched) / T(25); cost > dear) dear = cost;
        return true;
    }
    void layout(Parts& parts) {
        parts.take(until, a.n);
        parts.take(spent, (a.n / terms.across + 1) * blocks_per_line() + a.threads);
        parts.take(moved, a.threads * kMaxTerms);
        parts.take(counts, a.threads * kCounts);
        for (int c = 0; c < a.terms; ++c)
            if (terms.is_grid(c)) grid[c].layout(parts);
            else lattice[c].layout(parts, a.threads);
    }
    std::int64_t blocks_per_line() const { return (terms.across + kPixels - 1) / kPixels; }
    // The number of a block; threads whose shares meet inside a line have blocks of their own.
    std::int64_t slot(const Block& block, Team team) const {
        const std::int64_t line = block.first / terms.across;
        return line * blocks_per_line() + (block.first - line * terms.across) / kPixels + team.thread;
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
    bool spared(std::int64_t i, T now, T size, T of_all) const {
        if (until[i] == -kInfinity<T>) return false;
        T own = 0;
        for (int c = 0; c < a.terms; ++c)
            if (!terms.is_grid(c)) own += size_of(a.term[c].potts) * lattice[c].bound(i);
        until[i] += of_all - size * own;
        return until[i] > now;
    }
    T bound_of_grids(const Block& block, State& state) const {
        T all = 0;
        for (int c = 0; c < a.terms; ++c) {
            if (!terms.is_grid(c)) continue;
            const std::int64_t line = grid[c].line_of(block.first),
                               p = block.first - line * grid[c].pixels(grid[c].last);
            grid[c].find_read(line, state.reading[c]);
            all += size_of(a.term[c].potts) * grid[c].bound(state.reading[c], p, p + block.pixels);
        }
        return all;
    }

    void start_changes(State& state) const {
        // A new workspace: the old one may keep a line of the grid as it was before.
        state.work = terms.workspace(state.team, nullptr);
        terms.clear(state.work);
        state.counts[kRead] = state.counts[kChanged] = state.counts[kTooMany] = 0;
    }
    void finish(const Step<T, NV>& step, State& state) {
        read(step.update, state);
        settle(step, state);
        state.count = 0;
    }

    // v of the pixels of a batch, and their x.
    void read(const Update<T>& update, State& state) const {
        const T of_unary = a.unary ? update.scale * update.unary : T(0);
        const Vec<T> past = fill(-kInfinity<T>);
        for (std::int64_t q = 0; q < state.count; ++q) {
            const std::int64_t i = state.pixel[q];
            Vec<T> here[NV], v[NV];
            terms.pixel.get(x(), i, here);
            const T own = update.keep - update.scale * terms.diagonal[i];
            for (int k = 0; k < NV; ++k) {
                store(state.at.others + q * kRow + k * W, here[k]);
                v[k] = own * here[k];
            }
            for (int c = 0; c < a.terms; ++c) {
                const T weight = -update.scale * a.term[c].potts;
                if (terms.is_grid(c)) {
                    const std::int64_t line = grid[c].line_of(i);
                    grid[c].find_read(line, state.reading[c]);
                    grid[c].read(state.reading[c], i - line * grid[c].pixels(grid[c].last), weight, v);
                } else if (terms.lattice[c].corners == 6) {
                    slice<6>(c, i, weight, state.values[c], v);
                } else {
                    slice<0>(c, i, weight, state.values[c], v);
                }
            }
            if (a.bound) store(state.at.given + q * W, terms.pixel.last_vector(v) * (T(-1) / update.scale));
            if (of_unary != T(0)) {
                Vec<T> u[NV];
                terms.pixel.get(a.unary, i, u);
                for (int k = 0; k < NV; ++k) v[k] += of_unary * u[k];
            }
            terms.pixel.set_past(v, past);
            for (int k = 0; k < NV; ++k) store(state.at.rows + q * kRow + k * W, v[k]);
        }
    }
    template <int C> void slice(int c, std::int64_t i, T scale, const T* values, Vec<T> (&v)[NV]) const {
        const FilterArgs<T>& l = terms.lattice[c];
        const int corners = C ? C : l.corners;
        const std::int32_t* const index = l.index + i * corners;
        const T* const weight = l.slice + i * corners;
        for (int m = 0; m < corners; ++m) {
            const T* const row = values + index[m] * kRow;
            const T w = scale * weight[m];
            for (int k = 0; k < NV; ++k) v[k] += w * load(row + k * W);
        }
    }

    // Maps the rows of a batch, from v to p. Calls act(number in the batch, slack) before.
    template <typename F> void map(const Step<T, NV>& step, State& state, F&& act) const {
        T* const rows = state.at.rows;
        const std::int64_t whole = (state.count + W - 1) / W * W;
        for (std::int64_t i = state.count * kRow; i < whole * kRow; ++i) rows[i] = 0;
        for (std::int64_t first = 0; first < whole; first += W) {
            alignas(64) T slack[W];
            store(slack, slacks(step.update.map, rows + first * kRow));
            for (int r = 0; r < W && first + r < state.count; ++r) act(first + r, slack[r]);
            step.map(rows + first * kRow);
        }
    }
    // Of W rows, and less a little for rounding.
    Vec<T> slacks(Map map, const T* rows) const {
        Vec<T> one[W], two[W];
        const Vec<T> never = fill(-kInfinity<T>);
        for (int r = 0; r < W; ++r) {
            one[r] = load(rows + r * kRow);
            two[r] = never;
            for (int k = 1; k < NV; ++k) {
                const Vec<T> v = load(rows + r * kRow + k * W);
                two[r] = max<T>(min<T>(one[r], v), two[r]);
                one[r] = max<T>(v, one[r]);
            }
        }
        transpose<T>(one);
        transpose<T>(two);
        Vec<T> first = one[0], second = two[0];
        for (int c = 1; c < W; ++c) {
            second = max<T>(min<T>(first, one[c]), max<T>(two[c], second));
            first = max<T>(one[c], first);
        }
        if (map != Map::softmax)
            return (first - second) - (map == Map::project ? T(1) : T(0)) - kRounding * (T(1) + max<T>(first, -first));
        const Vec<T> z = half / (static_cast<T>(a.channels) * exp<T>(second - first));
        return select(z < T(0.1), z - T(0.5) * z * z, log<T>(T(1) + z));
    }

    // The change of pixel q of a mapped batch and its new x. False if it does not change.
    inline bool moves(T step, const Rows& at, std::int64_t q, Vec<T> (&change)[NV], Vec<T> (&point)[NV]) const {
        bool found = false;
        for (int k = 0; k < NV; ++k) {
            const Vec<T> here = load(at.others + q * kRow + k * W), p = load(at.rows + q * kRow + k * W);
            const Vec<T> left = p - here;
            point[k] = step == T(1) ? p : here + step * left;
            change[k] = point[k] - here;
            found = found || any(~((left <= same) & (left >= -same)));
        }
        return found;
    }

    // The largest entry of |p - x| of pixel q of a mapped batch.
    static T distance(const Rows& at, std::int64_t q) {
        Vec<T> most{};
        for (int k = 0; k < NV; ++k) {
            const Vec<T> left = load(at.rows + q * kRow + k * W) - load(at.others + q * kRow + k * W);
            most = max<T>(max<T>(left, -left), most);
        }
        T found = 0;
        for (int l = 0; l < W; ++l) found = lane(most, l) > found ? lane(most, l) : found;
        return found;
    }

    // From v of a batch to its x: writes pixels that change, scatters their changes, and sets `until`.
    void settle(const Step<T, NV>& step, State& state) {
        map(step, state, [&](std::int64_t q, T slack) {
            until[state.pixel[q]] = slack > T(0) ? state.spent[q] + slack : -kInfinity<T>;
        });
        state.counts[kRead] += state.count;
        for (std::int64_t q = 0; q < state.count && a.bound; ++q) {
            const Vec<T> likely = load(state.at.rows + q * kRow + terms.pixel.last_begin());
            state.work.last = max<T>(load(state.at.given + q * W) * likely, state.work.last);
        }
        for (std::int64_t q = 0; q < state.count; ++q) {
            Vec<T> change[NV], point[NV];
            if (!moves(step.update.step, state.at, q, change, point)) continue;
            const std::int64_t i = state.pixel[q];
            until[i] = -kInfinity<T>;
            alignas(64) T row[kRow];
            for (int k = 0; k < NV; ++k) store(row + k * W, point[k]);
            terms.pixel.put(x(), i, row);
            scatter(i, change, state);
        }
    }
    void scatter(std::int64_t i, const Vec<T> (&change)[NV], State& state) {
        const Range mine = terms.pixels(state.team);
        if (state.counts[kTooMany]) return;
        if (static_cast<T>(++state.counts[kChanged]) * dear > kMostChanging * static_cast<T>(mine.end - mine.begin)) {
            state.counts[kTooMany] = 1;
            return;
        }
        for (int c = 0; c < a.terms; ++c) {
            if (terms.is_grid(c)) {
                const std::int64_t line = grid[c].line_of(i);
                grid[c].find_taking(line, state.taking[c]);
                grid[c].take(change, state.taking[c], i - line * grid[c].pixels(grid[c].last), state.team.thread);
                continue;
            }
            const FilterArgs<T>& l = terms.lattice[c];
            const std::int32_t* const index = l.index + i * l.corners;
            const T* const weight = l.splat + i * l.corners;
            for (int m = 0; m < l.corners; ++m)
                add_row<T, NV>(state.work.splats[c] + index[m] * kRow, weight[m], change);
        }
    }
};

}  // namespace fwcrf::FWCRF_ISA
