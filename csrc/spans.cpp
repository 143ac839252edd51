// Of each label, over all rows of an array: how close it comes to the best one, and how large it gets in another array.
#include "kernels.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// What a thread has seen so far.
template <typename T> struct Seen {
    static constexpr int W = kLanes<T>;
    const SpanArgs<T>& a;
    T *gap, *most;

    // As many rows as a vector has lanes, of at least as many labels.
    void rows(std::int64_t first) {
        const Row<T> row{a.labels};
        const T *const u = a.unary + first * a.labels, *const x = a.x ? a.x + first * a.labels : nullptr;
        Vec<T> least[W];
        for (int r = 0; r < W; ++r) {
            least[r] = load(u + r * a.labels);
            for (std::int64_t at = W; at < a.labels; at += W)
                least[r] = smaller<T>(load(u + r * a.labels + row.place(at)), least[r]);
        }
        transpose<T>(least);
        for (int c = 1; c < W; ++c) least[0] = smaller<T>(least[0], least[c]);
        alignas(64) T best[W];
        store(best, least[0]);
        for (std::int64_t at = 0; at < a.labels; at += W) {
            const std::int64_t place = row.place(at);
            Vec<T> near = load(gap + place), large = load(most + place);
            for (int r = 0; r < W; ++r) {
                near = smaller<T>(load(u + r * a.labels + place) - best[r], near);
                if (x) large = larger<T>(load(x + r * a.labels + place), large);
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

template <typename T> static void spans(const SpanArgs<T>& a) {
    const std::int64_t each = (a.labels + 15) / 16 * 16;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(2 * each * a.threads);
    for (std::int64_t s = 0; s < 2 * each * a.threads; ++s)
        memory[s] = s / each % 2 ? T(0) : static_cast<T>(__builtin_inf());
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (int t = 0; t < a.threads; ++t)
        Seen<T>{a, memory + 2 * t * each, memory + (2 * t + 1) * each}.all(share(a.n, t, a.threads));
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

void spans_f32(const SpanArgs<float>& a) { spans(a); }
void spans_f64(const SpanArgs<double>& a) { spans(a); }

}  // namespace fwcrf::FWCRF_ISA
