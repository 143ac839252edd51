#include "bind/dispatch.hpp"

#include "bind/processor.hpp"

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

// FWCRF_ISA, or null.
static const char* wished() {
    const char* wish = std::getenv("FWCRF_ISA");
    return wish && *wish ? wish : nullptr;
}

static const Dispatch& choose() {
    const char* const wish = wished();
    const auto allowed = [wish](const char* isa) { return !wish || !std::strcmp(wish, isa); };
#ifdef FWCRF_HAVE_AVX512
    // Vectors in halves only add padding.
    if ((wish || !this_processor().halves) && allowed("avx512") && this_processor().avx512) return avx512::table;
#endif
#ifdef FWCRF_HAVE_AVX2
    if ((allowed("avx2") || allowed("avx512")) && this_processor().avx2) return avx2::table;
#endif
    (void)allowed;
    return generic::table;
}

const Dispatch& dispatch() {
    static const Dispatch& table = choose();
    return table;
}

static const Dispatch& narrow() {
#if defined(FWCRF_HAVE_AVX2) && defined(FWCRF_HAVE_AVX512)
    if (&dispatch() == &avx512::table && !wished()) return avx2::table;
#endif
    return dispatch();
}

const Dispatch& dispatch_for_rows(std::int64_t bytes) {
    static const Dispatch& table = narrow();
    // Rows of up to two vectors of 64 bytes, the last of which is at most half full; beyond, both pad alike.
    const bool half = bytes <= 128 && (bytes - 1) % 64 < 32;
    return half ? table : dispatch();
}

}  // namespace fwcrf
