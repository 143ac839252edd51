// Labels that are nowhere likely, taken together as one.
#include "kernels.hpp"
#include "logarithm.hpp"
#include "simplex_rows.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// The vectors of a row and which of their labels are not kept.
template <typename T> struct Others {
    static constexpr int W = kLanes<T>;
    const Row<T> row;
    const T* other;
    const Mask<T> fresh;

    explicit Others(const LumpArgs<T>& a) : row{a.labels}, other(a.other), fresh(row.fresh()) {}

    // act(where, mask), each label once.
    template <typename F> inline void each(F&& act) const {
        for (std::int64_t at = 0; at < row.length; at += W) {
            const std::int64_t place = row.place(at);
            const Mask<T> mask = load(other + place) != T(0);
            act(place, at + W >= row.length ? mask & fresh : mask);
        }
    }
};

// As many pixels at a time as a vector has lanes; the last ones together with some before them.
template <typename T, typename F> static void for_groups(const LumpArgs<T>& a, F&& act) {
    constexpr std::int64_t W = kLanes<T>;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t g = 0; g < (a.n + W - 1) / W; ++g) act(g * W + W <= a.n ? g * W : a.n - W);
}

template <typename T> static void lump(const LumpArgs<T>& a) {
    constexpr int W = kLanes<T>;
    const Others<T> others(a);
    const Vec<T> never = fill(-static_cast<T>(__builtin_inf()));
    for_groups(a, [&](std::int64_t first) {
        Vec<T> top[W], sum[W], all[W];
        for (int r = 0; r < W; ++r) {
            const T* const u = a.unary + (first + r) * a.labels;
            top[r] = never;
            others.each([&](std::int64_t at, Mask<T> mask) {
                top[r] = larger<T>(mask ? a.scale * load(u + at) : never, top[r]);
            });
        }
        transpose<T>(top);
        for (int c = 1; c < W; ++c) top[0] = larger<T>(top[0], top[c]);
        // Where all of them are forbidden.
        const Vec<T> reference = top[0] > never ? top[0] : Vec<T>{};
        for (int r = 0; r < W; ++r) {
            const std::int64_t i = first + r;
            sum[r] = all[r] = Vec<T>{};
            const T *const from = a.x + i * a.labels, *const energies = a.unary + i * a.labels;
            const T level = reference[r];
            others.each([&](std::int64_t at, Mask<T> mask) {
                const Vec<T> e = exp<T>(smaller<T>(a.scale * load(energies + at) - level, Vec<T>{}));
                sum[r] += mask ? e : Vec<T>{};
                all[r] += mask ? load(from + at) : Vec<T>{};
            });
            T *const x = a.few + i * (a.count + 1), *const u = a.few_unary + i * (a.count + 1);
            for (std::int64_t j = 0; j < a.count; ++j) {
                x[j] = from[a.kept[j]];
                u[j] = energies[a.kept[j]];
            }
        }
        const Vec<T> exponentials = sums<T>(sum), x = sums<T>(all);
        const Vec<T> u = (reference + log<T>(exponentials)) / a.scale;
        for (int r = 0; r < W; ++r) {
            const std::int64_t at = (first + r) * (a.count + 1) + a.count;
            a.few[at] = x[r];
            a.few_unary[at] = exponentials[r] > T(0) ? u[r] : static_cast<T>(__builtin_inf());
        }
    });
}

template <typename T> static void unlump(const LumpArgs<T>& a) {
    constexpr int W = kLanes<T>;
    const Others<T> others(a);
    for_groups(a, [&](std::int64_t first) {
        for (std::int64_t i = first; i < first + W; ++i) {
            const T *const x = a.few + i * (a.count + 1), *const u = a.unary + i * a.labels;
            T* const out = a.out + i * a.labels;
            const T together = x[a.count], energy = a.few_unary[i * (a.count + 1) + a.count];
            const T level = together > T(0) ? a.scale * energy : T(0);
            others.each([&](std::int64_t at, Mask<T>) {
                store(out + at, together * exp<T>(smaller<T>(a.scale * load(u + at) - level, Vec<T>{})));
            });
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
