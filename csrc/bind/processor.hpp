// The instruction sets of an x86-64 processor, as far as the operating system saves their registers.
//
// Not __builtin_cpu_supports: clang-cl has it, but Microsoft's linker does not find what it calls.
#pragma once

#ifdef __x86_64__

#include <cstdint>

namespace fwcrf {

struct Processor {
    bool avx2 = false, avx512 = false;
    bool halves = false;  // vectors of 64 bytes are computed in halves (AMD's Zen 4)
};

namespace processor {

struct Registers {
    std::uint32_t a, b, c, d;
};
inline Registers cpuid(std::uint32_t leaf) {
    Registers r{leaf, 0, 0, 0};
    asm volatile("cpuid" : "+a"(r.a), "=b"(r.b), "+c"(r.c), "=d"(r.d));
    return r;
}
// The registers that the operating system saves.
inline std::uint32_t saved() {
    std::uint32_t low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}
inline bool all(std::uint32_t word, std::uint32_t bits) { return (word & bits) == bits; }

}  // namespace processor

inline Processor this_processor() {
    using namespace processor;
    const Registers vendor = cpuid(0), one = cpuid(1);
    constexpr std::uint32_t fma = 1u << 12, osxsave = 1u << 27, avx = 1u << 28;
    Processor found;
    if (vendor.a < 7 || !all(one.c, fma | osxsave | avx) || !all(saved(), 0x6)) return found;
    const std::uint32_t seven = cpuid(7).b, f = 1u << 16, dq = 1u << 17, bw = 1u << 30, vl = 1u << 31;
    found.avx2 = all(seven, 1u << 5);
    found.avx512 = found.avx2 && all(saved(), 0xe6) && all(seven, f | dq | bw | vl);
    const bool amd = vendor.b == 0x68747541 && vendor.d == 0x69746e65 && vendor.c == 0x444d4163;  // AuthenticAMD
    found.halves = amd && (one.a >> 8 & 15) + (one.a >> 20 & 255) == 0x19;
    return found;
}

}  // namespace fwcrf

#endif
