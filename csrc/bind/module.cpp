// The module _core.
#include "bind/arrays.hpp"
#include "runtime/blocks.hpp"
#include "runtime/parallel.hpp"
#include "runtime/stop.hpp"

#include <algorithm>

#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
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
#ifdef __linux__
bool on_main_thread() { return syscall(SYS_gettid) == getpid(); }
void know_main_thread() {}
#else
unsigned long main_thread = 0;
bool on_main_thread() { return PyThread_get_thread_ident() == main_thread; }
void know_main_thread() {
    main_thread = nb::cast<unsigned long>(nb::module_::import_("threading").attr("main_thread")().attr("ident"));
}
#endif

// Calls the handlers of pending signals. True if a handler has raised an exception, which Python then holds.
bool signal_raises() {
    if (!on_main_thread()) return false;
    const nb::gil_scoped_acquire acquire;
    return PyErr_CheckSignals() != 0;
}

// memoryview(object) is memoryview(object._values), for a subclass that has `_values`. Python itself can write such a
// class from 3.12 on only.
int get_buffer(PyObject* object, Py_buffer* view, int flags) {
    PyObject* const values = PyObject_GetAttrString(object, "_values");
    if (values == nullptr) {
        PyErr_SetString(PyExc_BufferError, "the object has no values");
        view->obj = nullptr;
        return -1;
    }
    const int status = PyObject_GetBuffer(values, view, flags);  // holds the values
    Py_DECREF(values);
    return status;
}

nb::object exporter() {
    static PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};
    static PyType_Spec spec = {"fwcrf._core.Exporter", sizeof(PyObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                               slots};
    PyObject* const type = PyType_FromSpec(&spec);
    if (type == nullptr) throw nb::python_error();
    return nb::steal(type);
}

// The number of threads, at most `most`, for so many multiplications: waking a thread costs more than a small share
// saves.
int threads_for(std::int64_t work, int most) {
    constexpr std::int64_t kWorkPerThread = 400'000;
    return static_cast<int>(std::clamp<std::int64_t>(work / kWorkPerThread, 1, std::max(1, most)));
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
    know_main_thread();
    set_signal_check(signal_raises);
    bind_filters(m);
    bind_graphs(m);
    bind_maps(m);
    bind_steps(m);
    m.attr("Exporter") = exporter();
    m.def("empty", &empty, "bytes"_a);
    m.def("isa", [] { return dispatch().isa; });
    m.def("isa_for_rows", [](std::int64_t bytes) { return dispatch_for_rows(bytes).isa; }, "bytes"_a);
    m.def("max_threads", &max_threads);
    m.def(
        "set_threads",
        [](int threads) {
            require(threads >= 1, "threads >= 1");
            set_threads(threads);
        },
        "threads"_a);
    m.def("threads_for", &threads_for, "work"_a, "most"_a);
    m.def("openmp", [] {
#ifdef _OPENMP
        return true;
#else
        return false;
#endif
    });
}

}  // namespace fwcrf
