// The module _core.
#include "bind/arrays.hpp"
#include "runtime/blocks.hpp"

namespace fwcrf {
namespace {

// An uninitialized array of bytes.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> empty(std::size_t bytes) {
    void* block = take_block(bytes);
    nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
    return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(block, {bytes}, owner);
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a model may still be alive when the interpreter ends
    bind_filters(m);
    bind_graphs(m);
    bind_maps(m);
    bind_steps(m);
    m.def("empty", &empty, "bytes"_a);
    m.def("isa", [] { return dispatch().isa; });
    m.def("openmp", [] {
#ifdef _OPENMP
        return true;
#else
        return false;
#endif
    });
}

}  // namespace fwcrf
