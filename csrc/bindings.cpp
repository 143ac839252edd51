// Arrays in, arrays out. Shapes and finiteness are checked by the Python callers; what is checked
// here is what would otherwise corrupt memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <optional>
#include <stdexcept>
#include <vector>

#include "features.hpp"
#include "kernels.hpp"
#include "lattice.hpp"
#include "memory.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fwcrf {
namespace {

template <typename T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Table = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<3>>;

void require(bool holds, const char* what) {
    if (!holds) throw std::invalid_argument(what);
}

// Uninitialised memory for an array of this many bytes.
nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>> empty(std::size_t bytes) {
    void* block = take_block(bytes);
    nb::capsule owner(block, [](void* p) noexcept { give_block(p); });
    return nb::ndarray<nb::numpy, std::uint8_t, nb::ndim<1>>(block, {bytes}, owner);
}

template <typename T>
Table build_lattice(In<T, 3> features, In<double, 1> scale, In<std::int64_t, 1> low,
                    In<std::int64_t, 1> high, Out<std::int32_t, 3> index, Out<T, 3> weight,
                    Out<std::int64_t, 3> order, int threads, bool single) {
    const Points<T> points{features.data(), static_cast<std::int64_t>(features.shape(0)),
                           static_cast<std::int64_t>(features.shape(1)),
                           static_cast<int>(features.shape(2)), single};
    const std::size_t d = features.shape(2);
    require(!single || sizeof(T) == 4, "float32 features for float arithmetic");
    require(d >= 1 && d <= kMaxDim, "1 to 16 features per point");
    require(scale.shape(0) == d && low.shape(0) >= d && high.shape(0) >= d, "one bound per feature");
    for (int axis = 0; axis < 3; ++axis) {
        const std::size_t want = axis == 2 ? d + 1 : features.shape(axis);
        require(index.shape(axis) == want && weight.shape(axis) == want, "index and weight shapes");
        require(axis == 2 || order.shape(axis) == want, "one order per point");
    }
    const auto words = static_cast<std::size_t>(order_words(static_cast<int>(d) + 1));
    require(order.shape(2) == words && threads >= 1, "words of the order, threads >= 1");
    Graph graph;
    {
        nb::gil_scoped_release release;
        graph = build(points, scale.data(), low.data(), high.data(), index.data(), weight.data(),
                      order.data(), threads);
    }
    auto* memory = new std::vector<std::int32_t>(std::move(graph.neighbors));
    nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<std::vector<std::int32_t>*>(p); });
    return Table(memory->data(), {d + 1, static_cast<std::size_t>(graph.vertices), 2}, owner);
}

// False if x holds a value that is not finite.
template <typename T>
bool filter(In<T, 3> x, In<std::int32_t, 2> index, In<T, 2> splat, In<T, 2> slice,
            In<std::int32_t, 3> neighbors, std::optional<In<T, 1>> shift, double tap,
            double identity, int order, Out<T, 3> out, int threads) {
    const std::size_t n = x.shape(1), corners = index.shape(1);
    require(corners >= 2 && corners <= kMaxDim + 1, "2 to 17 corners");
    require(index.shape(0) == n && splat.shape(0) == n && slice.shape(0) == n, "one row per point");
    require(splat.shape(1) == corners && slice.shape(1) == corners, "one weight per corner");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(!shift || shift->shape(0) == n, "one shift per point");
    for (int axis = 0; axis < 3; ++axis) require(out.shape(axis) == x.shape(axis), "output shape");
    require(order >= 0 && order <= 2 && threads >= 1, "order and threads");
    nb::gil_scoped_release release;
    const std::size_t image = n * x.shape(2);
    bool finite = true;
    for (std::size_t g = 0; g < x.shape(0); ++g) {
        FilterArgs<T> args{x.data() + g * image, out.data() + g * image,
                           static_cast<std::int64_t>(n), static_cast<std::int64_t>(x.shape(2)),
                           static_cast<int>(corners), index.data(), splat.data(), slice.data(),
                           shift ? shift->data() : nullptr,
                           static_cast<std::int64_t>(neighbors.shape(1)), neighbors.data(),
                           static_cast<T>(tap), static_cast<T>(identity),
                           static_cast<BlurOrder>(order), threads};
        if constexpr (sizeof(T) == 4) finite &= kernels().filter_f32(args);
        else finite &= kernels().filter_f64(args);
    }
    return finite;
}

template <typename T>
void lattice_diagonal(In<std::int32_t, 2> index, In<T, 2> weight, In<std::int64_t, 2> order,
                      In<std::int32_t, 3> neighbors, double tap, double identity, Out<T, 1> out,
                      int threads) {
    const std::size_t n = index.shape(0), corners = index.shape(1);
    require(corners >= 2 && corners <= kMaxDim + 1, "2 to 17 corners");
    require(weight.shape(0) == n && weight.shape(1) == corners && out.shape(0) == n, "shapes");
    const auto words = static_cast<std::size_t>(order_words(static_cast<int>(corners)));
    require(order.shape(0) == n && order.shape(1) == words, "one order per point");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(threads >= 1, "threads >= 1");
    nb::gil_scoped_release release;
    diagonal(static_cast<std::int64_t>(n), static_cast<int>(corners) - 1, index.data(),
             weight.data(), order.data(), static_cast<std::int64_t>(neighbors.shape(1)), neighbors.data(), tap,
             identity, out.data(), threads);
}

template <typename T>
void filter_axis(In<T, 3> x, In<T, 1> taps, Out<T, 3> out, int threads) {
    require(taps.shape(0) >= 1 && threads >= 1, "at least the centre tap, threads >= 1");
    for (int axis = 0; axis < 3; ++axis) require(out.shape(axis) == x.shape(axis), "output shape");
    nb::gil_scoped_release release;
    AxisArgs<T> args{x.data(), out.data(), static_cast<std::int64_t>(x.shape(0)),
                     static_cast<std::int64_t>(x.shape(1)), static_cast<std::int64_t>(x.shape(2)),
                     taps.data(), static_cast<std::int64_t>(taps.shape(0)) - 1, threads};
    if constexpr (sizeof(T) == 4) kernels().axis_f32(args);
    else kernels().axis_f64(args);
}

template <typename T>
void bilateral(In<T, 3> values, In<std::int64_t, 1> sizes, In<T, 1> inverse, Out<T, 3> out, int threads) {
    const std::size_t images = values.shape(0), channels = values.shape(2), axes = sizes.shape(0);
    std::size_t n = 1;
    for (std::size_t a = 0; a < axes; ++a) n *= static_cast<std::size_t>(sizes.data()[a]);
    require(axes >= 1 && n >= 1 && values.shape(1) == n, "one value per point of the grid");
    require(inverse.shape(0) == axes + channels, "one bandwidth per feature");
    require(out.shape(0) == images && out.shape(1) == n && out.shape(2) == axes + channels, "output shape");
    require(threads >= 1, "threads >= 1");
    nb::gil_scoped_release release;
    bilateral_features(values.data(), static_cast<std::int64_t>(images), static_cast<int>(channels),
                       sizes.data(), static_cast<int>(axes), inverse.data(), out.data(), threads);
}

template <typename T>
void map_rows(void (*map)(const SimplexArgs<T>&), In<T, 2> x, const In<T, 2>* p, double scale,
              Out<T, 2> out, int threads) {
    require(x.shape(1) >= 1 && threads >= 1, "rows of at least one entry, threads >= 1");
    for (int axis = 0; axis < 2; ++axis) {
        require(out.shape(axis) == x.shape(axis), "output shape");
        require(!p || p->shape(axis) == x.shape(axis), "one derivative per row");
    }
    nb::gil_scoped_release release;
    map({x.data(), p ? p->data() : nullptr, out.data(), static_cast<std::int64_t>(x.shape(0)),
         static_cast<std::int64_t>(x.shape(1)), static_cast<T>(scale), threads});
}

template <typename T> void project(In<T, 2> v, double scale, Out<T, 2> out, int threads) {
    if constexpr (sizeof(T) == 4) map_rows<T>(kernels().project_f32, v, nullptr, scale, out, threads);
    else map_rows<T>(kernels().project_f64, v, nullptr, scale, out, threads);
}

template <typename T>
void project_derivative(In<T, 2> d, In<T, 2> p, double scale, Out<T, 2> out, int threads) {
    if constexpr (sizeof(T) == 4)
        map_rows<T>(kernels().project_derivative_f32, d, &p, scale, out, threads);
    else map_rows<T>(kernels().project_derivative_f64, d, &p, scale, out, threads);
}

template <typename T> void softmax(In<T, 2> v, double scale, Out<T, 2> out, int threads) {
    if constexpr (sizeof(T) == 4) map_rows<T>(kernels().softmax_f32, v, nullptr, scale, out, threads);
    else map_rows<T>(kernels().softmax_f64, v, nullptr, scale, out, threads);
}

template <typename T>
void softmax_derivative(In<T, 2> d, In<T, 2> p, double scale, Out<T, 2> out, int threads) {
    if constexpr (sizeof(T) == 4)
        map_rows<T>(kernels().softmax_derivative_f32, d, &p, scale, out, threads);
    else map_rows<T>(kernels().softmax_derivative_f64, d, &p, scale, out, threads);
}

// (finite, lowest, highest) of every feature.
template <typename T> nb::tuple feature_bounds(In<T, 2> features) {
    const std::size_t n = features.shape(0), d = features.shape(1);
    require(n >= 1 && d >= 1 && d <= kMaxDim, "at least one point of 1 to 16 features");
    double low[kMaxDim], high[kMaxDim];
    bool finite;
    {
        nb::gil_scoped_release release;
        const auto count = static_cast<std::int64_t>(n);
        if constexpr (sizeof(T) == 4)
            finite = kernels().bounds_f32(features.data(), count, static_cast<int>(d), low, high);
        else
            finite = kernels().bounds_f64(features.data(), count, static_cast<int>(d), low, high);
    }
    nb::list lows, highs;
    for (std::size_t i = 0; i < d; ++i) {
        lows.append(low[i]);
        highs.append(high[i]);
    }
    return nb::make_tuple(finite, lows, highs);
}

template <typename T> void bind(nb::module_& m) {
    m.def("build_lattice", &build_lattice<T>, "features"_a.noconvert(), "scale"_a.noconvert(),
          "low"_a.noconvert(), "high"_a.noconvert(), "index"_a.noconvert(), "weight"_a.noconvert(),
          "order"_a.noconvert(), "threads"_a, "single"_a = false);
    m.def("bilateral_features", &bilateral<T>, "values"_a.noconvert(), "sizes"_a.noconvert(),
          "inverse"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("feature_bounds", &feature_bounds<T>, "features"_a.noconvert());
    m.def("filter", &filter<T>, "x"_a.noconvert(), "index"_a.noconvert(), "splat"_a.noconvert(),
          "slice"_a.noconvert(), "neighbors"_a.noconvert(), "shift"_a.noconvert().none(), "tap"_a,
          "identity"_a, "order"_a, "out"_a.noconvert(), "threads"_a);
    m.def("diagonal", &lattice_diagonal<T>, "index"_a.noconvert(), "weight"_a.noconvert(),
          "order"_a.noconvert(), "neighbors"_a.noconvert(), "tap"_a, "identity"_a, "out"_a.noconvert(), "threads"_a);
    m.def("filter_axis", &filter_axis<T>, "x"_a.noconvert(), "taps"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a);
    m.def("project", &project<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("project_derivative", &project_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(),
          "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("softmax", &softmax<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("softmax_derivative", &softmax_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(),
          "scale"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace

NB_MODULE(_core, m) {
    bind<float>(m);
    bind<double>(m);
    m.def("empty", &empty, "bytes"_a);
    m.def("isa", [] { return kernels().isa; });
    m.def("openmp", [] {
#ifdef _OPENMP
        return true;
#else
        return false;
#endif
    });
}

}  // namespace fwcrf
