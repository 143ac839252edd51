// Arrays of Python as arguments of the bindings.
//
// The Python callers check shapes and finiteness. The bindings check only conditions that would corrupt memory.
#pragma once

#include "bind/dispatch.hpp"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <optional>
#include <stdexcept>
#include <vector>

namespace nb = nanobind;
using namespace nb::literals;

namespace fwcrf {

template <typename T, int N> using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N> using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N> using Maybe = std::optional<In<T, N>>;
template <typename T, int N> using Strided = nb::ndarray<const T, nb::ndim<N>, nb::device::cpu>;

inline void require(bool holds, const char* condition) {
    if (!holds) throw std::invalid_argument(condition);
}

template <typename A> std::int64_t size(const A& array, int axis) {
    return static_cast<std::int64_t>(array.shape(axis));
}
template <typename A, typename B> void require_same(const A& a, const B& b, const char* condition) {
    for (std::size_t axis = 0; axis < a.ndim(); ++axis) require(a.shape(axis) == b.shape(axis), condition);
}

// Each adds its functions to the module.
void bind_filters(nb::module_& m);
void bind_graphs(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_steps(nb::module_& m);

}  // namespace fwcrf
