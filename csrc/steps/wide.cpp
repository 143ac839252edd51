// Products of rows with two matrices side by side, in vectors twice as wide as the ones of the steps.
//
// Three vectors of a step fill one and a half wide vectors, so that a step with wide vectors would compute with
// padding; rows of two matrices side by side fill three.
#include "bind/functions.hpp"
#include "simd/product.hpp"

namespace fwcrf::FWCRF_ISA {

constexpr int kWideVectors = 3;  // of a row of `WideArgs::right`

template <int R, typename T, typename F> static inline void wide_rows(const WideArgs<T>& a, F&& factor, T* to) {
    constexpr std::int64_t W = kLanes<T>;
    Vec<T> sum[R][kWideVectors] = {};
    add_rows<T, kWideVectors, R>(a.right, a.count, factor, sum);
    for (int r = 0; r < R; ++r)
        for (int k = 0; k < kWideVectors; ++k) store(to + (r * kWideVectors + k) * W, sum[r][k]);
}

template <typename T> void wide_products(const WideArgs<T>& a) {
    constexpr int kAll = 8;  // rows at a time
    constexpr std::int64_t row = kWideVectors * kLanes<T>;
    const T* left = a.left;
    const auto factor = [&](int r, std::int64_t s) { return left[r * (row / 2) + s]; };
    std::int64_t i = 0;
    for (; i + kAll <= a.rows; i += kAll, left += kAll * (row / 2)) wide_rows<kAll>(a, factor, a.out + i * row);
    for (; i < a.rows; ++i, left += row / 2) wide_rows<1>(a, factor, a.out + i * row);
}

// For thirds of the rows of a sum.
template <int R, typename T> static void wide_outers(const WideArgs<T>& a, T* to) {
    constexpr std::int64_t row = kWideVectors * kLanes<T>;
    for (std::int64_t s = 0; s < a.rows; s += R)
        wide_rows<R>(a, [&](int r, std::int64_t i) { return a.left[i * (row / 2) + s + r]; }, to + s * row);
}

template <typename T> void wide_outers(const WideArgs<T>& a, double* first, double* second) {
    constexpr std::int64_t row = kWideVectors * kLanes<T>, half = row / 2;
    alignas(64) T sum[half * row];
    switch ((a.rows + 2) / 3) {
    case 8: wide_outers<8>(a, sum); break;
    case 7: wide_outers<7>(a, sum); break;
    case 6: wide_outers<6>(a, sum); break;
    case 4: wide_outers<4>(a, sum); break;
    case 3: wide_outers<3>(a, sum); break;
    default: wide_outers<1>(a, sum);
    }
    for (std::int64_t s = 0; s < a.rows; ++s) {
        for (std::int64_t e = 0; e < half; ++e) first[s * half + e] += sum[s * row + e];
        for (std::int64_t e = 0; e < half; ++e) second[s * half + e] += sum[s * row + half + e];
    }
}

FWCRF_INSTANTIATE(wide_products)
template void wide_outers<float>(const WideArgs<float>&, double*, double*);
template void wide_outers<double>(const WideArgs<double>&, double*, double*);

}  // namespace fwcrf::FWCRF_ISA
