// The module _core.
#include "bind/arrays.hpp"
#include "runtime/blocks.hpp"
#include "runtime/stop.hpp"

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <pthread.h>
#endif

namespace fwcrf {
namespace {

// An uninitialized array of bytes.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> empty(std::size_t bytes) {
    void* block = take_block(bytes);
    nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
    return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(block, {bytes}, owner);
}

// True on the thread on which Python calls the handlers of signals.
bool on_main_thread() {
#ifdef __linux__
    return syscall(SYS_gettid) == getpid();
#else
    return pthread_main_np() != 0;
#endif
}

// Calls the handlers of pending signals. True if a handler has raised an exception, which Python then holds.
bool signal_raises() {
    if (!on_main_thread()) return false;
    const nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
}

void translate(const std::exception_ptr& thrown, void*) {
    try {
        std::rethrow_exception(thrown);
    } catch (const Interrupted&) {  // Python holds the exception of the handler
    } catch (const OutOfMemory& e) {
        PyErr_Format(PyExc_MemoryError, "no memory for an array of %zu bytes", e.bytes);
    }
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a model may still be alive when the interpreter ends
    nb::register_exception_translator(translate);
    set_signal_check(signal_raises);
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
