// Rows to their simplices: Euclidean projection, softmax, and the derivatives of both.
//
// As many rows are taken at a time as a vector has lanes. What is found per row (the largest entry,
// sums, the threshold) sits in one vector with a lane per row; what is done per entry goes along
// the rows. The last vector of a row starts early enough to end with the row, so that nothing
// outside the arrays is touched. The result of a row depends on that row alone: not on its place,
// nor on the number of threads.
//
// Each file that includes this has a copy of its own: simplex.cpp is compiled without floating-point contraction, and
// the linker must not give it the code of another file.
#pragma once

#include "vectors.hpp"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace fwcrf::FWCRF_ISA {
namespace {

template <typename T> using Mask = decltype(Vec<T>{} > Vec<T>{});

template <typename T> static inline Vec<T> fill(T value) { return Vec<T>{} + value; }

// Where one of them is not a number: the second. One instruction, which compilers do not find in a > b ? a : b.
template <typename T> static inline Vec<T> larger(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_max_ps((__m512)a, (__m512)b);
    else return (Vec<T>)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_max_ps((__m256)a, (__m256)b);
    else return (Vec<T>)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return a > b ? a : b;
#endif
}
template <typename T> static inline Vec<T> smaller(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_min_ps((__m512)a, (__m512)b);
    else return (Vec<T>)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_min_ps((__m256)a, (__m256)b);
    else return (Vec<T>)_mm256_min_pd((__m256d)a, (__m256d)b);
#else
    return a < b ? a : b;
#endif
}

template <typename T> static inline Vec<T> root(Vec<T> v) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_sqrt_ps((__m512)v);
    else return (Vec<T>)_mm512_sqrt_pd((__m512d)v);
#elif defined(__AVX2__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_sqrt_ps((__m256)v);
    else return (Vec<T>)_mm256_sqrt_pd((__m256d)v);
#else
    for (int l = 0; l < kLanes<T>; ++l) v[l] = static_cast<T>(__builtin_sqrt(v[l]));
    return v;
#endif
}

template <typename M> static inline bool any(M mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__x86_64__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#else
    bool found = false;
    for (unsigned l = 0; l < sizeof(M) / sizeof(mask[0]); ++l) found |= mask[l] != 0;
    return found;
#endif
}

// a * b + c, rounded once where the processor can; the compiler is told not to do so by itself.
template <typename T> static inline Vec<T> multiply_add(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    else return (Vec<T>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    if constexpr (sizeof(T) == 4) return (Vec<T>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    else return (Vec<T>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

// One vector per row in, one lane per row out: like `transpose`, but adding up on the way.
template <typename T, int H = 1> static inline Vec<T> sums(Vec<T> (&v)[kLanes<T>]) {
    if constexpr (H == kLanes<T>) {
        return v[0];
    } else {
        constexpr std::make_integer_sequence<int, kLanes<T>> lanes{};
        for (int i = 0; i < kLanes<T>; i += 2 * H)
            v[i] = blocks<T, H, false>(v[i], v[i + H], lanes) + blocks<T, H, true>(v[i], v[i + H], lanes);
        return sums<T, 2 * H>(v);
    }
}

// The vectors of a row.
template <typename T> struct Row {
    static constexpr int W = kLanes<T>;
    const std::int64_t length;  // at least W

    // Where the vector begins that would begin at `at`.
    inline std::int64_t place(std::int64_t at) const { return at + W <= length ? at : length - W; }
    // The lanes of the last vector that are not in the one before as well.
    inline Mask<T> fresh() const {
        const std::int64_t repeated = (length + W - 1) / W * W - length;
        Mask<T> lane{};
        for (int l = 0; l < W; ++l) lane[l] = l;
        return lane >= static_cast<decltype(lane[0] + 0)>(repeated);
    }
};

// max(x - t, 0) with the t that makes the sum 1. For any set of entries, t is at least (their sum
// - 1) over their number, with equality for those above t: the best of these bounds over the few
// largest entries is the answer for most rows, and the next largest entry tells whether it is. If
// not, Newton's method goes on from there: the sum of the positive parts is convex in t, so that
// its steps never pass the answer, and the entries above t become fewer until they are those of the
// answer. Labels that no row keeps are dropped on the way.
template <typename T> struct Project {
    static constexpr int W = kLanes<T>;
    static constexpr int kLargest = 5;

    static std::int64_t scratch(std::int64_t length) { return length * W; }

    static void apply(const T* x, const T*, T* out, std::int64_t length, T scale, T* block) {
        apply(x, out, length, length, scale, block);
    }
    // Rows of which only the first so many entries are more than minus infinity.
    static inline void apply(const T* x, T* out, std::int64_t length, std::int64_t entries, T scale, T* block) {
        const Row<T> row{length};
        for (std::int64_t at = 0; at < length; at += W) {
            const std::int64_t place = row.place(at);
            Vec<T> v[W];
            for (int r = 0; r < W; ++r) v[r] = scale * load(x + r * length + place);
            transpose<T>(v);
            for (int c = 0; c < W; ++c) store(block + (place + c) * W, v[c]);
        }
        Vec<T> largest[kLargest + 1];
        find_largest(block, entries, largest);
        // t is relative to the largest entry, which loses no digit that matters.
        const Vec<T> top = largest[0];
        Vec<T> t = fill(T(-1)), sum = t;
        for (int j = 1; j < kLargest; ++j) {
            sum += largest[j] - top;
            t = larger<T>(sum * (T(1) / static_cast<T>(j + 1)), t);
        }
        const Mask<T> done = ~(largest[kLargest] - top > t);
        if (any(~done)) t = newton(block, entries, top, t, done);
        alignas(64) T tops[W], ts[W];
        store(tops, top);
        store(ts, t);
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> rest = (scale * load(x + place) - tops[r]) - ts[r];
                store(out + place, larger<T>(Vec<T>{}, rest));  // what is not a number stays so
            }
    }

  private:
    // In descending order. Six at a time, sorted among themselves and then merged with those before.
    static inline void find_largest(const T* block, std::int64_t entries, Vec<T> (&largest)[kLargest + 1]) {
        static_assert(kLargest + 1 == 6, "the order of comparisons is for six");
        std::int64_t i = 0;
        if (entries >= 6) sorted_six(block, largest), i = 6;
        else
            for (Vec<T>& entry : largest) entry = fill(-static_cast<T>(__builtin_inf()));
        for (; i + 6 <= entries; i += 6) {
            Vec<T> v[6];
            sorted_six(block + i * W, v);
            for (int j = 0; j < 6; ++j) largest[j] = larger<T>(v[5 - j], largest[j]);
            constexpr int merge[][2] = {{0, 4}, {0, 5}, {1, 5}, {2, 4}, {3, 5}, {2, 3}, {4, 5}};
            for (const auto& pair : merge) exchange(largest[pair[0]], largest[pair[1]]);
        }
        for (; i < entries; ++i) {
            Vec<T> v = load(block + i * W);
            for (Vec<T>& entry : largest) exchange(entry, v);
        }
    }
    static inline void sorted_six(const T* block, Vec<T> (&v)[6]) {
        for (int j = 0; j < 6; ++j) v[j] = load(block + j * W);
        constexpr int sort[][2] = {{0, 5}, {1, 3}, {2, 4}, {1, 2}, {3, 4}, {0, 3},
                                   {2, 5}, {0, 1}, {2, 3}, {4, 5}, {1, 2}, {3, 4}};
        for (const auto& pair : sort) exchange(v[pair[0]], v[pair[1]]);
    }
    static inline void exchange(Vec<T>& high, Vec<T>& low) {
        const Vec<T> most = larger<T>(low, high);
        low = smaller<T>(low, high);
        high = most;
    }

    static Vec<T> newton(T* block, std::int64_t length, Vec<T> top, Vec<T> t, Mask<T> done) {
        Vec<T> before = fill(static_cast<T>(length + 1));
        while (any(~done)) {
            Vec<T> sum{}, count{};
            std::int64_t kept = 0;
            for (std::int64_t i = 0; i < length; ++i) {
                const Vec<T> v = load(block + i * W), rest = (v - top) - t;
                const Mask<T> positive = rest > T(0);
                sum += positive ? rest : Vec<T>{};
                count += positive ? fill(T(1)) : Vec<T>{};
                store(block + kept * W, v);
                kept += any(positive);
            }
            length = kept;
            // A row that is done stays as it is while its companions go on.
            t = done ? t : t + (sum - T(1)) / count;
            done |= ~(count < before);
            before = count;
        }
        return t;
    }
};

// d less its mean over the support of p, and 0 elsewhere.
template <typename T> struct ProjectDerivative {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* d, const T* p, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> sum[W] = {}, count[W] = {};
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                Mask<T> support = load(p + place) > T(0);
                if (at + W >= length) support &= fresh;
                sum[r] += support ? scale * load(d + place) : Vec<T>{};
                count[r] += support ? fill(T(1)) : Vec<T>{};
            }
        alignas(64) T mean[W];
        store(mean, sums<T>(sum) / sums<T>(count));
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> rest = scale * load(d + place) - mean[r];
                store(out + place, load(p + place) > T(0) ? rest : Vec<T>{});
            }
    }
};

// exp(x) = 2^n exp(r) with |r| <= log(2)/2. The polynomials are of least relative error, 3e-9 and
// 4e-18.
template <typename T> struct Exp;
template <> struct Exp<float> {
    static constexpr int mantissa = 23;
    // Adding this leaves n + 127 in the low bits, where the exponent of 2^n is made from it.
    static constexpr float shift = 12582912.0f + 127;
    static constexpr float smallest = -87.3365f;  // the result would not be a normal number below
    static constexpr float log2_high = 0.693359375f, log2_low = -2.12194440e-4f;
    static constexpr float coefficients[] = {0.0013814464761576854f, 0.0083687806225661850f,
                                             0.041668394259000904f, 0.16666520105542569f,
                                             0.49999993412261584f};
};
template <> struct Exp<double> {
    static constexpr int mantissa = 52;
    static constexpr double shift = 6755399441055744.0 + 1023;
    static constexpr double smallest = -708.396;
    static constexpr double log2_high = 6.93145751953125e-1, log2_low = 1.42860682030941723212e-6;
    static constexpr double coefficients[] = {
        2.4999967558549397007e-8,  2.7630379151550550871e-7,  2.7557587338095055878e-6,
        0.000024801492761211318725, 0.00019841269504765310988, 0.001388888894392427279,
        0.0083333333334956270615,  0.041666666666529181958,   0.16666666666666410221,
        0.50000000000000107218};
};

// For x <= 0, including minus infinity.
template <typename T> static inline Vec<T> exp(Vec<T> x) {
    using E = Exp<T>;
    const Vec<T> shifted = multiply_add<T>(x, fill(T(1.44269504088896340736)), fill(E::shift));
    const Vec<T> n = shifted - E::shift;
    Vec<T> r = multiply_add<T>(n, fill(-E::log2_high), x);
    r = multiply_add<T>(n, fill(-E::log2_low), r);
    Vec<T> q = fill(E::coefficients[0]);
    for (unsigned i = 1; i < sizeof(E::coefficients) / sizeof(T); ++i)
        q = multiply_add<T>(q, r, fill(E::coefficients[i]));
    const Vec<T> e = multiply_add<T>(q, r * r, r) + T(1);
    const Vec<T> power = (Vec<T>)((Mask<T>)shifted << E::mantissa);
    return x < E::smallest ? Vec<T>{} : e * power;
}

// Powers of a base that suits the processor, of any exponent, with a relative error of 2e-7 in float: where what counts is
// their ratios, and the base can be made up for by a factor.
template <typename T> struct Power;
template <> struct Power<float> {
    static constexpr float per_e = 1.44269504f;             // the base is 2
    static constexpr float least = 1e-27f, most = 1e37f;  // of sums that tell
    static constexpr float certain = 87.5f;                 // a lead of one label that leaves nothing to others
    static constexpr float shift = 12582912.0f;
    static constexpr float coefficients[] = {0.001326472422f, 0.009671513245f, 0.05550733757f, 0.2402224207f,
                                             0.6931469776f};
};
template <> struct Power<double> {
    static constexpr double per_e = 1.0;
    static constexpr double least = 1e-200, most = 1e300;
    static constexpr double certain = 699.0;
};
template <typename T> static inline Vec<T> power(Vec<T> x) {
    if constexpr (sizeof(T) == 8) {
        return exp<T>(smaller<T>(fill(T(700)), x));
    } else {
        using P = Power<T>;
        x = smaller<T>(fill(T(127)), larger<T>(fill(T(-127)), x));  // the power of -127 comes out as 0
        const Vec<T> shifted = x + P::shift, r = x - (shifted - P::shift);
        Vec<T> q = fill(P::coefficients[0]);
        for (unsigned i = 1; i < sizeof(P::coefficients) / sizeof(T); ++i)
            q = multiply_add<T>(q, r, fill(P::coefficients[i]));
        q = multiply_add<T>(q, r, fill(T(1)));
        return (Vec<T>)((Mask<T>)q + ((Mask<T>)shifted << Exp<T>::mantissa));
    }
}

template <typename T> struct Softmax {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* x, const T*, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> top[W], sum[W] = {};
        for (int r = 0; r < W; ++r) {
            top[r] = fill(-static_cast<T>(__builtin_inf()));
            for (std::int64_t at = 0; at < length; at += W)
                top[r] = larger<T>(scale * load(x + r * length + row.place(at)), top[r]);
        }
        alignas(64) T lanes[W];
        transpose<T>(top);
        for (int c = 1; c < W; ++c) top[0] = larger<T>(top[0], top[c]);
        store(lanes, top[0]);
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> e = exp<T>(scale * load(x + place) - lanes[r]);
                store(out + place, e);
                sum[r] += at + W >= length ? (fresh ? e : Vec<T>{}) : e;
            }
        store(lanes, T(1) / sums<T>(sum));
        for (int r = 0; r < W; ++r) {
            T* const to = out + r * length;
            // Before the vector that it overlaps is changed.
            const Vec<T> last = load(to + length - W);
            for (std::int64_t at = 0; at + W < length; at += W)
                store(to + at, load(to + at) * lanes[r]);
            store(to + length - W, last * lanes[r]);
        }
    }
};

// As many rows of x as a vector has lanes, from `first` on; if there is no x, of softmax(-unary), made in `room`.
template <typename T>
static inline const T* chances(const T* x, const T* unary, std::int64_t first, std::int64_t length, T* room) {
    if (x) return x + first * length;
    Softmax<T>::apply(unary + first * length, nullptr, room, length, T(-1), nullptr);
    return room;
}

// p (d - <d, p>)
template <typename T> struct SoftmaxDerivative {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* d, const T* p, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> sum[W] = {};
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> product = scale * load(d + place) * load(p + place);
                sum[r] += at + W >= length ? (fresh ? product : Vec<T>{}) : product;
            }
        alignas(64) T inner[W];
        store(inner, sums<T>(sum));
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                store(out + place, load(p + place) * (scale * load(d + place) - inner[r]));
            }
    }
};

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
