// Labels that are nowhere likely, taken together as one, or left out.
#include "kernels.hpp"
#include "logarithm.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// The vectors of a row, and for each of their labels whether it is one of those that are not kept: 1 and 0, or 0 and
// -inf. A label that is in two vectors counts in the first.
template <typename T> struct Others {
    static constexpr int W = kLanes<T>;
    const Row<T> row;
    const std::int64_t padded;
    T *const part, *const bias;

    Others(const LumpArgs<T>& a, Scratch& scratch)
        : row{a.labels}, padded((a.labels + W - 1) / W * W), part(scratch.get<T>(2 * padded)), bias(part + padded) {
        for (std::int64_t at = 0; at < padded; ++at) {
            const std::int64_t label = row.place(at / W * W) + at % W;
            part[at] = label >= at / W * W ? a.other[label] : T(0);
            bias[at] = part[at] != T(0) ? T(0) : -static_cast<T>(__builtin_inf());
        }
    }

    // act(where in a row, where in `part` and `bias`)
    template <typename F> inline void each(F&& act) const {
        for (std::int64_t at = 0; at < padded; at += W) act(row.place(at), at);
    }
};

// As many pixels at a time as a vector has lanes, with room for their rows; the last ones together with some before them.
template <typename T, typename F> static void for_groups(const LumpArgs<T>& a, F&& act) {
    constexpr std::int64_t W = kLanes<T>;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        thread_local Scratch scratch;
        T* const room = scratch.get<T>(W * a.labels);
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (std::int64_t g = 0; g < (a.n + W - 1) / W; ++g) act(g * W + W <= a.n ? g * W : a.n - W, room);
    }
}

template <typename T> static void leave_out(const LumpArgs<T>& a) {
    for_groups(a, [&](std::int64_t first, T* room) {
        const T *const u = a.unary + first * a.labels, *const x = chances(a.x, a.unary, first, a.labels, room);
        T *const few = a.few + first * a.count, *const few_unary = a.few_unary + first * a.count;
        for (int r = 0; r < kLanes<T>; ++r)
            for (std::int64_t j = 0; j < a.count; ++j) {
                few[r * a.count + j] = x[r * a.labels + a.kept[j]];
                few_unary[r * a.count + j] = u[r * a.labels + a.kept[j]];
            }
    });
}

template <typename T> static void lump(const LumpArgs<T>& a) {
    constexpr int W = kLanes<T>;
    if (a.scale == T(0)) return leave_out(a);
    thread_local Scratch scratch;
    const Others<T> others(a, scratch);
    const Vec<T> never = fill(-static_cast<T>(__builtin_inf())), scale = fill(a.scale);
    const std::int64_t width = a.count + 1;
    for_groups(a, [&](std::int64_t first, T* room) {
        const T* const u = a.unary + first * a.labels;
        T* const few_unary = a.few_unary + first * width;
        Vec<T> v[W];
        for (int r = 0; r < W; ++r) {
            Vec<T> top = never;
            others.each([&](std::int64_t at, std::int64_t place) {
                top = larger<T>(multiply_add<T>(scale, load(u + r * a.labels + at), load(others.bias + place)), top);
            });
            v[r] = top;
        }
        transpose<T>(v);
        for (int c = 1; c < W; ++c) v[0] = larger<T>(v[0], v[c]);
        // Where all of them are forbidden.
        const Vec<T> reference = v[0] > never ? v[0] : Vec<T>{};
        alignas(64) T level[W];
        store(level, reference);
        for (int r = 0; r < W; ++r) {
            Vec<T> sum{};
            others.each([&](std::int64_t at, std::int64_t place) {
                const Vec<T> bias = load(others.bias + place) - level[r];
                const Vec<T> above = multiply_add<T>(scale, load(u + r * a.labels + at), bias);
                // A label that is kept may have any energy.
                sum += exp<T>(smaller<T>(above, Vec<T>{})) * load(others.part + place);
            });
            v[r] = sum;
        }
        const Vec<T> exponentials = sums<T>(v);
        const Vec<T> energy = (reference + log<T>(exponentials)) / a.scale;
        for (int r = 0; r < W; ++r) {
            for (std::int64_t j = 0; j < a.count; ++j) few_unary[r * width + j] = u[r * a.labels + a.kept[j]];
            few_unary[r * width + a.count] = exponentials[r] > T(0) ? energy[r] : static_cast<T>(__builtin_inf());
        }
        if (!a.few) return;
        const T* const x = chances(a.x, a.unary, first, a.labels, room);
        for (int r = 0; r < W; ++r) {
            Vec<T> sum{};
            others.each([&](std::int64_t at, std::int64_t place) {
                sum += load(x + r * a.labels + at) * load(others.part + place);
            });
            v[r] = sum;
        }
        const Vec<T> together = sums<T>(v);
        T* const few = a.few + first * width;
        for (int r = 0; r < W; ++r) {
            for (std::int64_t j = 0; j < a.count; ++j) few[r * width + j] = x[r * a.labels + a.kept[j]];
            few[r * width + a.count] = together[r];
        }
    });
}

template <typename T> static void unlump(const LumpArgs<T>& a) {
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
                store(out + place, together * exp<T>(smaller<T>(a.scale * load(u + place) - level, Vec<T>{})));
            }
            for (std::int64_t j = 0; j < a.count; ++j) out[a.kept[j]] = x[j];
        }
    });
}

#define FWCRF_LUMP(T, SUFFIX)                                    \
    void lump_##SUFFIX(const LumpArgs<T>& a) { lump(a); }        \
    void unlump_##SUFFIX(const LumpArgs<T>& a) { unlump(a); }
FWCRF_LUMP(float, f32)
FWCRF_LUMP(double, f64)

}  // namespace fwcrf::FWCRF_ISA
