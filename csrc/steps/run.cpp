// Steps of a solver on P x + u: with two labels, few labels or many labels.
//
// First all terms scatter x: lattices by splat and blur, grids by filters onto fewer rows. Then every block of pixels
// reads its part of each term while the block is in the first-level cache, combines the terms over the labels, maps the
// result, and writes it once; in the same pass it is scattered for the next step.
#include "bind/functions.hpp"
#include "steps/few_labels.hpp"
#include "steps/many_labels.hpp"
#include "steps/two_labels.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> static bool two_labels(const StepArgs<T>& a) {
    thread_local Scratch scratch;
    TwoLabels<T> model(a, scratch);
    Any bad;
    in_parallel(a.threads, [&](Team team) { bad |= !model.run(team); });
    scratch.trim();
    model.stop.check();
    return !bad;
}

template <typename T> std::int64_t lanes() { return kLanes<T>; }

template <typename T> bool run_steps(const StepArgs<T>& a) {
    if (TwoLabels<T>::takes(a)) return two_labels(a);
    return ManyLabels<T>::takes(a) ? ManyLabels<T>{a}.run() : few_labels(a);
}

FWCRF_INSTANTIATE(lanes)
FWCRF_INSTANTIATE(run_steps)

}  // namespace fwcrf::FWCRF_ISA
