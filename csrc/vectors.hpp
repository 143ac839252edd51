// Vectors as wide as the instruction set this file is compiled for.
//
// Everything is static: the multi-compiled files must share no function with external linkage, or the
// linker would keep one copy, built for one instruction set, for all.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

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
    // It may alias its elements and nothing else, so that what is stored leaves pointers and sizes in their registers.
    typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T))));
};
template <typename T> using Vec = typename VectorOf<T>::type;
template <typename T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T> static inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(p);
}
template <typename T> static inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<typename VectorOf<T>::unaligned*>(p) = v;
}
// The same, once and for all: the compiler would else read it again for every product that it is part of.
template <typename T> static inline Vec<T> load_once(const T* p) {
    Vec<T> v = load(p);
#if defined(__AVX512F__)
    asm("" : "+v"(v));
#elif defined(__x86_64__)
    asm("" : "+x"(v));
#endif
    return v;
}
template <typename T> static inline Vec<T> load_part(const T* p, std::int64_t count) {
    Vec<T> v{};
    std::memcpy(&v, p, count * sizeof(T));
    return v;
}
template <typename T> static inline void store_part(T* p, Vec<T> v, std::int64_t count) {
    std::memcpy(p, &v, count * sizeof(T));
}

// A whole vector, or as much of it as there is; zero past that.
template <typename T> static inline Vec<T> load_some(const T* p, std::int64_t count) {
    return count >= kLanes<T> ? load(p) : load_part(p, count);
}
template <typename T> static inline void store_some(T* p, Vec<T> v, std::int64_t count) {
    if (count >= kLanes<T>) store(p, v);
    else store_part(p, v, count);
}

// Of each pair of blocks of H lanes: the first blocks of a and b, or the second ones.
template <typename T, int H, bool second, int... lane>
static inline Vec<T> blocks(Vec<T> a, Vec<T> b, std::integer_sequence<int, lane...>) {
    constexpr int W = kLanes<T>, from = second ? H : 0;
#if defined(__clang__) || __GNUC__ >= 12
    return __builtin_shufflevector(a, b, ((lane & H ? W + lane - H : lane) + from)...);
#else
    return Vec<T>{(lane & H ? b[lane - H + from] : a[lane + from])...};
#endif
}

// Transposes a square of as many vectors as they have lanes; in registers, which a call would empty.
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

}  // namespace fwcrf::FWCRF_ISA
