// Label pruning: bounds that tell which labels matter, and arrays with few labels. The labels that do not matter are
// dropped, or merged into one label.
#include "bind/functions.hpp"
#include "maps/simplex_rows.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

// The gaps and maxima of the rows that a thread has seen; see SpanArgs.
template <typename T> struct Spans {
    static constexpr int W = kLanes<T>;
    const SpanArgs<T>& a;
    T *gap, *most;

    // W rows of at least W labels.
    void rows(std::int64_t first) {
        const Row<T> row{a.labels};
        const T *const u = a.unary + first * a.labels, *const x = a.x ? a.x + first * a.labels : nullptr;
        Vec<T> least[W];
        for (int r = 0; r < W; ++r) {
            least[r] = load(u + r * a.labels);
            for (std::int64_t at = W; at < a.labels; at += W)
                least[r] = min<T>(load(u + r * a.labels + row.place(at)), least[r]);
        }
        transpose<T>(least);
        for (int c = 1; c < W; ++c) least[0] = min<T>(least[0], least[c]);
        alignas(64) T best[W];
        store(best, least[0]);
        for (std::int64_t at = 0; at < a.labels; at += W) {
            const std::int64_t place = row.place(at);
            Vec<T> near = load(gap + place), large = load(most + place);
            for (int r = 0; r < W; ++r) {
                near = min<T>(load(u + r * a.labels + place) - best[r], near);
                if (x) large = max<T>(load(x + r * a.labels + place), large);
            }
            store(gap + place, near);
            store(most + place, large);
        }
    }

    void one(std::int64_t i) {
        const T *const u = a.unary + i * a.labels, *const x = a.x ? a.x + i * a.labels : nullptr;
        T least = u[0];
        for (std::int64_t s = 1; s < a.labels; ++s) least = u[s] < least ? u[s] : least;
        for (std::int64_t s = 0; s < a.labels; ++s) {
            gap[s] = u[s] - least < gap[s] ? u[s] - least : gap[s];
            if (x) most[s] = x[s] > most[s] ? x[s] : most[s];
        }
    }

    void all(Range rows_) {
        std::int64_t i = rows_.begin;
        if (a.labels >= W)
            for (; i + W <= rows_.end; i += W) rows(i);
        for (; i < rows_.end; ++i) one(i);
    }
};

template <typename T> void label_spans(const SpanArgs<T>& a) {
    const std::int64_t each = (a.labels + 15) / 16 * 16;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(2 * each * a.threads);
    for (std::int64_t s = 0; s < 2 * each * a.threads; ++s) memory[s] = s / each % 2 ? T(0) : kInfinity<T>;
    for_each(a.threads, a.threads, [&](std::int64_t t) {
        Spans<T>{a, memory + 2 * t * each, memory + (2 * t + 1) * each}.all(share(a.n, static_cast<int>(t), a.threads));
    });
    for (std::int64_t s = 0; s < a.labels; ++s) {
        T near = memory[s], large = memory[each + s];
        for (int t = 1; t < a.threads; ++t) {
            const T *const gap = memory + 2 * t * each, *const most = gap + each;
            near = gap[s] < near ? gap[s] : near;
            large = most[s] > large ? most[s] : large;
        }
        a.gap[s] = near;
        a.most[s] = large;
    }
}

// The merged labels, vector by vector of a row: part = 1 and bias = 0 for a merged label, 0 and -inf for a kept label.
// A label that is in two vectors counts in the first vector.
template <typename T> struct Merged {
    static constexpr int W = kLanes<T>;
    const Row<T> row;
    const std::int64_t padded;
    T *const part, *const bias;

    Merged(const MergeArgs<T>& a, Scratch& scratch)
        : row{a.labels}, padded((a.labels + W - 1) / W * W), part(scratch.get<T>(2 * padded)), bias(part + padded) {
        for (std::int64_t at = 0; at < padded; ++at) {
            const std::int64_t label = row.place(at / W * W) + at % W;
            part[at] = label >= at / W * W ? a.merged[label] : T(0);
            bias[at] = part[at] != T(0) ? T(0) : -kInfinity<T>;
        }
    }

    // Calls act(place in a row, place in `part` and `bias`) for every vector.
    template <typename F> inline void each(F&& act) const {
        for (std::int64_t at = 0; at < padded; at += W) act(row.place(at), at);
    }
};

// Calls act(first pixel, memory for their rows) for groups of W pixels. The last group overlaps the group before.
template <typename T, typename F> static void for_groups(const MergeArgs<T>& a, F&& act) {
    constexpr std::int64_t W = kLanes<T>;
    in_parallel(a.threads, [&](Team team) {
        thread_local Scratch scratch;
        T* const room = scratch.get<T>(W * a.labels);
        const Range groups = share((a.n + W - 1) / W, team.thread, team.threads);
        for (std::int64_t g = groups.begin; g < groups.end; ++g) act(g * W + W <= a.n ? g * W : a.n - W, room);
    });
}

template <typename T> static void drop_labels(const MergeArgs<T>& a) {
    for_groups(a, [&](std::int64_t first, T* room) {
        const T *const u = a.unary + first * a.labels, *const x = rows_or_softmax(a.x, a.unary, first, a.labels, room);
        T *const few = a.few + first * a.count, *const few_unary = a.few_unary + first * a.count;
        for (int r = 0; r < kLanes<T>; ++r)
            for (std::int64_t j = 0; j < a.count; ++j) {
                few[r * a.count + j] = x[r * a.labels + a.kept[j]];
                few_unary[r * a.count + j] = u[r * a.labels + a.kept[j]];
            }
    });
}

template <typename T> void merge_labels(const MergeArgs<T>& a) {
    constexpr int W = kLanes<T>;
    if (a.scale == T(0)) return drop_labels(a);
    thread_local Scratch scratch;
    const Merged<T> merged(a, scratch);
    const Vec<T> never = fill(-kInfinity<T>), scale = fill(a.scale);
    const std::int64_t width = a.count + 1;
    for_groups(a, [&](std::int64_t first, T* room) {
        const T* const u = a.unary + first * a.labels;
        T* const few_unary = a.few_unary + first * width;
        Vec<T> v[W];
        for (int r = 0; r < W; ++r) {
            Vec<T> top = never;
            merged.each([&](std::int64_t at, std::int64_t place) {
                top = max<T>(fma<T>(scale, load(u + r * a.labels + at), load(merged.bias + place)), top);
            });
            v[r] = top;
        }
        transpose<T>(v);
        for (int c = 1; c < W; ++c) v[0] = max<T>(v[0], v[c]);
        // 0 if all merged labels are forbidden.
        const Vec<T> reference = select(v[0] > never, v[0], Vec<T>{});
        alignas(64) T level[W];
        store(level, reference);
        for (int r = 0; r < W; ++r) {
            Vec<T> sum{};
            merged.each([&](std::int64_t at, std::int64_t place) {
                const Vec<T> bias = load(merged.bias + place) - level[r];
                const Vec<T> above = fma<T>(scale, load(u + r * a.labels + at), bias);
                // Kept labels may have any energy.
                sum += exp<T>(min<T>(above, Vec<T>{})) * load(merged.part + place);
            });
            v[r] = sum;
        }
        const Vec<T> exponentials = sums<T>(v);
        const Vec<T> energy = (reference + log<T>(exponentials)) / a.scale;
        for (int r = 0; r < W; ++r) {
            for (std::int64_t j = 0; j < a.count; ++j) few_unary[r * width + j] = u[r * a.labels + a.kept[j]];
            few_unary[r * width + a.count] = lane(exponentials, r) > T(0) ? lane(energy, r) : kInfinity<T>;
        }
        if (!a.few) return;
        const T* const x = rows_or_softmax(a.x, a.unary, first, a.labels, room);
        for (int r = 0; r < W; ++r) {
            Vec<T> sum{};
            merged.each([&](std::int64_t at, std::int64_t place) {
                sum += load(x + r * a.labels + at) * load(merged.part + place);
            });
            v[r] = sum;
        }
        const Vec<T> together = sums<T>(v);
        T* const few = a.few + first * width;
        for (int r = 0; r < W; ++r) {
            for (std::int64_t j = 0; j < a.count; ++j) few[r * width + j] = x[r * a.labels + a.kept[j]];
            few[r * width + a.count] = lane(together, r);
        }
    });
}

template <typename T> void unmerge_labels(const MergeArgs<T>& a) {
    constexpr int W = kLanes<T>;
    const Row<T> row{a.labels};
    for_groups(a, [&](std::int64_t first, T*) {
        for (std::int64_t i = first; i < first + W; ++i) {
            const T *const x = a.few + i * (a.count + 1), *const u = a.unary + i * a.labels;
            T* const out = a.out + i * a.labels;
            const T together = x[a.count], energy = a.few_unary[i * (a.count + 1) + a.count];
            const T level = together > T(0) ? a.scale * energy : T(0);
            for (std::int64_t at = 0; at < a.labels; at += W) {
                const std::int64_t place = row.place(at);
                store(out + place, together * exp<T>(min<T>(a.scale * load(u + place) - level, Vec<T>{})));
            }
            for (std::int64_t j = 0; j < a.count; ++j) out[a.kept[j]] = x[j];
        }
    });
}

FWCRF_INSTANTIATE(label_spans)
FWCRF_INSTANTIATE(merge_labels)
FWCRF_INSTANTIATE(unmerge_labels)

}  // namespace fwcrf::FWCRF_ISA
