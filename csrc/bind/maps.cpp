// Maps of whole arrays: layouts, energies, simplices, argmax.
#include "bind/arrays.hpp"

namespace fwcrf {
namespace {

template <typename T>
TransposeArgs<T> turned(const In<T, 3>& x, const In<T, 3>* beside, double slope, double offset, Out<T, 3>& out,
                        int threads) {
    for (int axis = 0; axis < 3; ++axis) {
        const std::size_t size = x.shape(axis ? 3 - axis : 0);
        require(out.shape(axis) == size && (!beside || beside->shape(axis) == size), "output shape");
    }
    require(threads >= 1, "threads >= 1");
    return {x.data(),
            beside ? beside->data() : nullptr,
            out.data(),
            size(x, 0),
            size(x, 1),
            size(x, 2),
            static_cast<T>(slope),
            static_cast<T>(offset),
            threads};
}

template <typename T> void transposed(In<T, 3> x, Out<T, 3> out, int threads, double factor) {
    const TransposeArgs<T> args = turned<T>(x, nullptr, factor, 0, out, threads);
    nb::gil_scoped_release release;
    native<T>().transpose_array(args);
}

// Transpose and argmax of each row.
template <typename T>
void transposed_and_largest(In<T, 3> x, Out<T, 3> out, Out<std::int64_t, 2> largest, int threads) {
    TransposeArgs<T> args = turned<T>(x, nullptr, 1, 0, out, threads);
    require(largest.shape(0) == x.shape(0) && largest.shape(1) == x.shape(1) && x.shape(2) >= 1, "one column per row");
    args.largest = largest.data();
    nb::gil_scoped_release release;
    native<T>().transpose_array(args);
}

template <typename T> void transposed_log(In<T, 3> x, double slope, double offset, Out<T, 3> out, int threads) {
    const TransposeArgs<T> args = turned<T>(x, nullptr, slope, offset, out, threads);
    nb::gil_scoped_release release;
    native<T>().transpose_log(args);
}

template <typename T>
void transposed_log_derivative(In<T, 3> g, In<T, 3> x, double slope, double offset, Out<T, 3> out, int threads) {
    const TransposeArgs<T> args = turned<T>(g, &x, slope, offset, out, threads);
    nb::gil_scoped_release release;
    native<T>().transpose_log_derivative(args);
}

// Returns false if a value is not finite.
template <typename T> void largest_columns(In<T, 2> x, Out<std::int64_t, 1> out, int threads) {
    require(x.shape(1) >= 1 && out.shape(0) == x.shape(0) && threads >= 1, "one column per row");
    nb::gil_scoped_release release;
    native<T>().argmax(x.data(), size(x, 0), size(x, 1), out.data(), threads);
}

// See EnergyArgs. Returns ScoreRange as (finite, least, most, lowest sum, highest sum).
template <typename T>
std::tuple<bool, double, double, double, double> energies(In<T, 3> scores, bool last, bool probabilities, double least,
                                                          Out<T, 3> out, int threads) {
    const std::size_t batch = out.shape(0), n = out.shape(1), labels = out.shape(2);
    require(scores.shape(0) == batch && scores.shape(last ? 1 : 2) == n && scores.shape(last ? 2 : 1) == labels,
            "shapes");
    require(labels >= 1 && least > 0 && threads >= 1, "at least one label, a least probability, threads >= 1");
    const EnergyArgs<T> args{scores.data(),
                             out.data(),
                             static_cast<std::int64_t>(batch),
                             static_cast<std::int64_t>(labels),
                             static_cast<std::int64_t>(n),
                             last,
                             probabilities,
                             static_cast<T>(least),
                             threads};
    nb::gil_scoped_release release;
    const ScoreRange e = native<T>().energies(args);
    return {e.finite, e.least, e.most, e.lowest_sum, e.highest_sum};
}

template <typename T>
void map_rows(void (*map)(const SimplexArgs<T>&), In<T, 2> x, const In<T, 2>* p, double scale, Out<T, 2> out,
              int threads) {
    require(x.shape(1) >= 1 && threads >= 1, "rows of at least one entry, threads >= 1");
    require_same(x, out, "output shape");
    if (p) require_same(x, *p, "one derivative per row");
    nb::gil_scoped_release release;
    map({x.data(), p ? p->data() : nullptr, out.data(), size(x, 0), size(x, 1), static_cast<T>(scale), threads});
}

template <typename T> void project(In<T, 2> v, double scale, Out<T, 2> out, int threads) {
    map_rows<T>(native<T>().project, v, nullptr, scale, out, threads);
}

template <typename T> void project_derivative(In<T, 2> d, In<T, 2> p, double scale, Out<T, 2> out, int threads) {
    map_rows<T>(native<T>().project_derivative, d, &p, scale, out, threads);
}

template <typename T> void softmax(In<T, 2> v, double scale, Out<T, 2> out, int threads) {
    map_rows<T>(native<T>().softmax, v, nullptr, scale, out, threads);
}

template <typename T> void softmax_derivative(In<T, 2> d, In<T, 2> p, double scale, Out<T, 2> out, int threads) {
    map_rows<T>(native<T>().softmax_derivative, d, &p, scale, out, threads);
}

template <typename T> void bind(nb::module_& m) {
    m.def("transpose", &transposed<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a, "factor"_a = 1.0);
    m.def("transpose_and_argmax", &transposed_and_largest<T>, "x"_a.noconvert(), "out"_a.noconvert(),
          "labels"_a.noconvert(), "threads"_a);
    m.def("transpose_log", &transposed_log<T>, "x"_a.noconvert(), "slope"_a, "offset"_a, "out"_a.noconvert(),
          "threads"_a);
    m.def("transpose_log_derivative", &transposed_log_derivative<T>, "g"_a.noconvert(), "x"_a.noconvert(), "slope"_a,
          "offset"_a, "out"_a.noconvert(), "threads"_a);
    m.def("argmax", &largest_columns<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("energies", &energies<T>, "scores"_a.noconvert(), "last"_a, "probabilities"_a, "least"_a, "out"_a.noconvert(),
          "threads"_a);
    m.def("project", &project<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("project_derivative", &project_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(), "scale"_a,
          "out"_a.noconvert(), "threads"_a);
    m.def("softmax", &softmax<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("softmax_derivative", &softmax_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(), "scale"_a,
          "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_maps(nb::module_& m) {
    bind<float>(m);
    bind<double>(m);
}

}  // namespace fwcrf
