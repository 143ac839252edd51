// Vectors as wide as the instruction set that the file is compiled for, and named functions on them.
//
// Only this folder uses the compiler's vector extensions and intrinsics. Other files use arithmetic operators,
// comparisons and the functions below, so that another SIMD library needs a change of this folder alone.
//
// All functions are static: files compiled for different instruction sets must share no function with external linkage,
// or the linker would keep one copy for all of them.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#ifdef __x86_64__
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace fwcrf::FWCRF_ISA {

#if defined(__AVX512F__)
constexpr int kVectorBytes = 64;
#elif defined(__AVX2__)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif

template <typename T> struct VectorOf {
    typedef T type __attribute__((vector_size(kVectorBytes)));
    // May alias its elements and no other type, so that a store leaves pointers and sizes in registers.
    typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T))));
};
template <typename T> using Vec = typename VectorOf<T>::type;
template <typename T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));
template <typename T> constexpr bool kSingle = sizeof(T) == 4;  // 4-byte lanes, else 8-byte lanes

// The result of a comparison: all bits of a lane are set, or none. Also signed integers as wide as T.
template <typename T> using Mask = decltype(Vec<T>{} > Vec<T>{});
template <typename T> using Int = Mask<T>;

template <typename T> static inline Vec<T> fill(T value) { return Vec<T>{} + value; }
template <typename V> static inline auto lane(V v, std::int64_t l) { return v[l]; }
template <typename V, typename T> static inline void set_lane(V& v, std::int64_t l, T value) { v[l] = value; }
// Lane l is value(l).
template <typename V, typename F> static inline V lanes_of(F&& value) {
    V v{};
    for (int l = 0; l < static_cast<int>(sizeof(V) / sizeof(v[0])); ++l) v[l] = value(l);
    return v;
}
// The lanes of a where the mask is set, else the lanes of b.
template <typename M, typename V> static inline V select(M mask, V a, V b) { return mask ? a : b; }

// The bits of a vector as integers, and back; the lanes of a vector where a mask is set, else 0.
template <typename T> static inline Int<T> to_bits(Vec<T> v) { return (Int<T>)v; }
template <typename T> static inline Vec<T> from_bits(Int<T> v) { return (Vec<T>)v; }
template <typename T> static inline Vec<T> masked(Vec<T> v, Int<T> mask) { return from_bits<T>(to_bits<T>(v) & mask); }
template <typename T> static inline Vec<T> to_numbers(Int<T> v) { return __builtin_convertvector(v, Vec<T>); }
// The same for integers from 0 to 2^52, without the slow conversion from 64-bit integers.
template <typename T> static inline Vec<T> small_to_numbers(Int<T> v) {
    if constexpr (kSingle<T>) return to_numbers<T>(v);
    // The integer in the low bits of 2^52, read as a double.
    else return from_bits<T>(v | 0x4330000000000000) - 4503599627370496.0;
}
// Each lane rounded to the nearest float.
static inline Vec<double> rounded_to_float(Vec<double> v) {
#if defined(__aarch64__)  // compilers convert the floats back one by one
    return (Vec<double>)vcvt_f64_f32(vcvt_f32_f64((float64x2_t)v));
#else
    typedef float Floats __attribute__((vector_size(kVectorBytes / 2)));
    return __builtin_convertvector(__builtin_convertvector(v, Floats), Vec<double>);
#endif
}

template <typename T> static inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(p);
}
template <typename T> static inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<typename VectorOf<T>::unaligned*>(p) = v;
}
// A load that stays in a register: the compiler would else load again for every product.
template <typename T> static inline Vec<T> load_once(const T* p) {
    Vec<T> v = load(p);
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}
// `count` lanes, fewer than a vector has; the rest is zero.
template <typename T> static inline Vec<T> load_part(const T* p, std::int64_t count) {
    Vec<T> v{};
    std::memcpy(&v, p, count * sizeof(T));
    return v;
}
template <typename T> static inline void store_part(T* p, Vec<T> v, std::int64_t count) {
    std::memcpy(p, &v, count * sizeof(T));
}
// `count` lanes, or a whole vector if that is less.
template <typename T> static inline Vec<T> load_some(const T* p, std::int64_t count) {
    return count >= kLanes<T> ? load(p) : load_part(p, count);
}
template <typename T> static inline void store_some(T* p, Vec<T> v, std::int64_t count) {
    if (count >= kLanes<T>) store(p, v);
    else store_part(p, v, count);
}
// Entries of 16 bytes of a table, as many as fit into a vector.
template <typename T> static inline Vec<T> load_sixteens(const std::uint64_t* table, const std::int32_t* at) {
    const auto one = [&](int q) { return table + 2 * std::int64_t{at[q]}; };
#if defined(__AVX512F__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    const __m512i low = _mm512_inserti64x2(_mm512_castsi128_si512(part(0)), part(1), 1);
    return (Vec<T>)_mm512_inserti64x2(_mm512_inserti64x2(low, part(2), 2), part(3), 3);
#elif defined(__AVX2__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    return (Vec<T>)_mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
#else
    Vec<T> v;
    std::memcpy(&v, one(0), sizeof(v));
    return v;
#endif
}
// A hint to load cache lines into the second-level cache; the first level is mostly full of data in use. Always
// inlined: GCC removes calls of functions that do nothing but prefetch.
template <int Locality = 2, typename V>
__attribute__((always_inline)) static inline void prefetch(const V* values, int count) {
    constexpr int line = 64 / sizeof(V);
    for (int at = 0; at < count; at += line) __builtin_prefetch(values + at, 0, Locality);
}

// The second argument if either is NaN. One instruction, which compilers do not find in a > b ? a : b.
template <typename T> static inline Vec<T> max(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm512_max_ps((__m512)a, (__m512)b);
    else return (Vec<T>)_mm512_max_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm256_max_ps((__m256)a, (__m256)b);
    else return (Vec<T>)_mm256_max_pd((__m256d)a, (__m256d)b);
#else
    return a > b ? a : b;
#endif
}
template <typename T> static inline Vec<T> min(Vec<T> a, Vec<T> b) {
#if defined(__AVX512F__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm512_min_ps((__m512)a, (__m512)b);
    else return (Vec<T>)_mm512_min_pd((__m512d)a, (__m512d)b);
#elif defined(__AVX2__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm256_min_ps((__m256)a, (__m256)b);
    else return (Vec<T>)_mm256_min_pd((__m256d)a, (__m256d)b);
#else
    return a < b ? a : b;
#endif
}
template <typename T> static inline Vec<T> sqrt(Vec<T> v) {
#if defined(__AVX512F__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm512_sqrt_ps((__m512)v);
    else return (Vec<T>)_mm512_sqrt_pd((__m512d)v);
#elif defined(__AVX2__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm256_sqrt_ps((__m256)v);
    else return (Vec<T>)_mm256_sqrt_pd((__m256d)v);
#elif defined(__x86_64__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm_sqrt_ps((__m128)v);
    else return (Vec<T>)_mm_sqrt_pd((__m128d)v);
#elif defined(__aarch64__)
    if constexpr (kSingle<T>) return (Vec<T>)vsqrtq_f32((float32x4_t)v);
    else return (Vec<T>)vsqrtq_f64((float64x2_t)v);
#else
    for (int l = 0; l < kLanes<T>; ++l) v[l] = static_cast<T>(__builtin_sqrt(v[l]));
    return v;
#endif
}
// a * b + c, rounded once if the instruction set can, also in files that are compiled without contraction.
template <typename T> static inline Vec<T> fma(Vec<T> a, Vec<T> b, Vec<T> c) {
#if defined(__AVX512F__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
    else return (Vec<T>)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif defined(__FMA__)
    if constexpr (kSingle<T>) return (Vec<T>)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
    else return (Vec<T>)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#elif defined(__aarch64__)
    if constexpr (kSingle<T>) return (Vec<T>)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
    else return (Vec<T>)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b);
#else
    return a * b + c;
#endif
}
template <typename M> static inline bool any(M mask) {
#if defined(__AVX512F__)
    return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask) != 0;
#elif defined(__AVX2__)
    return _mm256_movemask_epi8((__m256i)mask) != 0;
#elif defined(__x86_64__)
    return _mm_movemask_epi8((__m128i)mask) != 0;
#elif defined(__aarch64__)
    return vmaxvq_u32((uint32x4_t)mask) != 0;
#else
    bool found = false;
    for (unsigned l = 0; l < sizeof(M) / sizeof(mask[0]); ++l) found |= mask[l] != 0;
    return found;
#endif
}
// The lanes that are set, one bit each.
template <typename M> static inline std::uint64_t bits(M mask) {
    constexpr int lanes = static_cast<int>(sizeof(M) / sizeof(mask[0]));
#if defined(__AVX512F__)
    if constexpr (lanes == 16) return _mm512_test_epi32_mask((__m512i)mask, (__m512i)mask);
    else return _mm512_test_epi64_mask((__m512i)mask, (__m512i)mask);
#elif defined(__AVX2__)
    if constexpr (lanes == 8) return static_cast<std::uint32_t>(_mm256_movemask_ps((__m256)mask));
    else return static_cast<std::uint32_t>(_mm256_movemask_pd((__m256d)mask));
#else
    std::uint64_t found = 0;
    for (int l = 0; l < lanes; ++l) found |= static_cast<std::uint64_t>(mask[l] != 0) << l;
    return found;
#endif
}
// The sum of the lanes, from the first to the last.
template <typename T> static inline T total(Vec<T> v) {
    T sum = 0;
    for (int l = 0; l < kLanes<T>; ++l) sum += v[l];
    return sum;
}
// True if every lane is 0. With v += x * 0 over all x, that tells whether all x are finite.
template <typename T> static inline bool all_zero(Vec<T> v) { return !any(~(v == T(0))); }

// The first blocks of H lanes of each pair of blocks of a and b, or the second blocks.
template <typename T, int H, bool second, int... lane>
static inline Vec<T> blocks(Vec<T> a, Vec<T> b, std::integer_sequence<int, lane...>) {
    constexpr int W = kLanes<T>, from = second ? H : 0;
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, ((lane & H ? W + lane - H : lane) + from)...);
#else
    return Vec<T>{(lane & H ? b[lane - H + from] : a[lane + from])...};
#endif
}

// Transposes a square of vectors; in registers, which a call would empty.
template <typename T, int H = 1> __attribute__((always_inline)) static inline void transpose(Vec<T> (&v)[kLanes<T>]) {
    if constexpr (H < kLanes<T>) {
        constexpr std::make_integer_sequence<int, kLanes<T>> lanes{};
        for (int i = 0; i < kLanes<T>; ++i) {
            if (i & H) continue;
            const Vec<T> a = v[i], b = v[i + H];
            v[i] = blocks<T, H, false>(a, b, lanes);
            v[i + H] = blocks<T, H, true>(a, b, lanes);
        }
        transpose<T, 2 * H>(v);
    }
}
// The sum of the lanes of vector r in lane r: `transpose` that adds on the way. Overwrites v.
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
// Vector k of the array in which each lane of v is repeated C times.
template <int C, int k, typename T, int... lane>
static inline Vec<T> repeated(Vec<T> v, std::integer_sequence<int, lane...>) {
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(v, v, ((k * kLanes<T> + lane) / C)...);
#else
    return Vec<T>{v[(k * kLanes<T> + lane) / C]...};
#endif
}

}  // namespace fwcrf::FWCRF_ISA
