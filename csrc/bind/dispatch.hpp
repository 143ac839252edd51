// The functions of functions.hpp for the processor that the program runs on.
#pragma once

#include "bind/functions.hpp"

#include <type_traits>

namespace fwcrf {

template <typename T> struct Functions {
#define FWCRF_POINTER(RESULT, NAME, ARGUMENTS) RESULT(*NAME) ARGUMENTS;
    FWCRF_FUNCTIONS(FWCRF_POINTER)
#undef FWCRF_POINTER
};

struct Dispatch {
    const char* isa;
    Functions<float> f32;
    Functions<double> f64;
};

// The fastest instruction set of this processor; FWCRF_ISA=generic|avx2|avx512 in the environment chooses a lower one.
const Dispatch& dispatch();

// native<T>().filter(arguments) calls the function of the chosen instruction set.
template <typename T> const Functions<T>& native() {
    if constexpr (std::is_same_v<T, float>) return dispatch().f32;
    else return dispatch().f64;
}

}  // namespace fwcrf
