#pragma once

#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// log x = e log 2 + 2 artanh s with x = 2^e m, m about 1 and s = (m - 1) / (m + 1); for positive normal numbers, and NaN. So
// many terms of the series are exact to rounding.
template <typename T> struct Log;
template <> struct Log<float> {
    static constexpr int mantissa = 23, terms = 5;
    static constexpr std::int32_t half = 0x3f3504f3;  // the square root of 1/2
};
template <> struct Log<double> {
    static constexpr int mantissa = 52, terms = 11;
    static constexpr std::int64_t half = 0x3fe6a09e667f3bcd;
};
template <typename T> static inline Vec<T> log(Vec<T> x) {
    using L = Log<T>;
    using Integer = decltype(x > x);
    const Integer bits = (Integer)x, e = (bits - L::half) >> L::mantissa;
    const Vec<T> m = (Vec<T>)(bits - (e << L::mantissa));
    const Vec<T> s = (m - T(1)) / (m + T(1)), z = s * s;
    Vec<T> sum = Vec<T>{} + T(1) / (2 * L::terms + 1);
    for (int k = L::terms - 1; k >= 0; --k) sum = sum * z + T(1) / (2 * k + 1);
    // Log 2 in two parts, the first of few digits, so that its product with e is exact.
    const Vec<T> n = __builtin_convertvector(e, Vec<T>);
    const Vec<T> found = n * T(0.693359375) + (n * T(-2.1219444005469058e-4) + (s + s) * sum);
    return x == x ? found : x;
}

}  // namespace fwcrf::FWCRF_ISA
