// Steps with more labels than the registers hold.
#pragma once

#include "fused_pass.hpp"
#include "memory.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

template <typename T> static bool few_labels(const FusedArgs<T>& a);

// More labels than the registers hold, with Potts terms: panels of some of them, one after the other, through the
// kernels, then all labels of a pixel through the oracle.
template <typename T> struct Panels {
    static constexpr std::int64_t W = kLanes<T>, kMost = 4 * W;
    static constexpr std::int64_t kAhead = 16;  // pixels that are asked for before it is their turn

    const FusedArgs<T>& a;
    std::int64_t width;  // labels of all panels but the last, whole vectors

    explicit Panels(const FusedArgs<T>& a) : a(a) {
        const std::int64_t count = (a.channels + kMost - 1) / kMost, each = (a.channels + count - 1) / count;
        width = (each + W - 1) / W * W;
    }

    // For each panel its first label, how many it has, and where it begins in an array of panels, (n, labels) each.
    template <typename F> inline void for_panels(F&& act) const {
        for (std::int64_t first = 0; first < a.channels; first += width)
            act(first, a.channels - first < width ? a.channels - first : width, a.n * first);
    }

    bool run() const {
        bool finite = true;
        if (undivided() && run_undivided(finite)) return finite;
        bool back = false;  // whether some step looks back to x, which is else overwritten by its own sum
        for (int step = 0; step < a.steps; ++step) back = back || a.move[step].keep != T(0) || a.move[step].step != T(1);
        const std::int64_t size = a.n * a.channels;
        const Lent memory((back ? 2 : 1) * size);
        T* const x = memory.values;
        T* const y = back ? x + size : x;
        begin(x);
        for (int step = 0; step < a.steps; ++step) {
            finite &= apply(x, y);
            answer(a.move[step], x, y, step + 1 == a.steps ? a.out[step] : nullptr);
        }
        return finite;
    }

    // Full steps to softmax: a panel needs nothing of the others but the sums of their exponentials, by which x is divided
    // when it is next scattered.
    bool undivided() const {
        for (int step = 0; step < a.steps; ++step) {
            const Move<T>& m = a.move[step];
            if (m.map != Map::softmax || m.keep != T(0) || m.step != T(1) || m.unary != T(1) || !(m.scale < T(0))) return false;
        }
        return a.unary && !a.reach;
    }
    // False if sums of exponentials are too far from 1 for that.
    bool run_undivided(bool& finite) const {
        const std::int64_t size = a.n * a.channels;
        const Lent memory(2 * size + 2 * a.n);
        T *const x = memory.values, *const u = x + size, *const factor = u + size, *const sum = factor + a.n;
        // By what each label is behind the best one of its pixel.
        for_rows([&](std::int64_t i, T*) {
            const T* const row = a.unary + i * a.channels;
            Vec<T> fewest = load(row);
            for_vectors(a.channels, [&](std::int64_t s) { fewest = smaller<T>(load(row + s), fewest); });
            T least = fewest[0];
            for (int l = 1; l < W; ++l) least = fewest[l] < least ? fewest[l] : least;
            for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
                for (std::int64_t s = 0; s < labels; ++s) u[at + i * labels + s] = row[first + s] - least;
                if (a.before) return;
                std::memcpy(x + at + i * labels, a.x + i * a.channels + first, labels * sizeof(T));
            });
            factor[i] = T(1);
            sum[i] = T(0);
        });
        const Shared<T> shared{factor, sum};
        for (int step = a.before ? -1 : 0; step < a.steps; ++step) {
            for_panels([&](std::int64_t, std::int64_t labels, std::int64_t at) {
                T* const out = x + at;
                const Before<T> before{Map::softmax, T(-1), nullptr, out};
                const bool begin = step < 0;
                finite &= few_labels(FusedArgs<T>{begin ? u + at : out, u + at, a.n, labels, a.terms, a.term, begin ? 0 : 1,
                                                  begin ? nullptr : a.move + step, &out, nullptr, nullptr, nullptr, nullptr,
                                                  a.threads, nullptr, false, begin ? &before : nullptr, &shared});
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
    // factor = 1 / sum, and the sums begin again. False if one is too small or too large.
    bool divide(T* factor, T* sum) const {
        bool bad = false;
        for (std::int64_t i = 0; i < a.n; ++i) {
            bad = bad || !(sum[i] > Power<T>::least && sum[i] < Power<T>::most);
            factor[i] = T(1) / sum[i];
            sum[i] = T(0);
        }
        return !bad;
    }

    // Where the steps begin, in panels.
    void begin(T* x) const {
        const std::int64_t length = padded();
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, Reach<T>&) {
            for (std::int64_t r = 0; r < W; ++r) {
                const T* const row = a.x + (first + (r < count ? r : 0)) * a.channels;
                for (std::int64_t s = 0; s < length; ++s)
                    rows[r * length + s] = s >= a.channels ? -static_cast<T>(__builtin_inf()) : a.before ? -row[s] : row[s];
            }
            if (a.before) map_rows<T>(Map::softmax, rows, length, a.channels, rows + W * length);
            for (std::int64_t r = 0; r < count; ++r)
                for_panels([&](std::int64_t from, std::int64_t labels, std::int64_t at) {
                    std::memcpy(x + at + (first + r) * labels, rows + r * length + from, labels * sizeof(T));
                });
        });
    }

    struct Lent {
        T* const values;
        // Whole vectors may be read at the end.
        explicit Lent(std::int64_t size) : values(static_cast<T*>(take_block((size + W) * sizeof(T)))) {}
        Lent(const Lent&) = delete;
        ~Lent() { give_block(values); }
    };

    // y = the sum over the terms of weight (K + diag) x.
    bool apply(const T* x, T* y) const {
        const Move<T> nowhere{Map::none, T(1), T(0), T(1), T(0), T(0), Dual::none};
        bool finite = true;
        for_panels([&](std::int64_t, std::int64_t labels, std::int64_t at) {
            T* const out = y + at;
            finite &= few_labels(FusedArgs<T>{x + at, nullptr, a.n, labels, a.terms, a.term, 1, &nowhere, &out, nullptr,
                                              nullptr, nullptr, nullptr, a.threads, nullptr, true});
        });
        return finite;
    }

    // A thread's pixels, as many at a time as a vector has lanes, with memory for twice as many rows.
    template <typename F> void for_groups(F&& act) const {
        const std::int64_t groups = (a.n + W - 1) / W;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
        {
            thread_local Scratch scratch;
            T* const rows = scratch.get<T>(2 * W * padded());
            Reach<T> reach;
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
            for (std::int64_t g = 0; g < groups; ++g) act(g * W, a.n - g * W < W ? a.n - g * W : W, rows, reach);
            note(a, reach);
        }
    }
    template <typename F> void for_rows(F&& act) const {
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, Reach<T>&) {
            for (std::int64_t i = first; i < first + count; ++i) act(i, rows);
        });
    }
    std::int64_t padded() const { return (a.channels + W - 1) / W * W; }

    // Into x, or into `out` if there is one.
    void answer(const Move<T>& move, T* x, const T* y, T* out) const {
        const std::int64_t length = padded();
        for_groups([&](std::int64_t first, std::int64_t count, T* rows, Reach<T>& reach) {
            T given[W], *const spare = rows + W * length;
            for (std::int64_t r = 0; r < count; ++r)
                given[r] = prepare(move, first + r, x, y, rows + r * length, spare, reach);
            std::memset(rows + count * length, 0, (W - count) * length * sizeof(T));
            map_rows<T>(move.map, rows, length, a.channels, spare);
            for (std::int64_t r = 0; r < count; ++r) {
                finish(move, first + r, x, rows + r * length, spare, out);
                reach.raise(T(0), given[r] * rows[r * length + a.channels - 1]);
            }
        });
    }

    // What the map is taken of: scale (sum of y - y + unary u) + keep x; nothing past the labels. Answers
    // with y of the last label.
    inline T prepare(const Move<T>& move, std::int64_t i, const T* x, const T* y, T* row, T* spare, Reach<T>& reach) const {
        const bool plain = move.map == Map::none;
        const T scale = plain ? T(1) : move.scale, keep = plain ? T(0) : move.keep, weight = move.unary;
        const T* const unary = a.unary && weight != T(0) ? a.unary + i * a.channels : nullptr;
        if (unary) ahead(unary + kAhead * a.channels, static_cast<int>(a.channels));
        get(y, i, spare);
        Vec<T> sums{};
        for (std::int64_t s = 0; s < padded(); s += W) sums += load(spare + s);
        T whole = 0;
        for (int l = 0; l < W; ++l) whole += sums[l];
        reach.raise(whole, T(0));
        for_vectors(a.channels, [&](std::int64_t s) {
            Vec<T> v = whole - load(spare + s);
            if (unary) v += weight * load(unary + s);
            store(row + s, scale * v);
        });
        const T given = spare[a.channels - 1];
        if (keep != T(0)) {
            get(x, i, spare);
            for (std::int64_t s = 0; s < padded(); s += W) store(row + s, load(row + s) + keep * load(spare + s));
        }
        for (std::int64_t s = a.channels; s < padded(); ++s) row[s] = -static_cast<T>(__builtin_inf());
        return given;
    }

    inline void finish(const Move<T>& move, std::int64_t i, T* x, T* row, T* spare, T* out) const {
        if (move.map != Map::none && move.step != T(1)) {
            get(x, i, spare);
            for (std::int64_t s = 0; s < padded(); s += W)
                store(row + s, load(spare + s) + move.step * (load(row + s) - load(spare + s)));
        }
        if (out) return put(out + i * a.channels, row, a.channels);
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) { put(x + at + i * labels, row + first, labels); });
    }

    // All labels of a pixel, from an array of panels of our own; zero past them.
    inline void get(const T* panels, std::int64_t i, T* row) const {
        // What is read past the labels of a panel is written over by the next one.
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
            const T* const from = panels + at + i * labels;
            ahead(from + kAhead * labels, static_cast<int>(labels));
            for (std::int64_t s = 0; s < labels; s += W) store(row + first + s, load(from + s));
        });
        for (std::int64_t s = a.channels; s < padded(); ++s) row[s] = 0;
    }
    // Nothing past the labels is touched.
    static inline void put(T* to, const T* row, std::int64_t labels) {
        if (labels < W) return store_part(to, load(row), labels);
        for_vectors(labels, [&](std::int64_t s) { store(to + s, load(row + s)); });
    }
    // Of at least as many as a vector has lanes, the last of which begins early enough to end with them.
    template <typename F> static inline void for_vectors(std::int64_t length, F&& act) {
        for (std::int64_t s = 0; s < length; s += W) act(Row<T>{length}.place(s));
    }
};

}  // namespace fwcrf::FWCRF_ISA
