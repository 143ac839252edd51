#include "bind/dispatch.hpp"

#include <cstdlib>
#include <cstring>

namespace fwcrf {

#define FWCRF_F32(RESULT, NAME, ARGUMENTS) NAME<float>,
#define FWCRF_F64(RESULT, NAME, ARGUMENTS) NAME<double>,
#define FWCRF_TABLE(ISA)                                                                                               \
    namespace ISA {                                                                                                    \
    FWCRF_FUNCTIONS(FWCRF_DECLARE)                                                                                     \
    static const Dispatch table{#ISA, {FWCRF_FUNCTIONS(FWCRF_F32)}, {FWCRF_FUNCTIONS(FWCRF_F64)}};                     \
    }

FWCRF_TABLE(generic)
#ifdef FWCRF_HAVE_AVX2
FWCRF_TABLE(avx2)
#endif
#ifdef FWCRF_HAVE_AVX512
FWCRF_TABLE(avx512)
#endif

static const Dispatch& choose() {
    const char* wish = std::getenv("FWCRF_ISA");
    if (wish && !*wish) wish = nullptr;
    const auto allowed = [wish](const char* isa) { return !wish || !std::strcmp(wish, isa); };
#ifdef FWCRF_HAVE_AVX512
    // Zen 4 computes vectors of 64 bytes in halves: they only add padding there.
    if ((wish || !__builtin_cpu_is("amdfam19h")) && allowed("avx512") && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw"))
        return avx512::table;
#endif
#ifdef FWCRF_HAVE_AVX2
    if ((allowed("avx2") || allowed("avx512")) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        return avx2::table;
#endif
    (void)allowed;
    return generic::table;
}

const Dispatch& dispatch() {
    static const Dispatch& table = choose();
    return table;
}

}  // namespace fwcrf
