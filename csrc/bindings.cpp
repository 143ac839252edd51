// Arrays in, arrays out. Shapes and finiteness are checked by the Python callers; what is checked
// here is what would otherwise corrupt memory.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <list>
#include <optional>
#include <stdexcept>
#include <vector>

#include "columns.hpp"
#include "features.hpp"
#include "kernels.hpp"
#include "lattice.hpp"
#include "layout.hpp"
#include "memory.hpp"
#include "sample.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace fwcrf {

void bind_graphs(nb::module_& m);  // graph_bindings.cpp

namespace {

template <typename T, int N>
using In = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Out = nb::ndarray<T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
template <typename T, int N>
using Anyhow = nb::ndarray<const T, nb::ndim<N>, nb::device::cpu>;  // whatever its strides
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

// dots += <left, blurred values of x at each corner>, summed over the images.
template <typename T>
void corner_dots(In<T, 3> left, In<T, 3> x, In<std::int32_t, 2> index, In<T, 2> splat, In<std::int32_t, 3> neighbors,
                 double tap, double identity, int order, Out<T, 2> dots, int threads) {
    const std::size_t n = x.shape(1), corners = index.shape(1), image = n * x.shape(2);
    const auto most = static_cast<std::size_t>(sizeof(T) == 4 ? kernels().fused_channels_f32 : kernels().fused_channels_f64);
    require(corners >= 2 && corners <= kMaxDim + 1, "2 to 17 corners");
    require(x.shape(2) >= 1 && x.shape(2) <= most, "number of channels");
    for (int axis = 0; axis < 3; ++axis) require(left.shape(axis) == x.shape(axis), "arrays of one shape");
    require(index.shape(0) == n && splat.shape(0) == n && dots.shape(0) == n, "one row per point");
    require(splat.shape(1) == corners && dots.shape(1) == corners, "one weight per corner");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(order >= 0 && order <= 2 && threads >= 1, "order and threads");
    nb::gil_scoped_release release;
    for (std::size_t g = 0; g < x.shape(0); ++g) {
        const FilterArgs<T> args{x.data() + g * image, nullptr, static_cast<std::int64_t>(n),
                                 static_cast<std::int64_t>(x.shape(2)), static_cast<int>(corners), index.data(),
                                 splat.data(), splat.data(), nullptr, static_cast<std::int64_t>(neighbors.shape(1)),
                                 neighbors.data(), static_cast<T>(tap), static_cast<T>(identity),
                                 static_cast<BlurOrder>(order), threads};
        if constexpr (sizeof(T) == 4) kernels().corner_dots_f32(args, left.data() + g * image, dots.data());
        else kernels().corner_dots_f64(args, left.data() + g * image, dots.data());
    }
}

template <typename T>
void lattice_diagonal(In<std::int32_t, 2> index, In<T, 2> weight, In<std::int64_t, 2> order,
                      In<std::int32_t, 3> neighbors, double tap, double identity, Out<T, 1> out,
                      std::optional<Out<T, 2>> slopes, int threads) {
    const std::size_t n = index.shape(0), corners = index.shape(1);
    require(corners >= 2 && corners <= kMaxDim + 1, "2 to 17 corners");
    require(weight.shape(0) == n && weight.shape(1) == corners && out.shape(0) == n, "shapes");
    require(!slopes || (slopes->shape(0) == n && slopes->shape(1) == corners), "a slope per weight");
    const auto words = static_cast<std::size_t>(order_words(static_cast<int>(corners)));
    require(order.shape(0) == n && order.shape(1) == words, "one order per point");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(threads >= 1, "threads >= 1");
    nb::gil_scoped_release release;
    diagonal(static_cast<std::int64_t>(n), static_cast<int>(corners) - 1, index.data(),
             weight.data(), order.data(), static_cast<std::int64_t>(neighbors.shape(1)), neighbors.data(), tap,
             identity, out.data(), slopes ? slopes->data() : nullptr, threads);
}

template <typename T> void gaussian_sums(In<T, 3> rows, In<T, 3> columns, Out<T, 2> out, int threads) {
    const std::size_t batch = rows.shape(0), d = rows.shape(2);
    require(columns.shape(0) == batch && columns.shape(2) == d && d >= 1, "features of one kind, of as many images");
    require(out.shape(0) == batch && out.shape(1) == rows.shape(1) && threads >= 1, "one sum per row");
    nb::gil_scoped_release release;
    const SumArgs<T> args{rows.data(), columns.data(), out.data(), static_cast<std::int64_t>(batch),
                          static_cast<std::int64_t>(rows.shape(1)), static_cast<std::int64_t>(columns.shape(1)),
                          static_cast<int>(d), threads};
    if constexpr (sizeof(T) == 4) kernels().gaussian_sums_f32(args);
    else kernels().gaussian_sums_f64(args);
}

// See SampleArgs.
template <typename T>
void sampled_sums(In<T, 3> features, In<std::int64_t, 1> points, std::int64_t rows, In<std::int32_t, 3> index,
                  In<T, 3> weight, In<std::int32_t, 3> neighbors, double exponent, double tap, double identity, int order,
                  Out<T, 2> exact, Out<T, 2> own, int threads) {
    const std::size_t batch = features.shape(0), n = features.shape(1), d = features.shape(2), count = points.shape(0);
    require(d >= 1 && d <= kMaxDim, "1 to 16 features");
    for (const auto* shape : {index.shape_ptr(), weight.shape_ptr()})
        require(static_cast<std::size_t>(shape[0]) == batch && static_cast<std::size_t>(shape[1]) == n &&
                    static_cast<std::size_t>(shape[2]) == d + 1,
                "a row of corners per point");
    require(neighbors.shape(0) == d + 1 && neighbors.shape(2) == 2, "neighbours of every axis");
    require(rows >= 1 && static_cast<std::size_t>(rows) < count, "rows and columns");
    for (std::size_t i = 0; i < count; ++i)
        require(points.data()[i] >= 0 && static_cast<std::size_t>(points.data()[i]) < n, "points that there are");
    for (const auto* shape : {exact.shape_ptr(), own.shape_ptr()})
        require(static_cast<std::size_t>(shape[0]) == batch && shape[1] == rows, "one sum per row");
    require(exponent <= 0 && order >= 0 && order <= 2 && threads >= 1, "an exponent of at most 0, order and threads");
    nb::gil_scoped_release release;
    const FilterArgs<T> lattice{nullptr, nullptr, static_cast<std::int64_t>(batch * n), 1, static_cast<int>(d + 1),
                                index.data(), weight.data(), weight.data(), nullptr,
                                static_cast<std::int64_t>(neighbors.shape(1)), neighbors.data(), static_cast<T>(tap),
                                static_cast<T>(identity), static_cast<BlurOrder>(order), threads};
    sample(SampleArgs<T>{features.data(), static_cast<std::int64_t>(batch), static_cast<std::int64_t>(n),
                         static_cast<int>(d), points.data(), static_cast<std::int64_t>(count), rows, lattice, exponent,
                         exact.data(), own.data()});
}

template <typename T> void placed(In<T, 3> weight, In<T, 1> factor, double exponent, Out<T, 3> out, int threads) {
    for (int axis = 0; axis < 3; ++axis) require(out.shape(axis) == weight.shape(axis), "output shape");
    require(factor.shape(0) == weight.shape(0), "one factor per image");
    require(exponent <= 0 && threads >= 1, "an exponent of at most 0, threads >= 1");
    nb::gil_scoped_release release;
    const PlaceArgs<T> args{weight.data(), factor.data(), out.data(), static_cast<std::int64_t>(weight.shape(0)),
                            static_cast<std::int64_t>(weight.shape(1)), static_cast<int>(weight.shape(2)),
                            static_cast<T>(exponent), threads};
    if constexpr (sizeof(T) == 4) kernels().placed_f32(args);
    else kernels().placed_f64(args);
}

// Up to two diagonals, and arrays for what becomes of them.
template <typename T>
void scaled_rows(In<T, 2> weight, In<T, 1> factor, Out<T, 2> out, std::vector<In<T, 1>> diagonals,
                 std::vector<Out<T, 1>> scaled, int threads) {
    require(out.shape(0) == weight.shape(0) && out.shape(1) == weight.shape(1), "output shape");
    require(factor.shape(0) == weight.shape(0) && threads >= 1, "one factor per point, threads >= 1");
    require(diagonals.size() <= 2 && scaled.size() == diagonals.size(), "up to two diagonals");
    ScaleArgs<T> args{weight.data(), factor.data(), out.data(), static_cast<std::int64_t>(weight.shape(0)),
                      static_cast<int>(weight.shape(1)), threads, {}, {}};
    for (std::size_t k = 0; k < diagonals.size(); ++k) {
        require(diagonals[k].shape(0) == weight.shape(0) && scaled[k].shape(0) == weight.shape(0), "one entry per point");
        args.diagonal[k] = diagonals[k].data();
        args.scaled[k] = scaled[k].data();
    }
    nb::gil_scoped_release release;
    if constexpr (sizeof(T) == 4) kernels().scaled_rows_f32(args);
    else kernels().scaled_rows_f64(args);
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

// The derivative of <g, filtered x> in each tap.
template <typename T> void tap_slopes(In<T, 3> g, In<T, 3> x, Out<double, 1> out, int threads) {
    require(out.shape(0) >= 1 && threads >= 1, "at least the centre tap, threads >= 1");
    for (int axis = 0; axis < 3; ++axis) require(g.shape(axis) == x.shape(axis), "arrays of one shape");
    nb::gil_scoped_release release;
    const AxisArgs<T> args{x.data(), const_cast<T*>(g.data()), static_cast<std::int64_t>(x.shape(0)),
                           static_cast<std::int64_t>(x.shape(1)), static_cast<std::int64_t>(x.shape(2)), nullptr,
                           static_cast<std::int64_t>(out.shape(0)) - 1, threads};
    if constexpr (sizeof(T) == 4) kernels().tap_slopes_f32(args, out.data());
    else kernels().tap_slopes_f64(args, out.data());
}

template <typename T>
bool bilateral(Anyhow<T, 3> values, In<std::int64_t, 1> sizes, In<T, 1> inverse, Out<T, 3> out, int threads) {
    const std::size_t images = values.shape(0), channels = values.shape(2), axes = sizes.shape(0);
    std::size_t n = 1;
    for (std::size_t a = 0; a < axes; ++a) {
        require(sizes.data()[a] >= 1, "sizes of at least 1");
        n *= static_cast<std::size_t>(sizes.data()[a]);
    }
    require(axes >= 1 && n >= 1 && values.shape(1) == n, "one value per point of the grid");
    require(inverse.shape(0) == axes + channels, "one bandwidth per feature");
    require(out.shape(0) == images && out.shape(1) == n && out.shape(2) == axes + channels, "output shape");
    require(threads >= 1, "threads >= 1");
    nb::gil_scoped_release release;
    const Pixels<T> pixels{values.data(),    static_cast<std::int64_t>(images), values.stride(0), values.stride(1),
                           values.stride(2), static_cast<int>(channels)};
    return bilateral_features(pixels, sizes.data(), static_cast<int>(axes), inverse.data(), out.data(), threads);
}

template <typename T>
TurnArgs<T> turned(const In<T, 3>& x, const In<T, 3>* beside, double slope, double offset, Out<T, 3>& out, int threads) {
    for (int axis = 0; axis < 3; ++axis) {
        const std::size_t size = x.shape(axis ? 3 - axis : 0);
        require(out.shape(axis) == size && (!beside || beside->shape(axis) == size), "output shape");
    }
    require(threads >= 1, "threads >= 1");
    return {x.data(), beside ? beside->data() : nullptr, out.data(), static_cast<std::int64_t>(x.shape(0)),
            static_cast<std::int64_t>(x.shape(1)), static_cast<std::int64_t>(x.shape(2)), static_cast<T>(slope),
            static_cast<T>(offset), threads};
}

template <typename T> void transposed(In<T, 3> x, Out<T, 3> out, int threads, double factor) {
    const TurnArgs<T> args = turned<T>(x, nullptr, factor, 0, out, threads);
    nb::gil_scoped_release release;
    transpose(args);
}

// Also the column of the largest entry of each row.
template <typename T>
void transposed_and_largest(In<T, 3> x, Out<T, 3> out, Out<std::int64_t, 2> largest, int threads) {
    TurnArgs<T> args = turned<T>(x, nullptr, 1, 0, out, threads);
    require(largest.shape(0) == x.shape(0) && largest.shape(1) == x.shape(1) && x.shape(2) >= 1, "one column per row");
    args.largest = largest.data();
    nb::gil_scoped_release release;
    transpose(args);
}

template <typename T> void transposed_log(In<T, 3> x, double slope, double offset, Out<T, 3> out, int threads) {
    const TurnArgs<T> args = turned<T>(x, nullptr, slope, offset, out, threads);
    nb::gil_scoped_release release;
    log_line(args);
}

template <typename T>
void transposed_log_derivative(In<T, 3> g, In<T, 3> x, double slope, double offset, Out<T, 3> out, int threads) {
    const TurnArgs<T> args = turned<T>(g, &x, slope, offset, out, threads);
    nb::gil_scoped_release release;
    log_line_derivative(args);
}

// False if a value is not finite.
template <typename T> bool negated(In<T, 1> x, Out<T, 1> out, int threads) {
    require(out.shape(0) == x.shape(0) && threads >= 1, "output shape, threads >= 1");
    nb::gil_scoped_release release;
    return negative(x.data(), static_cast<std::int64_t>(x.shape(0)), out.data(), threads);
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

// See EnergyArgs. (finite, least, most, lowest sum, highest sum) of the scores.
template <typename T>
std::tuple<bool, double, double, double, double> energies(In<T, 3> scores, bool last, bool probabilities, double least,
                                                          Out<T, 3> out, int threads) {
    const std::size_t batch = out.shape(0), n = out.shape(1), labels = out.shape(2);
    require(scores.shape(0) == batch && scores.shape(last ? 1 : 2) == n && scores.shape(last ? 2 : 1) == labels, "shapes");
    require(labels >= 1 && least > 0 && threads >= 1, "at least one label, a least probability, threads >= 1");
    const EnergyArgs<T> args{scores.data(), out.data(), static_cast<std::int64_t>(batch),
                             static_cast<std::int64_t>(labels), static_cast<std::int64_t>(n), last, probabilities,
                             static_cast<T>(least), threads};
    nb::gil_scoped_release release;
    Extent e;
    if constexpr (sizeof(T) == 4) e = kernels().energies_f32(args);
    else e = kernels().energies_f64(args);
    return {e.finite, e.least, e.most, e.lowest_sum, e.highest_sum};
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

// Of a vector of the instruction set in use.
template <typename T> std::size_t lanes() {
    return static_cast<std::size_t>(sizeof(T) == 4 ? kernels().fused_channels_f32 : kernels().fused_channels_f64) / 4;
}

template <typename T>
void label_spans(std::optional<In<T, 2>> x, In<T, 2> unary, Out<T, 1> gap, Out<T, 1> most, int threads) {
    const std::size_t n = unary.shape(0), labels = unary.shape(1);
    require(labels >= 1 && (!x || (x->shape(0) == n && x->shape(1) == labels)), "shapes");
    require(gap.shape(0) == labels && most.shape(0) == labels && threads >= 1, "one span per label");
    const SpanArgs<T> args{x ? x->data() : nullptr, unary.data(), static_cast<std::int64_t>(n),
                           static_cast<std::int64_t>(labels), gap.data(), most.data(), threads};
    nb::gil_scoped_release release;
    if constexpr (sizeof(T) == 4) kernels().spans_f32(args);
    else kernels().spans_f64(args);
}

void check_columns(std::size_t labels, const In<std::int64_t, 1>& which, std::size_t count) {
    require(which.shape(0) == count, "as many columns");
    for (std::size_t j = 0; j < count; ++j)
        require(which.data()[j] >= 0 && which.data()[j] < static_cast<std::int64_t>(labels), "columns of the array");
}

template <typename T> void take(In<T, 2> x, In<std::int64_t, 1> which, Out<T, 2> out, int threads) {
    check_columns(x.shape(1), which, out.shape(1));
    require(out.shape(0) == x.shape(0) && threads >= 1, "as many rows");
    nb::gil_scoped_release release;
    take_columns(x.data(), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1)), which.data(),
                 static_cast<std::int64_t>(out.shape(1)), out.data(), threads);
}

template <typename T> void spread(In<T, 2> x, In<std::int64_t, 1> which, Out<T, 2> out, int threads) {
    check_columns(out.shape(1), which, x.shape(1));
    require(out.shape(0) == x.shape(0) && threads >= 1, "as many rows");
    nb::gil_scoped_release release;
    spread_columns(x.data(), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(out.shape(1)),
                   which.data(), static_cast<std::int64_t>(x.shape(1)), out.data(), threads);
}

template <typename T> void largest_columns(In<T, 2> x, Out<std::int64_t, 1> out, int threads) {
    require(x.shape(1) >= 1 && out.shape(0) == x.shape(0) && threads >= 1, "one column per row");
    nb::gil_scoped_release release;
    largest(x.data(), static_cast<std::int64_t>(x.shape(0)), static_cast<std::int64_t>(x.shape(1)), out.data(), threads);
}

// The terms of a dense model for one image or a batch; they are added one by one and hold on to their arrays.
template <typename T> class Model {
  public:
    // Where the rows of a band start, and their weights: see Band.
    using Given = std::pair<In<std::int32_t, 1>, In<T, 2>>;
    // Taps from the diagonal on, and what rows and columns are scaled by.
    using Axis = std::tuple<In<T, 1>, In<T, 1>, In<T, 1>>;

    // Tables of one lattice for all images: index, splat and slice are (images, n, corners).
    void add_lattice(In<std::int32_t, 3> index, In<T, 3> splat, In<T, 3> slice, In<std::int32_t, 3> neighbors,
                     std::optional<In<T, 2>> shift, double tap, double identity, int order) {
        const std::size_t images = index.shape(0), n = index.shape(1), corners = index.shape(2);
        const auto vertices = static_cast<std::int64_t>(neighbors.shape(1));
        require(corners >= 2 && corners <= kMaxDim + 1, "2 to 17 corners");
        for (int axis = 0; axis < 3; ++axis)
            require(splat.shape(axis) == index.shape(axis) && slice.shape(axis) == index.shape(axis), "shapes");
        require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
        require(order >= 0 && order <= 2, "order");
        begin(images, n, shift);
        for (std::size_t image = 0; image < terms_.size(); ++image) {
            Term<T>& term = terms_[image].emplace_back();
            const std::size_t g = images == 1 ? 0 : image, at = g * n * corners;
            FilterArgs<T>& l = term.lattice;
            l.corners = static_cast<int>(corners);
            l.splat = splat.data() + at;
            l.slice = slice.data() + at;
            l.tap = static_cast<T>(tap);
            l.identity = static_cast<T>(identity);
            l.order = static_cast<BlurOrder>(order);
            l.index = index.data() + at;
            l.neighbors = neighbors.data();
            l.vertices = vertices;
            if (images > 1) own_lattice(l, n);
            term.shift = shift ? shift->data() + g * n : nullptr;
        }
        keep(nb::cast(index), nb::cast(splat), nb::cast(slice), nb::cast(neighbors), nb::cast(shift));
    }

    // Bands of the same grid for all images; `between` are the rows of each axis where it is coarse, and `direct` are the last
    // axis's taps, and what its rows and columns are scaled by.
    void add_grid(std::vector<std::int64_t> sizes, std::vector<std::int64_t> between, std::vector<Given> down,
                  std::vector<std::optional<Given>> middle, std::vector<Given> up, Axis direct,
                  std::optional<In<T, 2>> shift) {
        const std::size_t axes = sizes.size();
        require(axes >= 1 && axes <= kMaxAxes, "1 to 8 axes");
        require(sizes_.empty() || sizes_ == sizes, "grids of one shape");
        sizes_ = sizes;
        require(down.size() == axes && middle.size() == axes && up.size() == axes && between.size() == axes, "bands");
        Grid<T> grid{};
        grid.axes = static_cast<int>(axes);
        std::size_t n = 1;
        for (std::size_t a = 0; a < axes; ++a) {
            grid.down[a] = band(down[a], between[a], sizes[a]);
            if (middle[a]) grid.middle[a] = band(*middle[a], between[a], between[a]);
            grid.up[a] = band(up[a], sizes[a], between[a]);
            n *= static_cast<std::size_t>(sizes[a]);
        }
        const auto& [taps, left, right] = direct;
        require(taps.shape(0) >= 1, "at least one tap");
        for (const auto& factor : {left, right})
            require(static_cast<std::int64_t>(factor.shape(0)) == sizes.back(), "a factor per row");
        grid.taps = taps.data();
        grid.left = left.data();
        grid.right = right.data();
        grid.radius = static_cast<std::int64_t>(taps.shape(0)) - 1;
        const std::size_t images = shift ? shift->shape(0) : 1;
        begin(images, n, shift);
        for (std::size_t image = 0; image < terms_.size(); ++image) {
            Term<T>& term = terms_[image].emplace_back();
            const std::size_t g = images == 1 ? 0 : image;
            term.grid = grid;
            term.shift = shift ? shift->data() + g * n : nullptr;
        }
        keep(nb::cast(down), nb::cast(middle), nb::cast(up), nb::cast(direct), nb::cast(shift));
    }

    using Start = std::tuple<int, double, std::optional<In<T, 3>>, Out<T, 3>>;  // see Before

    // From x, (images, n, labels), or from `before` of it, so many moves (see Move) along unary + sum of the terms, each
    // ending in its array of `outs`. `potts` is a weight per term; where `full` says so, the term has the matrix of
    // its place in `matrices` instead. Whether x is finite, and Reach if it is to be noted.
    std::tuple<bool, double, double> run(
        In<T, 3> x, std::optional<Start> before, std::optional<In<T, 3>> unary, In<double, 1> potts,
        In<std::uint8_t, 1> full, In<T, 3> matrices, In<double, 2> moves, std::vector<std::optional<Out<T, 3>>> outs,
        std::vector<In<T, 3>> others, std::optional<Out<T, 3>> sum, std::optional<Out<T, 3>> dual,
        std::optional<Out<double, 3>> slopes, bool noted, int threads) {
        const std::size_t images = x.shape(0), n = x.shape(1), labels = x.shape(2), terms = count_;
        const std::size_t steps = moves.shape(0);
        require(terms >= 1 && n == n_ && threads >= 1, "terms, points and threads");
        require(labels >= 1, "at least one label");
        require(terms_.size() == 1 || terms_.size() == images, "one model per image, or one for all");
        const auto fits = [&](const auto& array) {
            return array.shape(0) == images && array.shape(1) == n && array.shape(2) == labels;
        };
        require(moves.shape(1) == 7 && outs.size() == steps, "seven numbers and an output per move");
        require((!unary || fits(*unary)) && (!sum || fits(*sum)) && (!dual || fits(*dual)),
                "shape of the unary, the sum or the dual");
        for (const auto& out : outs) require(out ? fits(*out) : sum && &out == &outs.back(), "output shape");
        Before<T> start{};
        if (before) {
            const auto& [map, scale, other, out] = *before;
            const bool derivative = static_cast<Map>(map) >= Map::softmax_derivative;
            require(map >= 1 && map <= 5, "how to begin");
            require(labels <= most_labels() || (map == 1 && scale == -1 && unary && unary->data() == x.data()),
                    "how to begin with many labels");
            require(fits(out) && out.data() != x.data(), "where to begin");
            require(derivative == static_cast<bool>(other) && (!other || fits(*other)), "derivatives need the others");
            start = {static_cast<Map>(map), static_cast<T>(scale), nullptr, nullptr};
        }
        for (const auto& other : others) require(fits(other), "shape of the others");
        require(potts.shape(0) == terms && full.shape(0) == terms && matrices.shape(0) == terms, "weights");
        require(matrices.shape(1) == labels && matrices.shape(2) == labels, "matrices");
        require(others.empty() || others.size() == steps, "another array per move");
        require(!slopes || !others.empty(), "slopes need the others");
        if (slopes)
            require(slopes->shape(0) == terms && slopes->shape(1) == labels && slopes->shape(2) == labels,
                    "slopes");
        std::vector<Move<T>> made;
        for (std::size_t k = 0; k < steps; ++k) {
            const double* m = moves.data() + 7 * k;
            require(m[0] >= 0 && m[0] <= 5 && m[6] >= 0 && m[6] <= 2, "map and dual");
            require(dual || (m[5] == 0 && m[6] == 0), "moves with a dual need its array");
            const auto map = static_cast<Map>(static_cast<int>(m[0]));
            require(map < Map::softmax_derivative || !others.empty(), "derivatives need the others");
            made.push_back({map, static_cast<T>(m[1]), static_cast<T>(m[2]), static_cast<T>(m[3]), static_cast<T>(m[4]),
                            static_cast<T>(m[5]), static_cast<Dual>(static_cast<int>(m[6]))});
        }
        if (labels > most_labels()) {
            require(others.empty() && !sum && !dual, "moves that many labels can make");
            for (const auto& out : outs) require(out->data() == outs.front()->data(), "one output for many labels");
            for (std::size_t c = 0; c < terms; ++c) require(!full.data()[c], "Potts terms for many labels");
        }
        nb::gil_scoped_release release;
        bool finite = true;
        Reach<T> reach;
        std::vector<T*> out(steps);
        std::vector<const T*> other(others.size());
        for (std::size_t g = 0; g < images; ++g) {
            std::vector<Term<T>> now = terms_[terms_.size() == 1 ? 0 : g];
            for (std::size_t c = 0; c < terms; ++c) {
                now[c].potts = static_cast<T>(potts.data()[c]);
                now[c].matrix = full.data()[c] ? matrices.data() + c * labels * labels : nullptr;
            }
            const std::size_t at = g * n * labels;
            for (std::size_t k = 0; k < steps; ++k) out[k] = outs[k] ? outs[k]->data() + at : nullptr;
            if (before) {
                start.other = std::get<2>(*before) ? std::get<2>(*before)->data() + at : nullptr;
                start.out = std::get<3>(*before).data() + at;
            }
            for (std::size_t k = 0; k < others.size(); ++k) other[k] = others[k].data() + at;
            const FusedArgs<T> args{x.data() + at, unary ? unary->data() + at : nullptr,
                                    static_cast<std::int64_t>(n), static_cast<std::int64_t>(labels),
                                    static_cast<int>(terms), now.data(), static_cast<int>(steps), made.data(),
                                    out.data(), others.empty() ? nullptr : other.data(),
                                    sum ? sum->data() + at : nullptr, dual ? dual->data() + at : nullptr,
                                    slopes ? slopes->data() : nullptr, threads, noted ? &reach : nullptr, false,
                                    before ? &start : nullptr};
            if constexpr (sizeof(T) == 4) finite &= kernels().fused_f32(args);
            else finite &= kernels().fused_f64(args);
        }
        return {finite, reach.all, reach.last};
    }

    static std::size_t most_labels() {
        return static_cast<std::size_t>(sizeof(T) == 4 ? kernels().fused_channels_f32
                                                       : kernels().fused_channels_f64);
    }

  private:
    void begin(std::size_t images, std::size_t n, const std::optional<In<T, 2>>& shift) {
        require(count_ < kMaxTerms, "at most 8 terms");
        require(count_ == 0 || n == n_, "terms of as many points");
        require(!shift || (shift->shape(0) == images && shift->shape(1) == n), "one shift per point");
        require(images == 1 || count_ == 0 || terms_.size() == images || terms_.size() == 1, "images");
        n_ = n;
        ++count_;
        if (terms_.empty()) terms_.resize(images);
        // What all images have shared so far is now each one's own.
        else if (images > terms_.size()) terms_.resize(images, terms_.front());
    }

    // An image's own part of a lattice that holds several: its vertices follow one another.
    void own_lattice(FilterArgs<T>& l, std::size_t n) {
        const std::size_t corners = static_cast<std::size_t>(l.corners), count = n * corners;
        std::int32_t low = l.index[0], high = l.index[0];
        for (std::size_t i = 0; i < count; ++i) {
            low = l.index[i] < low ? l.index[i] : low;
            high = l.index[i] > high ? l.index[i] : high;
        }
        const std::int64_t vertices = high - low + 1, all = l.vertices;
        require(low >= 0 && high < all, "vertices of the lattice");
        std::vector<std::int32_t>& index = tables_.emplace_back(count);
        for (std::size_t i = 0; i < count; ++i) index[i] = l.index[i] - low;
        std::vector<std::int32_t>& neighbors = tables_.emplace_back(corners * vertices * 2);
        for (std::size_t c = 0; c < corners; ++c)
            for (std::int64_t v = 0; v < 2 * vertices; ++v) {
                const std::int64_t other = l.neighbors[(c * all + low) * 2 + v] - low;
                require(other == all - low || (other >= 0 && other < vertices), "images share no vertex");
                neighbors[c * vertices * 2 + v] = static_cast<std::int32_t>(other < vertices ? other : vertices);
            }
        l.index = index.data();
        l.neighbors = neighbors.data();
        l.vertices = vertices;
    }

    Band<T> band(const Given& given, std::int64_t rows, std::int64_t columns) {
        const auto& [first, weight] = given;
        const auto width = static_cast<std::int64_t>(weight.shape(1));
        require(rows >= 1 && columns >= 1 && width >= 1, "bands");
        require(static_cast<std::int64_t>(first.shape(0)) == rows && static_cast<std::int64_t>(weight.shape(0)) == rows,
                "as many rows as a band has");
        for (std::int64_t j = 0; j < rows; ++j) {
            require(first.data()[j] >= 0 && first.data()[j] + width <= columns, "bands stay inside");
            require(j == 0 || first.data()[j] >= first.data()[j - 1], "rows of a band follow each other");
        }
        return {rows, columns, width, first.data(), weight.data()};
    }

    template <typename... Objects> void keep(Objects&&... objects) { (kept_.push_back(objects), ...); }

    std::size_t n_ = 0, count_ = 0;
    std::vector<std::int64_t> sizes_;          // of the grids
    std::vector<std::vector<Term<T>>> terms_;  // per image, or one for all
    std::list<std::vector<std::int32_t>> tables_;
    std::vector<nb::object> kept_;
};

template <typename T>
void lump(const T* x, In<T, 2> unary, In<std::int64_t, 1> kept, double scale, std::optional<Out<T, 2>> few,
          Out<T, 2> few_unary, T* out, int threads) {
    const std::size_t n = unary.shape(0), labels = unary.shape(1), count = kept.shape(0);
    check_columns(labels, kept, count);
    const std::size_t width = scale < 0 ? count + 1 : count;
    for (const auto& array : {few.value_or(few_unary), few_unary})
        require(array.shape(0) == n && array.shape(1) == width, "columns for labels that are kept, and one for others");
    require(labels >= lanes<T>() && n >= lanes<T>() && scale <= 0 && threads >= 1, "pixels and labels, scale, threads");
    std::vector<T> other(labels, T(1));
    for (std::size_t j = 0; j < count; ++j) other[static_cast<std::size_t>(kept.data()[j])] = T(0);
    const LumpArgs<T> args{x, unary.data(), static_cast<std::int64_t>(n), static_cast<std::int64_t>(labels), kept.data(),
                           static_cast<std::int64_t>(count), other.data(), static_cast<T>(scale),
                           few ? few->data() : nullptr, few_unary.data(), out, threads};
    nb::gil_scoped_release release;
    if constexpr (sizeof(T) == 4) out ? kernels().unlump_f32(args) : kernels().lump_f32(args);
    else out ? kernels().unlump_f64(args) : kernels().lump_f64(args);
}

// See LumpArgs; scale = 0 leaves the labels that are not kept out.
template <typename T>
void lumped(std::optional<In<T, 2>> x, In<T, 2> unary, In<std::int64_t, 1> kept, double scale,
            std::optional<Out<T, 2>> few, Out<T, 2> few_unary, int threads) {
    require(!x || (x->shape(0) == unary.shape(0) && x->shape(1) == unary.shape(1)), "shapes");
    require(few || scale < 0, "a place for x");
    lump(x ? x->data() : nullptr, unary, kept, scale, few, few_unary, static_cast<T*>(nullptr), threads);
}
// And back, from `few`.
template <typename T>
void unlumped(In<T, 2> unary, In<std::int64_t, 1> kept, double scale, Out<T, 2> few, Out<T, 2> few_unary, Out<T, 2> out,
              int threads) {
    require(out.shape(0) == unary.shape(0) && out.shape(1) == unary.shape(1) && scale < 0, "shapes, and a scale");
    lump(static_cast<const T*>(nullptr), unary, kept, scale, std::optional{few}, few_unary, out.data(), threads);
}
template <typename T> void bind_model(nb::module_& m, const char* name) {
    nb::class_<Model<T>>(m, name)
        .def(nb::init<>())
        .def_static("most_labels", &Model<T>::most_labels)
        .def("add_lattice", &Model<T>::add_lattice, "index"_a.noconvert(), "splat"_a.noconvert(),
             "slice"_a.noconvert(), "neighbors"_a.noconvert(), "shift"_a.noconvert().none(), "tap"_a,
             "identity"_a, "order"_a)
        .def("add_grid", &Model<T>::add_grid, "sizes"_a, "between"_a, "down"_a, "middle"_a, "up"_a, "direct"_a,
             "shift"_a.noconvert().none())
        .def("run", &Model<T>::run, "x"_a.noconvert(), "before"_a.none(), "unary"_a.noconvert().none(),
             "potts"_a.noconvert(), "full"_a.noconvert(), "matrices"_a.noconvert(), "moves"_a.noconvert(), "outs"_a, "others"_a,
             "sum"_a.noconvert().none(), "dual"_a.noconvert().none(), "slopes"_a.noconvert().none(), "noted"_a,
             "threads"_a);
}

// See NormalArgs. The least and the largest row sum.
template <typename T>
std::pair<double, double> normal(In<std::int32_t, 3> index, In<T, 3> weight, In<std::int64_t, 3> order,
                                 In<std::int32_t, 3> neighbors, In<T, 1> factor, double exponent, double tap,
                                 double identity, Out<T, 3> out, Out<T, 2> shift, Out<T, 2> minus, int threads) {
    const std::size_t batch = index.shape(0), n = index.shape(1), corners = index.shape(2);
    require(corners >= 2 && corners <= kTabled, "2 to 6 corners");
    for (int axis = 0; axis < 3; ++axis)
        require(weight.shape(axis) == index.shape(axis) && out.shape(axis) == index.shape(axis), "shapes");
    require(order.shape(0) == batch && order.shape(1) == n && order.shape(2) == 1, "one word of order per point");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(factor.shape(0) == batch && exponent <= 0 && threads >= 1, "one factor per image");
    for (const auto& array : {shift, minus}) require(array.shape(0) == batch && array.shape(1) == n, "one entry per point");
    const NormalArgs<T> args{static_cast<std::int64_t>(batch), static_cast<std::int64_t>(n),
                             static_cast<std::int64_t>(neighbors.shape(1)), static_cast<int>(corners), index.data(),
                             weight.data(), order.data(), neighbors.data(), factor.data(), exponent, tap, identity,
                             out.data(), shift.data(), minus.data(), threads};
    nb::gil_scoped_release release;
    Sums found;
    if constexpr (sizeof(T) == 4) found = kernels().normal_f32(args);
    else found = kernels().normal_f64(args);
    return {found.least, found.most};
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
    m.def("corner_dots", &corner_dots<T>, "left"_a.noconvert(), "x"_a.noconvert(), "index"_a.noconvert(),
          "splat"_a.noconvert(), "neighbors"_a.noconvert(), "tap"_a, "identity"_a, "order"_a, "dots"_a.noconvert(),
          "threads"_a);
    m.def("diagonal", &lattice_diagonal<T>, "index"_a.noconvert(), "weight"_a.noconvert(),
          "order"_a.noconvert(), "neighbors"_a.noconvert(), "tap"_a, "identity"_a, "out"_a.noconvert(),
          "slopes"_a.noconvert().none(), "threads"_a);
    m.def("normal", &normal<T>, "index"_a.noconvert(), "weight"_a.noconvert(), "order"_a.noconvert(),
          "neighbors"_a.noconvert(), "factor"_a.noconvert(), "exponent"_a, "tap"_a, "identity"_a, "out"_a.noconvert(),
          "shift"_a.noconvert(), "minus"_a.noconvert(), "threads"_a);
    m.def("gaussian_sums", &gaussian_sums<T>, "rows"_a.noconvert(), "columns"_a.noconvert(), "out"_a.noconvert(),
          "threads"_a);
    m.def("sampled_sums", &sampled_sums<T>, "features"_a.noconvert(), "points"_a.noconvert(), "rows"_a,
          "index"_a.noconvert(), "weight"_a.noconvert(), "neighbors"_a.noconvert(), "exponent"_a, "tap"_a, "identity"_a,
          "order"_a, "exact"_a.noconvert(), "own"_a.noconvert(), "threads"_a);
    m.def("placed", &placed<T>, "weight"_a.noconvert(), "factor"_a.noconvert(), "exponent"_a, "out"_a.noconvert(),
          "threads"_a);
    m.def("scaled_rows", &scaled_rows<T>, "weight"_a.noconvert(), "factor"_a.noconvert(), "out"_a.noconvert(),
          "diagonals"_a, "scaled"_a, "threads"_a);
    m.def("filter_axis", &filter_axis<T>, "x"_a.noconvert(), "taps"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a);
    m.def("tap_slopes", &tap_slopes<T>, "g"_a.noconvert(), "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("label_spans", &label_spans<T>, "x"_a.noconvert().none(), "unary"_a.noconvert(), "gap"_a.noconvert(),
          "most"_a.noconvert(), "threads"_a);
    m.def("take_columns", &take<T>, "x"_a.noconvert(), "which"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("spread_columns", &spread<T>, "x"_a.noconvert(), "which"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("lump_columns", &lumped<T>, "x"_a.noconvert().none(), "unary"_a.noconvert(), "kept"_a.noconvert(), "scale"_a,
          "few"_a.noconvert().none(), "few_unary"_a.noconvert(), "threads"_a);
    m.def("unlump_columns", &unlumped<T>, "unary"_a.noconvert(), "kept"_a.noconvert(), "scale"_a, "few"_a.noconvert(),
          "few_unary"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("largest_columns", &largest_columns<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("negative", &negated<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("log_line", &transposed_log<T>, "x"_a.noconvert(), "slope"_a, "offset"_a, "out"_a.noconvert(), "threads"_a);
    m.def("log_line_derivative", &transposed_log_derivative<T>, "g"_a.noconvert(), "x"_a.noconvert(), "slope"_a,
          "offset"_a, "out"_a.noconvert(), "threads"_a);
    m.def("energies", &energies<T>, "scores"_a.noconvert(), "last"_a, "probabilities"_a, "least"_a, "out"_a.noconvert(),
          "threads"_a);
    m.def("transpose", &transposed<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a, "factor"_a = 1.0);
    m.def("transpose_and_largest", &transposed_and_largest<T>, "x"_a.noconvert(), "out"_a.noconvert(),
          "largest"_a.noconvert(), "threads"_a);
    m.def("project", &project<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("project_derivative", &project_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(),
          "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("softmax", &softmax<T>, "v"_a.noconvert(), "scale"_a, "out"_a.noconvert(), "threads"_a);
    m.def("softmax_derivative", &softmax_derivative<T>, "d"_a.noconvert(), "p"_a.noconvert(),
          "scale"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace

NB_MODULE(_core, m) {
    nb::set_leak_warnings(false);  // a model that is still held when the interpreter ends is no mistake
    bind<float>(m);
    bind<double>(m);
    bind_model<float>(m, "ModelF32");
    bind_model<double>(m, "ModelF64");
    bind_graphs(m);
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
