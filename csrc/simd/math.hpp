// Exponentials and logarithms of vectors.
//
// In an unnamed namespace: maps/simplex.cpp is compiled without floating-point contraction, and the linker must not
// give it the code of another file.
#pragma once

#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {
namespace {

template <typename T> constexpr T kInfinity = static_cast<T>(__builtin_inf());
template <typename T> constexpr T kEpsilon = static_cast<T>(sizeof(T) == 4 ? 0x1p-23 : 0x1p-52);

// exp(x) = 2^n exp(r) with |r| <= log(2)/2. The polynomials have the least relative error: 3e-9 and 4e-18.
template <typename T> struct Exp;
template <> struct Exp<float> {
    static constexpr int mantissa = 23;
    // Adding this leaves n + 127 in the low bits: the exponent of 2^n.
    static constexpr float shift = 12582912.0f + 127;
    static constexpr float smallest = -87.3365f;  // below, the result is not a normal number
    static constexpr float log2_high = 0.693359375f, log2_low = -2.12194440e-4f;
    static constexpr float coefficients[] = {0.0013814464761576854f, 0.0083687806225661850f, 0.041668394259000904f,
                                             0.16666520105542569f, 0.49999993412261584f};
};
template <> struct Exp<double> {
    static constexpr int mantissa = 52;
    static constexpr double shift = 6755399441055744.0 + 1023;
    static constexpr double smallest = -708.396;
    static constexpr double log2_high = 6.93145751953125e-1, log2_low = 1.42860682030941723212e-6;
    static constexpr double coefficients[] = {
        2.4999967558549397007e-8,  2.7630379151550550871e-7, 2.7557587338095055878e-6, 0.000024801492761211318725,
        0.00019841269504765310988, 0.001388888894392427279,  0.0083333333334956270615, 0.041666666666529181958,
        0.16666666666666410221,    0.50000000000000107218};
};

// For x <= 0, including minus infinity.
template <typename T> static inline Vec<T> exp(Vec<T> x) {
    using E = Exp<T>;
    const Vec<T> shifted = fma<T>(x, fill(T(1.44269504088896340736)), fill(E::shift));
    const Vec<T> n = shifted - E::shift;
    Vec<T> r = fma<T>(n, fill(-E::log2_high), x);
    r = fma<T>(n, fill(-E::log2_low), r);
    Vec<T> q = fill(E::coefficients[0]);
    for (unsigned i = 1; i < sizeof(E::coefficients) / sizeof(T); ++i) q = fma<T>(q, r, fill(E::coefficients[i]));
    const Vec<T> e = fma<T>(q, r * r, r) + T(1);
    const Vec<T> power = from_bits<T>(to_bits<T>(shifted) << E::mantissa);
    return select(x < E::smallest, Vec<T>{}, e * power);
}

// base^x for any x, with the base that is fastest. For ratios of exponentials: x carries the factor per_e, the
// logarithm of e to that base. Relative error 2e-7 in float.
template <typename T> struct Power;
template <> struct Power<float> {
    static constexpr float per_e = 1.44269504f;           // base 2
    static constexpr float least = 1e-27f, most = 1e37f;  // limits of a sum of powers that is precise
    static constexpr float certain = 87.5f;               // a lead of one label that leaves the other label 0
    static constexpr float shift = 12582912.0f;
    static constexpr float coefficients[] = {0.001326472422f, 0.009671513245f, 0.05550733757f, 0.2402224207f,
                                             0.6931469776f};
};
template <> struct Power<double> {
    static constexpr double per_e = 1.0;  // base e
    static constexpr double least = 1e-200, most = 1e300;
    static constexpr double certain = 699.0;
};
template <typename T> static inline Vec<T> power(Vec<T> x) {
    if constexpr (!kSingle<T>) {
        return exp<T>(min<T>(fill(T(700)), x));
    } else {
        using P = Power<T>;
        x = min<T>(fill(T(127)), max<T>(fill(T(-127)), x));  // the power of -127 is 0
        const Vec<T> shifted = x + P::shift, r = x - (shifted - P::shift);
        Vec<T> q = fill(P::coefficients[0]);
        for (unsigned i = 1; i < sizeof(P::coefficients) / sizeof(T); ++i) q = fma<T>(q, r, fill(P::coefficients[i]));
        q = fma<T>(q, r, fill(T(1)));
        return from_bits<T>(to_bits<T>(q) + (to_bits<T>(shifted) << Exp<T>::mantissa));
    }
}

// log x = e log 2 + 2 artanh s with x = 2^e m, m about 1 and s = (m - 1) / (m + 1); for positive normal numbers and
// NaN; smaller numbers count as the smallest normal one. The number of terms of the series makes it exact to rounding.
template <typename T> struct Log;
template <> struct Log<float> {
    static constexpr int terms = 5;
    static constexpr std::int32_t half = 0x3f3504f3;  // the square root of 1/2
    static constexpr float least = 1.17549435e-38f;   // the smallest normal number
};
template <> struct Log<double> {
    static constexpr int terms = 11;
    static constexpr std::int64_t half = 0x3fe6a09e667f3bcd;
    static constexpr double least = 2.2250738585072014e-308;
};
template <typename T> static inline Vec<T> log(Vec<T> x) {
    using L = Log<T>;
    x = max<T>(fill(T(L::least)), x);  // the bits of negative numbers would overflow; NaN stays
    const Int<T> bits = to_bits<T>(x), e = (bits - L::half) >> Exp<T>::mantissa;
    const Vec<T> m = from_bits<T>(bits - (e << Exp<T>::mantissa));
    const Vec<T> s = (m - T(1)) / (m + T(1)), z = s * s;
    Vec<T> sum = fill(T(1) / (2 * L::terms + 1));
    for (int k = L::terms - 1; k >= 0; --k) sum = sum * z + T(1) / (2 * k + 1);
    // Log 2 in two parts. The first part has few digits, so that its product with e is exact.
    const Vec<T> n = to_numbers<T>(e);
    const Vec<T> found = n * T(0.693359375) + (n * T(-2.1219444005469058e-4) + (s + s) * sum);
    return select(x == x, found, x);
}

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
