// One step of a solver, block by block of pixels: P x + u, the map, the result, and the splat of the result for the
// next step.
#pragma once

#include "maps/simplex_rows.hpp"
#include "runtime/stop.hpp"
#include "steps/terms.hpp"

namespace fwcrf::FWCRF_ISA {

// Maps W rows of `length` values in place, of which the first `labels` are labels. W is the number of lanes of a
// vector.
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

// The current step of a thread, for few labels: all labels of a pixel fit into NV vectors.
template <typename T, int NV> struct Step {
    using Pixel = PixelRows<T, NV>;
    using Workspace = typename Terms<T, NV>::Workspace;
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kRow = Pixel::kRow;

    const StepArgs<T>& a;
    const Terms<T, NV>& terms;
    const Pixel& pixel;
    const T* x = nullptr;
    const T* other = nullptr;
    const T* point = nullptr;
    const T* next = nullptr;  // the point of the next derivative, for `rates`
    T* out = nullptr;
    T* goal = nullptr;
    T* sum = nullptr;
    Update<T> update{Map::none, T(1), T(0), T(1), T(1), T(0), Dual::none};
    bool carry = false;       // also splat the result for the next step
    bool bounded = false;     // compute MessageBound::all
    bool alone = false;       // a start: no kernels
    bool zero_sums = false;   // the labels of each pixel of x sum to 0
    double* rates = nullptr;  // of this thread and step: see StepArgs
    int number = -1;          // of the step, -1 for a start
    const bool lazy;          // lazy steps may follow, which read every result

    Step(const StepArgs<T>& a, const Terms<T, NV>& terms, bool lazy)
        : a(a), terms(terms), pixel(terms.pixel), lazy(lazy) {}

    // The result of the previous step.
    const T* end() const { return out ? out : a.x; }

    void begin(int step) {
        number = step;
        x = end();
        out = a.out[step];
        other = a.other ? a.other[step] : nullptr;
        point = a.point ? a.point[step] : nullptr;
        next = point_of(step + 1);
        goal = a.goal ? a.goal[step] : nullptr;
        zero_sums = derivative();
        update = a.update[step];
        const bool last = step + 1 == a.steps;
        sum = derivative() ? a.sum : nullptr;
        carry = !last && terms.carries();
        bounded = a.bound && step < 2;  // after the first step x sums to 1, so that later totals are the same
        alone = false;
        if (carry && passing(out, step + 1)) out = nullptr;
    }

    void begin(const Start<T>& start) {
        x = a.x;
        out = start.out;
        other = start.other;
        next = point_of(0);
        update = Update<T>{start.map, start.scale, T(0), start.step, T(0), T(0), Dual::none};
        if (derivative() && a.dual) update.dual = Dual::gradient;
        sum = derivative() ? a.sum : nullptr;
        carry = a.steps > 0 && terms.carries();
        alone = true;
        if (carry && passing(out, 0)) out = nullptr;
    }
    const T* point_of(int step) const {
        return !a.rates || step >= a.steps ? nullptr : a.point ? a.point[step] : a.other[step];
    }
    // True if the result of a step is only splatted: the array `to` is overwritten by step `next`, which does not read
    // it. Not writing it saves a third of what a step moves through memory.
    bool passing(const T* to, int next) const {
        const Update<T>& m = a.update[next];
        return to == a.out[next] && !lazy && !terms.shifted && !a.other && !a.sum && !a.dual && !a.goal &&
               m.keep == T(0) && m.step == T(1);
    }

    bool derivative() const { return update.map == Map::softmax_derivative || update.map == Map::project_derivative; }
    // True if v is more than a multiple of P x + u, or is stored.
    bool leaning() const {
        return update.keep != T(0) || update.lean != T(0) || update.dual == Dual::logits ||
               update.dual == Dual::gradient;
    }
    // True for softmax without the search for the largest entry, with powers to the base of Power.
    bool fast_softmax(const Workspace& work) const { return update.map == Map::softmax && !leaning() && !work.careful; }

    // Runs the step for a thread's share of the pixels, unless `stop` ends it.
    MessageBound<T> run(Team team, double* slopes, Barrier& barrier, Stop& stop) const {
        Workspace work = terms.workspace(team, slopes, number, number + 1);
        if (carry) terms.clear(work);
        std::int64_t blocks = 0;
        terms.for_blocks(terms.pixels(team), [&](const Block& block) {
            if (!stop.asked(++blocks)) run(block, work);
        });
        barrier.wait(team.threads);
        if (carry && !stop.stopped()) terms.complete(work);
        MessageBound<T> bound;
        bound.raise(work.all, lane(work.last, (a.channels - 1) % W));
        return bound;
    }

    // The rows of a block during a step.
    struct Rows {
        alignas(64) T rows[kPixels * kRow];    // v, then the result up to `factor`
        alignas(64) T given[kPixels * W];      // messages to the labels of the last vector
        alignas(64) T factor[kPixels];         // of the result; for derivatives the subtracted mean
        alignas(64) T others[kPixels * kRow];  // the points at which derivatives are taken
        alignas(64) T points[kPixels * kRow];  // the points if they are not `others`; then the next step's points
    };

    void run(const Block& block, Workspace& work) const {
        Rows at;
        if (other) pixel.get(other, block, at.others);
        if (point) pixel.get(point, block, at.points);
        do {
            if (alone) terms.scaled(block, query(work), at.rows);
            else terms.gradient(block, query(work), point ? at.points : at.others, work, at.rows, at.given);
            for (T& value : at.factor) value = T(1);
            if (leaning()) lean(block, at);
            if (rates && derivative()) {
                rates[0] += dot(block, at.rows, at.others);
                if (next) pixel.get(next, block, at.points);
                if (next) rates[1] += dot(block, at.rows, at.points);
            }
        } while (update.map != Map::none && !map_block(block, at, work));
        if (a.bound && !alone && !terms.matrices_too) raise_last(block, at, work);
        finish(block, at, work);
        if (rates && derivative()) rates[2] += inner(block, work.block, at.others);
        if (carry) terms.take(block, work);
    }

    static double dot(const Block& block, const T* some, const T* others) {
        Vec<T> sum[4] = {};  // one alone would wait for itself
        const std::int64_t end = block.pixels * kRow;
        for (std::int64_t i = 0; i < end; i += 4 * W)
            for (int k = 0; k < 4 && i + k * W < end; ++k) sum[k] += load(some + i + k * W) * load(others + i + k * W);
        return total<T>((sum[0] + sum[1]) + (sum[2] + sum[3]));
    }
    // <result, other>, or <result, log other> of a softmax.
    double inner(const Block& block, const T* result, const T* others) const {
        if (update.map == Map::project_derivative) return dot(block, result, others);
        Vec<T> sum{};
        for (std::int64_t i = 0; i < block.pixels * kRow; i += W) sum += load(result + i) * log<T>(load(others + i));
        return total<T>(sum);
    }

    typename Terms<T, NV>::Query query(const Workspace& work) const {
        const bool plain = update.map == Map::none;
        const T scale = plain ? T(1) : fast_softmax(work) ? update.scale * Power<T>::per_e : update.scale;
        const T past = plain || derivative() ? T(0) : -kInfinity<T>;
        // A map does not depend on the total, which is the same for all labels.
        return {x, scale, update.unary, (plain && !a.plain) || bounded, a.bound != nullptr, zero_sums, fill(past)};
    }

    void raise_last(const Block& block, const Rows& at, Workspace& work) const {
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const Vec<T> part = at.factor[q] * load(at.rows + q * kRow + pixel.last_begin());
            work.last = max<T>(load(at.given + q * W) * part, work.last);
        }
    }

    // Writes the result to `out` and to `work.block`, and splats it.
    void finish(const Block& block, const Rows& at, const Workspace& work) const {
        switch (update.map) {
        case Map::softmax_derivative: return finish<Map::softmax_derivative>(block, at, work);
        case Map::project_derivative: return finish<Map::project_derivative>(block, at, work);
        default: return finish<Map::none>(block, at, work);
        }
    }
    // Numbers of corners of lattices that are splatted at once: of a photograph, and in inference of a volume.
    template <Map M> static constexpr bool fused(int corners) {
        return corners == 6 || (M == Map::none && corners == 5);
    }
    template <Map M> void finish(const Block& block, const Rows& at, const Workspace& work) const {
        int first = -1;  // a lattice that is splatted while the rows are in registers
        for (int c = a.terms - 1; c >= 0; --c)
            if (work.splats[c] && fused<M>(terms.lattice[c].corners)) first = c;
        if (first < 0) finish<M, 0>(block, at, work.block, 0, nullptr);
        else if (terms.lattice[first].corners == 6) finish<M, 6>(block, at, work.block, first, work.splats[first]);
        else finish<M, fused<M>(5) ? 5 : 6>(block, at, work.block, first, work.splats[first]);
        for (int c = 0; c < a.terms; ++c)
            if (work.splats[c] && c != first) terms.splat(c, block, work.block, work.splats[c]);
    }

    template <Map M, int C> void finish(const Block& block, const Rows& at, T* copy, int c, T* values) const {
        const std::int64_t channels = a.channels;
        const std::int32_t* index = C ? terms.blurred[c].rows_of(terms.lattice[c]) + block.first * C : nullptr;
        const T* weight = C ? terms.lattice[c].splat + block.first * C : nullptr;
        const T *row = at.rows, *p = at.others;
        T* to = out ? out + block.first * channels : nullptr;
        T* all = M == Map::none || !sum ? nullptr : sum + block.first * channels;
        // A row may be written as whole vectors if the next rows of this block overwrite its end.
        const std::int64_t whole = block.pixels - pixel.overhang;
        const bool far = C && terms.blurred[c].far;
        for (std::int64_t q = 0; q < block.pixels; ++q, row += kRow, p += kRow, copy += kRow, index += C, weight += C) {
            if (far) terms.fetch(index, C, block.first + q, values);
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) {
                v[k] = result<M>(load(row + k * W), at.factor[q], p + k * W, update.step);
                store(copy + k * W, v[k]);
            }
            if (M != Map::none && all) {
                add_to(all, q < whole, alone, v);
                all += channels;
            }
            if (to) {
                // The array has left the first-level cache since it was read.
                for (int e = 0; e < kRow; e += 64 / static_cast<int>(sizeof(T)))
                    __builtin_prefetch(to + 8 * channels + e, 1, 3);
                write(to, q < whole, v);
                to += channels;
            }
            for (int m = 0; m < C; ++m) add_row<T, NV>(values + index[m] * kRow, weight[m], v);
        }
    }

    // The result of the step from a vector of a row and the row's factor, or mean for derivatives.
    template <Map M> static inline Vec<T> result(Vec<T> v, T factor, const T* p, T step) {
        if (M == Map::softmax_derivative) return step * (load(p) * (v - factor));
        if (M == Map::project_derivative) return select(load(p) > T(0), step * (v - factor), Vec<T>{});
        return factor * v;
    }

    // Writes a row, which is zero past the labels.
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
        prefetch(all + kPixels * a.channels, kRow);
        Vec<T> added[NV];
        for (int k = 0; k < NV; ++k) added[k] = Pixel::vector(all, k, whole, a.channels) + v[k];
        write(all, whole, added);
    }

    // From scale (P x + u) to the result, zero past the labels. False if the fast softmax is not precise enough here;
    // then the block is computed again, carefully.
    bool map_block(const Block& block, Rows& at, Workspace& work) const {
        const std::int64_t count = block.pixels, whole = (count + W - 1) / W * W;
        T* const rows = at.rows;
        for (std::int64_t i = count * kRow; i < whole * kRow; ++i) rows[i] = 0;
        if (fast_softmax(work)) {
            for (std::int64_t q = 0; q < whole; q += W)
                if (!exponentials(block, at, q)) {
                    work.careful = true;
                    return false;
                }
            if (update.step != T(1) || update.dual != Dual::none) divide(block, at);
        } else if (derivative()) {
            for (std::int64_t q = 0; q < whole; q += W) derive(at, q);
            return true;
        } else {
            for (std::int64_t q = 0; q < whole; q += W) map(rows + q * kRow);
        }
        if (update.dual == Dual::multipliers) add_multipliers(block, rows);
        if (update.step != T(1)) step_towards(block, rows);
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
            if (goal) pixel.put(goal, block.first + q, rows + q * kRow);
            for (int k = 0; k < NV; ++k) {
                T* const at = rows + q * kRow + k * W;
                store(at, here[k] + update.step * (load(at) - here[k]));
            }
        }
    }

    // Exponentials of W rows; `factor` = 1 / sum, or Shared::sum += sum. False if a sum is out of the precise range.
    bool exponentials(const Block& block, Rows& at, std::int64_t first) const {
        if constexpr (NV == 1)
            if (!a.shared) return exponentials_of_one_vector(at, first);
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

    // The same for rows of one vector, with a lane per pixel: only as many powers as labels, and relative to the
    // largest entry.
    bool exponentials_of_one_vector(Rows& at, std::int64_t first) const {
        Vec<T> v[W], sum{};
        for (int r = 0; r < W; ++r) v[r] = load(at.rows + (first + r) * kRow);
        transpose<T>(v);
        const int labels = static_cast<int>(a.channels);
        Vec<T> top = v[0];
        for (int s = 1; s < labels; ++s) top = max<T>(v[s], top);
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
        map_rows(update.map, rows, kRow, a.channels, block);
    }

    // The value that the derivative of the map subtracts from each of W rows: <p, v>, or the mean of v over the support
    // of p.
    void derive(Rows& at, std::int64_t first) const {
        const T *const p = at.others + first * kRow, *const rows = at.rows + first * kRow;
        if (update.map == Map::softmax_derivative) {
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
                sum[r] += select(support, load(rows + r * kRow + k * W), Vec<T>{});
                count[r] += select(support, fill(T(1)), Vec<T>{});
            }
        }
        store(at.factor + first, sums<T>(sum) / sums<T>(count));
    }

    // rows += keep x + lean w; with Dual::logits or Dual::gradient the new w is stored.
    void lean(const Block& block, Rows& at) const {
        T* const rows = at.rows;
        const Vec<T> past = fill(derivative() || update.map == Map::none ? T(0) : -kInfinity<T>);
        for (std::int64_t q = 0; q < block.pixels; ++q) {
            const std::int64_t i = block.first + q;
            T* const row = rows + q * kRow;
            Vec<T> v[NV];
            for (int k = 0; k < NV; ++k) v[k] = load(row + k * W);
            if (update.keep != T(0)) add(update.keep, x, i, v);
            if (update.lean != T(0)) add(update.lean, a.dual, i, v);
            pixel.set_past(v, past);
            if (update.dual == Dual::logits) keep_logits(i, v);
            for (int k = 0; k < NV; ++k) store(row + k * W, v[k]);
            if (update.dual == Dual::gradient) pixel.put(a.dual, i, row);
        }
    }

    inline void add(T weight, const T* array, std::int64_t i, Vec<T> (&v)[NV]) const {
        Vec<T> there[NV];
        pixel.get(array, i, there);
        for (int k = 0; k < NV; ++k) v[k] += weight * there[k];
    }

    // w = v minus its largest entry: the ratios of the exponentials stay the same.
    void keep_logits(std::int64_t i, const Vec<T> (&v)[NV]) const {
        alignas(64) T row[kRow];
        Vec<T> most = v[0];
        for (int k = 1; k < NV; ++k) most = max<T>(v[k], most);
        T top = lane(most, 0);
        for (int l = 1; l < W; ++l) top = lane(most, l) > top ? lane(most, l) : top;
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

// Raises the message bound of the caller by the bound of one thread.
template <typename T> static void raise_bound(const StepArgs<T>& a, const MessageBound<T>& found) {
    if (!a.bound) return;
    const Alone alone;
    a.bound->raise(found.all, found.last);
}

}  // namespace fwcrf::FWCRF_ISA
