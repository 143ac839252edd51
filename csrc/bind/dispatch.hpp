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

// The same for rows of so many bytes that are padded to whole vectors: a lower set if its narrower vectors pad less. A
// step of large lattices moves all their rows, and takes the shorter for it, more than wide vectors save instructions.
const Dispatch& dispatch_for_rows(std::int64_t bytes);

// native<T>().filter(arguments) calls the function of the chosen instruction set.
template <typename T> const Functions<T>& native() {
    if constexpr (std::is_same_v<T, float>) return dispatch().f32;
    else return dispatch().f64;
}
template <typename T> const Functions<T>& native_for_rows(std::int64_t values) {
    const Dispatch& found = dispatch_for_rows(values * std::int64_t{sizeof(T)});
    if constexpr (std::is_same_v<T, float>) return found.f32;
    else return found.f64;
}

}  // namespace fwcrf
