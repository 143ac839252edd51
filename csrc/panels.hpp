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
        bool back = false;  // whether some step looks back to x, which is else overwritten by its own sum
        for (int step = 0; step < a.steps; ++step) back = back || a.move[step].keep != T(0) || a.move[step].step != T(1);
        const std::int64_t size = a.n * a.channels;
        const Lent memory{static_cast<T*>(take_block((back ? 2 : 1) * size * sizeof(T)))};
        T* const x = memory.values;
        T* const y = back ? x + size : x;
        for_rows([&](std::int64_t i, T*) {
            for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
                std::memcpy(x + at + i * labels, a.x + i * a.channels + first, labels * sizeof(T));
            });
        });
        bool finite = true;
        for (int step = 0; step < a.steps; ++step) {
            finite &= apply(x, y);
            answer(a.move[step], x, y, step + 1 == a.steps ? a.out[step] : nullptr);
        }
        return finite;
    }
    struct Lent {
        T* values;
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
            T given[W];
            for (std::int64_t r = 0; r < count; ++r) given[r] = prepare(move, first + r, x, y, rows + r * length, reach);
            std::memset(rows + count * length, 0, (W - count) * length * sizeof(T));
            map_rows<T>(move.map, rows, length, a.channels, rows + W * length);
            for (std::int64_t r = 0; r < count; ++r) {
                finish(move, first + r, x, rows + r * length, out);
                reach.raise(T(0), given[r] * rows[r * length + a.channels - 1]);
            }
        });
    }

    // What the map is taken of: scale (sum of y - y + unary u) + keep x; nothing past the labels. Answers
    // with y of the last label.
    inline T prepare(const Move<T>& move, std::int64_t i, const T* x, const T* y, T* row, Reach<T>& reach) const {
        const bool plain = move.map == Map::none;
        const T scale = plain ? T(1) : move.scale, keep = plain ? T(0) : move.keep, weight = move.unary;
        const T* const unary = a.unary && weight != T(0) ? a.unary + i * a.channels : nullptr;
        Vec<T> sums{};
        for_panels([&](std::int64_t, std::int64_t labels, std::int64_t at) {
            each_vector(y + at + i * labels, labels, [&](std::int64_t, Vec<T> v, std::int64_t) { sums += v; });
        });
        T whole = 0;
        for (int l = 0; l < W; ++l) whole += sums[l];
        reach.raise(whole, T(0));
        T given = 0;
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
            const T* const here = x + at + i * labels;
            if (first + labels == a.channels) given = y[at + (i + 1) * labels - 1];
            each_vector(y + at + i * labels, labels, [&](std::int64_t s, Vec<T> v, std::int64_t count) {
                v = whole - v;
                if (unary) v += weight * load_first(unary + first + s, count);
                v *= scale;
                if (keep != T(0)) v += keep * load_first(here + s, count);
                store(row + first + s, v);
            });
        });
        for (std::int64_t s = a.channels; s < padded(); ++s) row[s] = -static_cast<T>(__builtin_inf());
        return given;
    }

    static inline Vec<T> load_first(const T* p, std::int64_t count) { return count == W ? load(p) : load_part(p, count); }

    // act(where, vector, entries), zero past the end.
    template <typename F> static inline void each_vector(const T* p, std::int64_t length, F&& act) {
        for (std::int64_t s = 0; s < length; s += W) {
            const std::int64_t count = length - s < W ? length - s : W;
            act(s, load_first(p + s, count), count);
        }
    }

    inline void finish(const Move<T>& move, std::int64_t i, T* x, T* row, T* out) const {
        for_panels([&](std::int64_t first, std::int64_t labels, std::int64_t at) {
            T* const here = x + at + i * labels;
            T* const from = row + first;
            if (move.map != Map::none && move.step != T(1))
                for (std::int64_t s = 0; s < labels; ++s) from[s] = here[s] + move.step * (from[s] - here[s]);
            std::memcpy(out ? out + i * a.channels + first : here, from, labels * sizeof(T));
        });
    }
};

}  // namespace fwcrf::FWCRF_ISA
