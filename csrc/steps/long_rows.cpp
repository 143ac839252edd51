// Steps with few labels in rows of more than 4 vectors: only instruction sets with short vectors have such rows.
#include "bind/functions.hpp"
#include "steps/few_labels.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> bool run_long_rows(const StepArgs<T>& a, Scratch& scratch) {
    constexpr std::int64_t W = kLanes<T>, most = kMostLabels<T> / W;
    const std::int64_t vectors = (a.channels + W - 1) / W;
    if constexpr (most > 8) {
        if (vectors > 12) return run_rows<T, 16>(a, scratch);
        if (vectors > 8) return run_rows<T, 12>(a, scratch);
    }
    if constexpr (most > 4) return vectors > 6 ? run_rows<T, 8>(a, scratch) : run_rows<T, 6>(a, scratch);
    return false;  // not reached: 4 vectors hold kMostLabels
}

FWCRF_INSTANTIATE(run_long_rows)

}  // namespace fwcrf::FWCRF_ISA
