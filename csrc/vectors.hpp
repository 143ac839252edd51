// Vectors as wide as the instruction set this file is compiled for.
//
// Everything is static: the multi-compiled files must share no function with external linkage, or the
// linker would keep one copy, built for one instruction set, for all.
#pragma once

#include <cstdint>
#include <cstring>

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
    typedef T unaligned __attribute__((vector_size(kVectorBytes), aligned(alignof(T)), may_alias));
};
template <typename T> using Vec = typename VectorOf<T>::type;
template <typename T> constexpr int kLanes = kVectorBytes / static_cast<int>(sizeof(T));

template <typename T> static inline Vec<T> load(const T* p) {
    return *reinterpret_cast<const typename VectorOf<T>::unaligned*>(p);
}
template <typename T> static inline void store(T* p, Vec<T> v) {
    *reinterpret_cast<typename VectorOf<T>::unaligned*>(p) = v;
}
template <typename T> static inline Vec<T> load_part(const T* p, std::int64_t count) {
    Vec<T> v{};
    std::memcpy(&v, p, count * sizeof(T));
    return v;
}
template <typename T> static inline void store_part(T* p, Vec<T> v, std::int64_t count) {
    std::memcpy(p, &v, count * sizeof(T));
}

}  // namespace fwcrf::FWCRF_ISA
