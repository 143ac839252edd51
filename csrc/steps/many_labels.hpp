// Steps with many labels and Potts terms: panels of a few labels through the kernels, one after the other, then all
// labels of a pixel through the map.
#pragma once

#include "runtime/blocks.hpp"
#include "steps/few_labels.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> struct ManyLabels {
    static constexpr std::int64_t W = kLanes<T>, kMost = 4 * W;
    static constexpr std::int64_t kAhead = 16;  // distance of prefetches, in pixels

    // True for more labels than 4 vectors hold, if panels support all terms and updates.
    static bool takes(const StepArgs<T>& a) {
        if (a.channels <= kMost) return false;
        if (a.channels > kMostLabels<T>) return true;  // the only way
        if (a.other || a.sum || a.dual || a.slopes || a.plain || a.shared || a.spreads) return false;
        const Start<T>* const s = a.start;
        // The start is written to the array of the steps only.
        if (s && (a.x != a.unary || s->map != Map::softmax || s->scale != T(-1) || s->out != a.out[0])) return false;
        for (int k = 0; k < a.steps; ++k)
            if (a.update[k].map >= Map::softmax_derivative || a.out[k] != a.out[0]) return false;
        for (int c = 0; c < a.terms; ++c)
            if (a.term[c].matrix) return false;
        return true;
    }

    const StepArgs<T>& a;
    std::int64_t width;  // labels of all panels but the last, whole vectors

    explicit ManyLabels(const StepArgs<T>& a) : a(a) {
        const std::int64_t count = (a.channels + kMost - 1) / kMost, each = (a.channels + count - 1) / count;
        width = (each + W - 1) / W * W;
    }

    // Calls act(first label, labels, offset in an array of panels) for each panel; a panel is an array (n, labels).
    template <typename F> inline void for_panels(F&& act) const {
        for (std::int64_t first = 0; first < a.channels; first += width)
            act(first, a.channels - first < width ? a.channels - first : width, a.n * first);
    }

    bool run() const {
        bool finite = true;
        if (only_softmax() && run_softmax(finite)) return finite;
        bool back = false;  // true if a step reads the old x, so that y needs its own buffer
        for (int step = 0; step < a.steps; ++step)
            back = back || a.update[step].keep != T(0) || a.update[step].step != T(1);
        const std::int64_t size = a.n * a.channels;
        const Lent memory((back ? 2 : 1) * size);
        T* const x = memory.values;
        T* const y = back ? x + size : x;
        begin(x);
        for (int step = 0; step < a.steps; ++step) {
            finite &= apply(x, y);
            finish_step(a.update[step], x, y, step + 1 == a.steps ? a.out[step] : nullptr);
        }
        return finite;
    }

    // True for full steps to softmax: panels share only the sums of exponentials, by which x is divided when it is
    // scattered next.
    bool only_softmax() const {
        for (int step = 0; step < a.steps; ++step) {
            const Update<T>& m = a.update[step];
            if (m.map != Map::softmax || m.keep != T(0) || m.step != T(1) || m.unary != T(1) || !(m.scale < T(0)))
                return false;
        }
        return a.unary && !a.bound;
    }
    // False if a sum of exponentials is too far from 1.
    bool run_softmax(bool& finite) const {
        const std::int64_t size = a.n * a.channels;
        const Lent memory(2 * size + 2 * a.n);
        T *const x = memory.values, *const u = x + size, *const factor = u + size, *const sum = factor + a.n;
        // u = unary minus the smallest unary of the pixel.
        for_rows([&](std::int64_t i, T*) {
            const T* const row = a.unary + i * a.channels;
            Vec<T> fewest = load(row);
            for_vectors(a.channels, [&](std::int64_t s) { fewest = min<T>(load(row + s), fewest); });
            T least = lane(fewest, 0);
            for (int l = 1; l < W; ++l) least = lane(fewest, l) < least ? lane(fewest, l) : least;
            for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
                for (std::int64_t s = 0; s < labels; ++s) u[at + i * labels + s] = row[first + s] - least;
                if (a.start) return;
                std::memcpy(x + at + i * labels, a.x + i * a.channels + first, labels * sizeof(T));
            });
            factor[i] = T(1);
            sum[i] = T(0);
        });
        const Shared<T> shared{factor, sum};
        for (int step = a.start ? -1 : 0; step < a.steps; ++step) {
            for_panels([&](std::int64_t, std::int64_t labels, std::int64_t at) {
                T* const out = x + at;
                const Start<T> start{Map::softmax, T(-1), nullptr, out};
                const bool begin = step < 0;
                finite &=
                    few_labels(StepArgs<T>{begin ? u + at : out, u + at, a.n, labels, a.terms, a.term, begin ? 0 : 1,
                                           begin ? nullptr : a.update + step, &out, nullptr, nullptr, nullptr, nullptr,
                                           a.threads, nullptr, false, begin ? &start : nullptr, &shared});
            });
            if (!divide(factor, sum)) return false;
        }
        for_rows([&](std::int64_t i, T*) {
            T* const row = a.out[a.steps - 1] + i * a.channels;
            for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
                for (std::int64_t s = 0; s < labels; ++s) row[first + s] = factor[i] * x[at + i * labels + s];
            });
        });
        return true;
    }
    // factor = 1 / sum, sum = 0. False if a sum is too small or too large.
    bool divide(T* factor, T* sum) const {
        bool bad = false;
        for (std::int64_t i = 0; i < a.n; ++i) {
            bad = bad || !(sum[i] > Power<T>::least && sum[i] < Power<T>::most);
            factor[i] = T(1) / sum[i];
            sum[i] = T(0);
        }
        return !bad;
    }

    // Copies x, or softmax(-unary), into panels.
    void begin(T* x) const {
        const std::int64_t length = padded();
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, MessageBound<T>&) {
            for (std::int64_t r = 0; r < W; ++r) {
                const T* const row = a.x + (first + (r < count ? r : 0)) * a.channels;
                for (std::int64_t s = 0; s < length; ++s)
                    rows[r * length + s] = s >= a.channels ? -kInfinity<T> : a.start ? -row[s] : row[s];
            }
            if (a.start) map_rows<T>(Map::softmax, rows, length, a.channels, rows + W * length);
            for (std::int64_t r = 0; r < count; ++r)
                for_panels([&](std::int64_t from, std::int64_t labels, std::int64_t at) {
                    std::memcpy(x + at + (first + r) * labels, rows + r * length + from, labels * sizeof(T));
                });
        });
    }

    struct Lent {
        T* const values;
        // One vector more, because whole vectors are read at the end.
        explicit Lent(std::int64_t size) : values(static_cast<T*>(take_block((size + W) * sizeof(T)))) {}
        Lent(const Lent&) = delete;
        ~Lent() { give_block(values); }
    };

    // y = the sum over the terms of weight (K + diag) x.
    bool apply(const T* x, T* y) const {
        const Update<T> nowhere{Map::none, T(1), T(0), T(1), T(0), T(0), Dual::none};
        bool finite = true;
        for_panels([&](std::int64_t, std::int64_t labels, std::int64_t at) {
            T* const out = y + at;
            finite &= few_labels(StepArgs<T>{x + at, nullptr, a.n, labels, a.terms, a.term, 1, &nowhere, &out, nullptr,
                                             nullptr, nullptr, nullptr, a.threads, nullptr, true});
        });
        return finite;
    }

    // Calls act(first pixel, pixels, memory for 2 W rows, bound) for groups of W pixels.
    template <typename F> void for_groups(F&& act) const {
        const std::int64_t groups = (a.n + W - 1) / W;
        Stop stop;
        in_parallel(a.threads, [&](Team team) {
            thread_local Scratch scratch;
            T* const rows = scratch.get<T>(2 * W * padded());
            MessageBound<T> bound;
            const Range mine = share(groups, team.thread, team.threads);
            for (std::int64_t g = mine.begin; g < mine.end; ++g)
                if (!stop.asked(g)) act(g * W, a.n - g * W < W ? a.n - g * W : W, rows, bound);
            raise_bound(a, bound);
        });
        stop.check();
    }
    template <typename F> void for_rows(F&& act) const {
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, MessageBound<T>&) {
            for (std::int64_t i = first; i < first + count; ++i) act(i, rows);
        });
    }
    std::int64_t padded() const { return (a.channels + W - 1) / W * W; }

    // The map and the rest of a step. Writes to x, or to `out` if it is not null.
    void finish_step(const Update<T>& update, T* x, const T* y, T* out) const {
        const std::int64_t length = padded();
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, MessageBound<T>& bound) {
            T given[W], *const spare = rows + W * length;
            for (std::int64_t r = 0; r < count; ++r)
                given[r] = prepare(update, first + r, x, y, rows + r * length, spare, bound);
            std::memset(rows + count * length, 0, (W - count) * length * sizeof(T));
            map_rows<T>(update.map, rows, length, a.channels, spare);
            for (std::int64_t r = 0; r < count; ++r) {
                finish(update, first + r, x, rows + r * length, spare, out);
                bound.raise(T(0), given[r] * rows[r * length + a.channels - 1]);
            }
        });
    }

    // row = v = scale (total(y) - y + unary u) + keep x, -inf past the labels. Returns y of the last label. Maps ignore
    // what all labels share: without the total, which may be much larger than y, less is lost to rounding.
    inline T prepare(const Update<T>& update, std::int64_t i, const T* x, const T* y, T* row, T* spare,
                     MessageBound<T>& bound) const {
        const bool plain = update.map == Map::none;
        const T scale = plain ? T(1) : update.scale, keep = plain ? T(0) : update.keep, weight = update.unary;
        const T* const unary = a.unary && weight != T(0) ? a.unary + i * a.channels : nullptr;
        if (unary) prefetch(unary + kAhead * a.channels, static_cast<int>(a.channels));
        get(y, i, spare);
        Vec<T> sums{};
        for (std::int64_t s = 0; s < padded(); s += W) sums += load(spare + s);
        const T whole = total<T>(sums);
        bound.raise(whole, T(0));
        for_vectors(a.channels, [&](std::int64_t s) {
            Vec<T> v = (plain ? whole : T(0)) - load(spare + s);
            if (unary) v += weight * load(unary + s);
            store(row + s, scale * v);
        });
        const T given = spare[a.channels - 1];
        if (keep != T(0)) {
            get(x, i, spare);
            for (std::int64_t s = 0; s < padded(); s += W) store(row + s, load(row + s) + keep * load(spare + s));
        }
        for (std::int64_t s = a.channels; s < padded(); ++s) row[s] = -kInfinity<T>;
        return given;
    }

    inline void finish(const Update<T>& update, std::int64_t i, T* x, T* row, T* spare, T* out) const {
        if (update.map != Map::none && update.step != T(1)) {
            get(x, i, spare);
            for (std::int64_t s = 0; s < padded(); s += W)
                store(row + s, load(spare + s) + update.step * (load(row + s) - load(spare + s)));
        }
        if (out) return put(out + i * a.channels, row, a.channels);
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
            put(x + at + i * labels, row + first, labels);
        });
    }

    // All labels of pixel i of an array of panels; zero past the labels.
    inline void get(const T* panels, std::int64_t i, T* row) const {
        // Values past the labels of a panel are overwritten by the next panel.
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
            const T* const from = panels + at + i * labels;
            prefetch(from + kAhead * labels, static_cast<int>(labels));
            for (std::int64_t s = 0; s < labels; s += W) store(row + first + s, load(from + s));
        });
        for (std::int64_t s = a.channels; s < padded(); ++s) row[s] = 0;
    }
    // Writes the labels only.
    static inline void put(T* to, const T* row, std::int64_t labels) {
        if (labels < W) return store_part(to, load(row), labels);
        for_vectors(labels, [&](std::int64_t s) { store(to + s, load(row + s)); });
    }
    // Calls act(first entry) for the vectors of a row of at least W entries; the last vector ends with the row.
    template <typename F> static inline void for_vectors(std::int64_t length, F&& act) {
        for (std::int64_t s = 0; s < length; s += W) act(Row<T>{length}.place(s));
    }
};

}  // namespace fwcrf::FWCRF_ISA
