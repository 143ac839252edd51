// Whether steps change a probability, and to which accuracy.
#pragma once

#include "steps/arguments.hpp"

namespace fwcrf::FWCRF_ISA {

// A change of x up to this is rounding.
template <typename T> constexpr T kSame = sizeof(T) == 4 ? T(1e-6) : T(1e-13);

// The tolerance of a run, or rounding if it is less.
template <typename T> static inline T at_least_rounding(T tolerance) {
    return tolerance > kSame<T> ? tolerance : kSame<T>;
}

// True for steps that differ in their sizes only, so that after a step that changes nothing no step changes anything.
template <typename T> static bool steps_alike(const StepArgs<T>& a) {
    for (int k = 0; k < a.steps; ++k) {
        const Update<T>&m = a.update[k], &first = a.update[0];
        if (m.map != first.map || m.scale != first.scale || m.keep != first.keep || m.unary != first.unary ||
            m.lean != T(0) || m.dual != Dual::none || !a.out[k] || a.out[k] != a.out[0])
            return false;
    }
    return true;
}

}  // namespace fwcrf::FWCRF_ISA
