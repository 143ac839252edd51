// Calibration of a lattice to a Gaussian: row sums of the exact kernel, and weights scaled by point.
#include "bind/functions.hpp"
#include "lattice/weight_rows.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "runtime/stop.hpp"
#include "simd/math.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> void gaussian_sums(const SumArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t blocks = (a.columns + W - 1) / W, each = blocks * a.d * W;
    thread_local Scratch scratch;
    // Columns in blocks of W, each block stored feature by feature. Columns past the last are infinitely far.
    T* const all = scratch.get<T>(a.batch * each);
    for (std::int64_t b = 0; b < a.batch; ++b)
        for (std::int64_t j = 0; j < blocks * W; ++j)
            for (int f = 0; f < a.d; ++f)
                all[b * each + ((j / W) * a.d + f) * W + j % W] =
                    j < a.columns ? a.column[(b * a.columns + j) * a.d + f] : kInfinity<T>;
    Stop stop;
    for_each(a.threads, a.batch * a.rows, [&](std::int64_t i) {
        if (stop.asked(a.columns < 4096 ? i : 0)) return;
        const T* const row = a.row + i * a.d;
        const T* column = all + i / a.rows * each;
        Vec<T> sum{};
        for (std::int64_t block = 0; block < blocks; ++block) {
            Vec<T> distance{};
            for (int f = 0; f < a.d; ++f, column += W) {
                const Vec<T> step = row[f] - load(column);
                distance += step * step;
            }
            sum += exp<T>(T(-0.5) * distance);
        }
        a.out[i] = total<T>(sum);
    });
    scratch.trim();
    stop.check();
}

template <int C, typename T> static void place(const PlaceArgs<T>& a) {
    const WeightRows<C, T> rows{a.n, C ? C : a.corners};
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t groups = (a.n + W - 1) / W;
    for_each(a.threads, a.batch * groups, [&](std::int64_t g) {
        const std::int64_t image = g / groups, at = image * a.n * rows.corners, i = g % groups * W;
        const Vec<T> factor = a.factor[image] * exp<T>(a.exponent * rows.squares(a.weight + at, i));
        rows.scaled(a.weight + at, i, factor, a.out + at);
    });
}

template <int C, typename T> static void scale_rows(const ScaleArgs<T>& a) {
    const WeightRows<C, T> rows{a.n, C ? C : a.corners};
    constexpr std::int64_t W = kLanes<T>;
    for_each(a.threads, (a.n + W - 1) / W, [&](std::int64_t group) {
        const std::int64_t i = group * W;
        const std::int64_t count = a.n - i < W ? a.n - i : W;
        const Vec<T> factor = load_some(a.factor + i, count);
        rows.scaled(a.weight, i, factor, a.out);
        for (int k = 0; k < 2; ++k) {
            if (!a.diagonal[k]) continue;
            store_some(a.scaled[k] + i, factor * load_some(a.diagonal[k] + i, count) * factor, count);
        }
    });
}

template <typename T> void place_weights(const PlaceArgs<T>& a) { a.corners == 6 ? place<6>(a) : place<0>(a); }
template <typename T> void scale_weights(const ScaleArgs<T>& a) {
    a.corners == 6 ? scale_rows<6>(a) : scale_rows<0>(a);
}

FWCRF_INSTANTIATE(gaussian_sums)
FWCRF_INSTANTIATE(place_weights)
FWCRF_INSTANTIATE(scale_weights)

}  // namespace fwcrf::FWCRF_ISA
