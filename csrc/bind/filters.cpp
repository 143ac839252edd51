// Lattices, their calibration, and filters along an axis.
#include "bind/arrays.hpp"
#include "bind/bands.hpp"
#include "lattice/build.hpp"
#include "lattice/image.hpp"
#include "lattice/sample.hpp"
#include "lattice/weights.hpp"
#include "maps/features.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace fwcrf {
namespace {

using Table = nb::ndarray<nb::numpy, std::int32_t, nb::ndim<3>>;

template <typename T>
bool bilateral(Strided<T, 3> values, In<std::int64_t, 1> sizes, In<T, 1> inverse, Out<T, 3> out, int threads) {
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
    return bilateral_features(GridFeatures<T>{pixels, sizes.data(), static_cast<int>(axes), inverse.data()}, out.data(),
                              threads);
}

// Returns (all finite, minimum of every feature, maximum of every feature).
template <typename T> nb::tuple feature_bounds(In<T, 2> features) {
    const std::size_t n = features.shape(0), d = features.shape(1);
    require(n >= 1 && d >= 1 && d <= kMaxDim, "at least one point of 1 to 16 features");
    double low[kMaxDim], high[kMaxDim];
    bool finite;
    {
        nb::gil_scoped_release release;
        const auto count = static_cast<std::int64_t>(n);
        finite = native<T>().feature_bounds(features.data(), count, static_cast<int>(d), low, high);
    }
    nb::list lows, highs;
    for (std::size_t i = 0; i < d; ++i) {
        lows.append(low[i]);
        highs.append(high[i]);
    }
    return nb::make_tuple(finite, lows, highs);
}

// The neighbours as an array that owns them.
Table neighbors_of(Graph&& graph, std::size_t corners) {
    auto* memory = new Graph(std::move(graph));
    nb::capsule owner(memory, [](void* p) noexcept { delete static_cast<Graph*>(p); });
    return Table(memory->neighbors.data(), {corners, static_cast<std::size_t>(memory->vertices), 2}, owner);
}

template <typename T>
Table build_lattice(In<T, 3> features, In<double, 1> scale, In<std::int64_t, 1> low, In<std::int64_t, 1> high,
                    Out<std::int32_t, 3> index, Out<T, 3> weight, Out<std::int64_t, 3> order, int threads,
                    bool single) {
    const Points<T> points{features.data(), size(features, 0), size(features, 1), static_cast<int>(features.shape(2)),
                           single};
    const std::size_t d = features.shape(2);
    require(!single || std::is_same_v<T, float>, "float32 features for float arithmetic");
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
        graph =
            build(points, scale.data(), low.data(), high.data(), index.data(), weight.data(), order.data(), threads);
    }
    return neighbors_of(std::move(graph), d + 1);
}

// See ImageLatticeArgs; `values` are (images, n, channels) with any strides, in T or bytes, and `scales` bandwidths.
// Returns the neighbours of every vertex, or None if a feature is not finite.
template <typename T>
std::optional<Table>
lattice_of_image(nb::ndarray<nb::ro, nb::ndim<3>, nb::device::cpu> values, const std::vector<std::int64_t>& sizes,
                 const std::vector<double>& scales, const std::vector<std::int64_t>& origin,
                 const std::vector<double>& scale, In<std::int64_t, 1> points, std::int64_t rows, double place,
                 double constant, double tap, double identity, double least, double most, Out<std::int32_t, 3> index,
                 Out<T, 3> weight, Out<T, 2> shift, Out<T, 2> minus, int threads) {
    const std::size_t images = values.shape(0), n = values.shape(1), channels = values.shape(2), axes = sizes.size();
    const bool bytes = values.dtype() == nb::dtype<std::uint8_t>();
    const std::size_t d = axes + channels, count = points.shape(0);
    std::size_t product = 1;
    for (const std::int64_t one : sizes) {
        require(one >= 1 && static_cast<std::size_t>(one) <= n / product, "one value per pixel of the grid");
        product *= static_cast<std::size_t>(one);
    }
    require(bytes || values.dtype() == nb::dtype<T>(), "values in bytes or in the dtype of the weights");
    require(axes >= 1 && images >= 1 && channels >= 1 && d < kTabled && n == product,
            "one value per pixel of the grid");
    require(scales.size() == d && scale.size() == d, "one bandwidth and one factor per feature");
    require(origin.empty() || origin.size() == axes, "a coordinate per axis");
    require(rows >= 0 && (rows == 0 || static_cast<std::size_t>(rows) < count), "rows and columns");
    for (std::size_t i = 0; i < count; ++i)
        require(points.data()[i] >= 0 && static_cast<std::size_t>(points.data()[i]) < n, "points that there are");
    require(place <= 0 && constant > 0 && most >= 1 && threads >= 1, "an exponent of at most 0, a positive factor");
    require_same(index, weight, "shapes");
    require(index.shape(0) == images && index.shape(1) == n && index.shape(2) == d + 1, "a row of corners per point");
    for (const auto& array : {shift, minus})
        require(array.shape(0) == images && array.shape(1) == n, "one entry per point");
    std::vector<T> inverse(d), corner(origin.size());
    for (std::size_t k = 0; k < d; ++k) inverse[k] = T(1) / static_cast<T>(scales[k]);
    for (std::size_t k = 0; k < origin.size(); ++k)
        corner[k] = static_cast<T>(static_cast<double>(origin[k]) / scales[k]);
    const Pixels<T> pixels{bytes ? nullptr : static_cast<const T*>(values.data()),
                           static_cast<std::int64_t>(images),
                           values.stride(0),
                           values.stride(1),
                           values.stride(2),
                           static_cast<int>(channels),
                           bytes ? static_cast<const std::uint8_t*>(values.data()) : nullptr};
    const GridFeatures<T> features{pixels, sizes.data(), static_cast<int>(axes), inverse.data(),
                                   origin.empty() ? nullptr : corner.data()};
    Graph graph;
    bool finite;
    {
        nb::gil_scoped_release release;
        finite =
            image_lattice(ImageLatticeArgs<T>{features, scale.data(), points.data(), static_cast<std::int64_t>(count),
                                              rows, place, tap, identity, constant, least, most, index.data(),
                                              weight.data(), shift.data(), minus.data(), threads},
                          graph);
    }
    if (!finite) return std::nullopt;
    return neighbors_of(std::move(graph), d + 1);
}

// A lattice as (index, splat, slice, neighbours); the caller sets x, out, n, channels and shift.
template <typename T>
FilterArgs<T> lattice_args(std::size_t corners, const std::int32_t* index, const T* splat, const T* slice,
                           const In<std::int32_t, 3>& neighbors, double tap, double identity, int order, int threads) {
    require(corners >= 2 && corners <= kMaxCorners, "2 to 257 corners");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(order >= 0 && order <= 2 && threads >= 1, "order and threads");
    FilterArgs<T> l{};
    l.corners = static_cast<int>(corners);
    l.index = index;
    l.splat = splat;
    l.slice = slice;
    l.vertices = size(neighbors, 1);
    l.neighbors = neighbors.data();
    l.tap = static_cast<T>(tap);
    l.identity = static_cast<T>(identity);
    l.order = static_cast<BlurOrder>(order);
    l.threads = threads;
    return l;
}

// See WeightsArgs, for the blur in ascending order of the axes.
void normalized(In<std::int32_t, 2> index, In<float, 2> weight, In<std::int32_t, 3> neighbors, double tap,
                int normalization, double gain, double least, double times, Out<float, 2> splat, Out<float, 2> slice,
                int threads) {
    require_same(index, weight, "shapes");
    require_same(index, splat, "shapes");
    require_same(index, slice, "shapes");
    require(normalization >= 0 && normalization <= 3, "normalization");
    FilterArgs<float> lattice = lattice_args<float>(index.shape(1), index.data(), weight.data(), weight.data(),
                                                    neighbors, tap, 0.0, static_cast<int>(BlurOrder::forward), threads);
    lattice.n = size(index, 0);
    nb::gil_scoped_release release;
    normalized_weights(WeightsArgs<float>{lattice, static_cast<Normalization>(normalization), static_cast<float>(gain),
                                          static_cast<float>(least), static_cast<float>(times), splat.data(),
                                          slice.data()});
}

// Returns false if x is not finite.
template <typename T>
bool filter(In<T, 3> x, In<std::int32_t, 2> index, In<T, 2> splat, In<T, 2> slice, In<std::int32_t, 3> neighbors,
            Maybe<T, 1> shift, double tap, double identity, int order, Out<T, 3> out, int threads) {
    const std::size_t n = x.shape(1), corners = index.shape(1);
    require(index.shape(0) == n && splat.shape(0) == n && slice.shape(0) == n, "one row per point");
    require(splat.shape(1) == corners && slice.shape(1) == corners, "one weight per corner");
    require(!shift || shift->shape(0) == n, "one shift per point");
    require_same(x, out, "output shape");
    FilterArgs<T> args =
        lattice_args(corners, index.data(), splat.data(), slice.data(), neighbors, tap, identity, order, threads);
    args.n = size(x, 1);
    args.channels = size(x, 2);
    args.shift = shift ? shift->data() : nullptr;
    nb::gil_scoped_release release;
    const std::size_t image = n * x.shape(2);
    bool finite = true;
    for (std::size_t g = 0; g < x.shape(0); ++g) {
        args.x = x.data() + g * image;
        args.out = out.data() + g * image;
        finite &= native<T>().filter(args);
    }
    return finite;
}

// The matrix of corner_dots and row_products, for x (images, n, channels).
template <typename T> const T* matrix_of(const Maybe<T, 2>& matrix, const In<T, 3>& x, const In<T, 3>& left) {
    const auto most = static_cast<std::size_t>(4 * native<T>().lanes());
    require(x.shape(2) >= 1 && x.shape(2) <= most, "number of channels");
    require_same(x, left, "arrays of one shape");
    require(!matrix || (matrix->shape(0) == x.shape(2) && matrix->shape(1) == x.shape(2)), "a matrix over channels");
    return matrix ? matrix->data() : nullptr;
}

// Over all images.
template <typename T>
void corner_dots(In<T, 3> left, In<T, 3> x, Maybe<T, 2> matrix, In<std::int32_t, 2> index, In<T, 2> splat,
                 In<std::int32_t, 3> neighbors, double tap, double identity, int order, Out<T, 2> dots,
                 std::optional<Out<T, 1>> products, int threads) {
    const std::size_t n = x.shape(1), corners = index.shape(1), image = n * x.shape(2);
    const T* const M = matrix_of<T>(matrix, x, left);
    require(index.shape(0) == n && splat.shape(0) == n && dots.shape(0) == n, "one row per point");
    require(splat.shape(1) == corners && dots.shape(1) == corners, "one weight per corner");
    require(products || !matrix, "a matrix of a symmetric filter");
    require(!products || (products->shape(0) == n && order == static_cast<int>(BlurOrder::symmetric)),
            "one product per point, of a symmetric filter");
    FilterArgs<T> args =
        lattice_args(corners, index.data(), splat.data(), splat.data(), neighbors, tap, identity, order, threads);
    args.n = size(x, 1);
    args.channels = size(x, 2);
    nb::gil_scoped_release release;
    for (std::size_t g = 0; g < x.shape(0); ++g) {
        args.x = x.data() + g * image;
        native<T>().corner_dots(args, left.data() + g * image, M, dots.data(), products ? products->data() : nullptr);
    }
}

// out is (images, n), or (1, n) for the sum over images.
template <typename T> void row_products(In<T, 3> left, In<T, 3> x, Maybe<T, 2> matrix, Out<T, 2> out, int threads) {
    const std::size_t n = x.shape(1), image = n * x.shape(2);
    const T* const M = matrix_of<T>(matrix, x, left);
    require(out.shape(1) == n && (out.shape(0) == 1 || out.shape(0) == x.shape(0)), "one product per point");
    require(threads >= 1, "threads >= 1");
    FilterArgs<T> args{};
    args.n = size(x, 1);
    args.channels = size(x, 2);
    args.threads = threads;
    nb::gil_scoped_release release;
    for (std::size_t g = 0; g < x.shape(0); ++g) {
        args.x = x.data() + g * image;
        native<T>().row_products(args, left.data() + g * image, M, out.data() + (out.shape(0) > 1 ? g * n : 0));
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
    diagonal(static_cast<std::int64_t>(n), static_cast<int>(corners) - 1, index.data(), weight.data(), order.data(),
             size(neighbors, 1), neighbors.data(), tap, identity, out.data(), slopes ? slopes->data() : nullptr,
             threads);
}

template <typename T>
void adjoint(In<T, 2> of_weight, In<std::int64_t, 2> order, In<double, 1> scale, Out<T, 2> of_features, int threads) {
    const std::size_t n = of_weight.shape(0), corners = of_weight.shape(1);
    require(corners >= 2 && corners <= kMaxDim + 1 && threads >= 1, "2 to 17 corners, threads >= 1");
    require(order.shape(0) == n && size(order, 1) == order_words(static_cast<int>(corners)), "one order per point");
    require(scale.shape(0) == corners - 1, "a factor per feature");
    require(of_features.shape(0) == n && of_features.shape(1) == corners - 1, "output shape");
    nb::gil_scoped_release release;
    embedding_adjoint(size(of_weight, 0), static_cast<int>(corners) - 1, of_weight.data(), order.data(), scale.data(),
                      of_features.data(), threads);
}

// See NormalizeArgs. Returns the smallest and the largest row sum.
template <typename T>
std::pair<double, double> normal(In<std::int32_t, 3> index, In<T, 3> weight, In<std::int64_t, 3> order,
                                 In<std::int32_t, 3> neighbors, In<T, 1> factor, double exponent, double tap,
                                 double identity, Out<T, 3> out, Out<T, 2> shift, Out<T, 2> minus, int threads) {
    const std::size_t batch = index.shape(0), n = index.shape(1), corners = index.shape(2);
    require(corners >= 2 && corners <= kTabled, "2 to 6 corners");
    require_same(index, weight, "shapes");
    require_same(index, out, "shapes");
    require(order.shape(0) == batch && order.shape(1) == n && order.shape(2) == 1, "one word of order per point");
    require(neighbors.shape(0) == corners && neighbors.shape(2) == 2, "neighbours of every axis");
    require(factor.shape(0) == batch && exponent <= 0 && threads >= 1, "one factor per image");
    for (const auto& array : {shift, minus})
        require(array.shape(0) == batch && array.shape(1) == n, "one entry per point");
    nb::gil_scoped_release release;
    const RowSums found =
        native<T>().normalize({size(index, 0), size(index, 1), size(neighbors, 1), static_cast<int>(corners),
                               index.data(), weight.data(), order.data(), neighbors.data(), factor.data(), exponent,
                               tap, identity, out.data(), shift.data(), minus.data(), threads});
    return {found.least, found.most};
}

template <typename T> void gaussian_sums(In<T, 3> rows, In<T, 3> columns, Out<T, 2> out, int threads) {
    const std::size_t batch = rows.shape(0), d = rows.shape(2);
    require(columns.shape(0) == batch && columns.shape(2) == d && d >= 1, "features of one kind, of as many images");
    require(out.shape(0) == batch && out.shape(1) == rows.shape(1) && threads >= 1, "one sum per row");
    nb::gil_scoped_release release;
    native<T>().gaussian_sums({rows.data(), columns.data(), out.data(), size(rows, 0), size(rows, 1), size(columns, 1),
                               static_cast<int>(d), threads});
}

// See SampleArgs: row sums of a sample.
template <typename T>
void sampled_sums(In<T, 3> features, In<std::int64_t, 1> points, std::int64_t rows, In<std::int32_t, 3> index,
                  In<T, 3> weight, In<std::int32_t, 3> neighbors, double exponent, double tap, double identity,
                  int order, Out<T, 2> exact, Out<T, 2> own, int threads) {
    const std::size_t batch = features.shape(0), n = features.shape(1), d = features.shape(2), count = points.shape(0);
    require(d >= 1 && d <= kMaxDim, "1 to 16 features");
    for (const auto* shape : {index.shape_ptr(), weight.shape_ptr()})
        require(static_cast<std::size_t>(shape[0]) == batch && static_cast<std::size_t>(shape[1]) == n &&
                    static_cast<std::size_t>(shape[2]) == d + 1,
                "a row of corners per point");
    require(rows >= 1 && static_cast<std::size_t>(rows) < count, "rows and columns");
    for (std::size_t i = 0; i < count; ++i)
        require(points.data()[i] >= 0 && static_cast<std::size_t>(points.data()[i]) < n, "points that there are");
    for (const auto* shape : {exact.shape_ptr(), own.shape_ptr()})
        require(static_cast<std::size_t>(shape[0]) == batch && shape[1] == rows, "one sum per row");
    require(exponent <= 0, "an exponent of at most 0");
    FilterArgs<T> lattice =
        lattice_args(d + 1, index.data(), weight.data(), weight.data(), neighbors, tap, identity, order, threads);
    lattice.n = static_cast<std::int64_t>(batch * n);
    lattice.channels = 1;
    nb::gil_scoped_release release;
    const Points<T> all{features.data(), static_cast<std::int64_t>(batch), static_cast<std::int64_t>(n),
                        static_cast<int>(d), false};
    sample(SampleArgs<T>{all, points.data(), static_cast<std::int64_t>(count), rows, lattice, exponent, exact.data(),
                         own.data()});
}

template <typename T> void placed(In<T, 3> weight, In<T, 1> factor, double exponent, Out<T, 3> out, int threads) {
    require_same(weight, out, "output shape");
    require(factor.shape(0) == weight.shape(0), "one factor per image");
    require(exponent <= 0 && threads >= 1, "an exponent of at most 0, threads >= 1");
    nb::gil_scoped_release release;
    const auto corners = static_cast<int>(weight.shape(2));
    native<T>().place_weights({weight.data(), factor.data(), out.data(), size(weight, 0), size(weight, 1), corners,
                               static_cast<T>(exponent), threads});
}

// Up to two diagonals, each with an array for the result.
template <typename T>
void scaled_rows(In<T, 2> weight, In<T, 1> factor, Out<T, 2> out, std::vector<In<T, 1>> diagonals,
                 std::vector<Out<T, 1>> scaled, int threads) {
    require_same(weight, out, "output shape");
    require(factor.shape(0) == weight.shape(0) && threads >= 1, "one factor per point, threads >= 1");
    require(diagonals.size() <= 2 && scaled.size() == diagonals.size(), "up to two diagonals");
    ScaleArgs<T> args{
        weight.data(), factor.data(), out.data(), size(weight, 0), static_cast<int>(weight.shape(1)), threads, {}, {}};
    for (std::size_t k = 0; k < diagonals.size(); ++k) {
        require(diagonals[k].shape(0) == weight.shape(0) && scaled[k].shape(0) == weight.shape(0),
                "one entry per point");
        args.diagonal[k] = diagonals[k].data();
        args.scaled[k] = scaled[k].data();
    }
    nb::gil_scoped_release release;
    native<T>().scale_weights(args);
}

template <typename T> void filter_axis(In<T, 3> x, In<T, 1> taps, Out<T, 3> out, int threads) {
    require(taps.shape(0) >= 1 && threads >= 1, "at least the centre tap, threads >= 1");
    require_same(x, out, "output shape");
    nb::gil_scoped_release release;
    AxisArgs<T> args{x.data(), out.data(), size(x, 0), size(x, 1), size(x, 2), taps.data(), size(taps, 0) - 1, threads};
    native<T>().filter_axis(args);
}

// The derivative of <g, filtered x> in each tap. `out` of AxisArgs holds g, which is only read.
template <typename T> void tap_slopes(In<T, 3> g, In<T, 3> x, Out<double, 1> out, int threads) {
    require(out.shape(0) >= 1 && threads >= 1, "at least the centre tap, threads >= 1");
    require_same(x, g, "arrays of one shape");
    nb::gil_scoped_release release;
    const AxisArgs<T> args{x.data(), const_cast<T*>(g.data()), size(x, 0), size(x, 1), size(x, 2),
                           nullptr,  size(out, 0) - 1,         threads};
    native<T>().tap_slopes(args, out.data());
}

// See BandArgs.
template <typename T> BandArgs<T> band_args(In<T, 3> x, const GivenBand<T>& given, Out<T, 3> out, int threads) {
    require(out.shape(0) == x.shape(0) && threads >= 1, "output shape, threads >= 1");
    return {x.data(), out.data(), size(x, 0), size(x, 2), size(out, 2), band<T>(given, size(out, 1), size(x, 1)),
            threads};
}
template <typename T> void shrink_lines(In<T, 3> x, GivenBand<T> given, Out<T, 3> out, int threads) {
    const BandArgs<T> args = band_args<T>(x, given, out, threads);
    const Functions<T>& functions = native_for_rows<T>(size(out, 2));
    const std::int64_t lanes = functions.lanes();
    require(args.inner >= 1 && args.inner <= args.cell && args.cell % lanes == 0 && args.cell <= 4 * lanes,
            "one to four vectors per pixel");
    nb::gil_scoped_release release;
    functions.shrink_lines(args);
}
template <typename T> void shrink_axis(In<T, 3> x, GivenBand<T> given, Out<T, 3> out, int threads) {
    const BandArgs<T> args = band_args<T>(x, given, out, threads);
    const bool wide = args.inner % (2 * native<T>().lanes()) == 0;
    const Functions<T>& functions = wide ? native<T>() : native_for_rows<T>(1);
    require(args.inner == args.cell && args.inner % (2 * functions.lanes()) == 0, "an even number of vectors");
    nb::gil_scoped_release release;
    functions.shrink_axis(args);
}

// See BandProductArgs.
template <typename T>
void band_products(In<T, 4> left, In<T, 4> right, std::int64_t labels, std::int64_t reach, Out<T, 2> sums,
                   int threads) {
    require_same(left, right, "arrays of one shape");
    require(labels >= 1 && labels <= size(left, 3) && labels <= 64 && reach >= 0 && threads >= 1, "labels, reach");
    require(sums.shape(0) == left.shape(1) && sums.shape(1) == left.shape(1), "a sum per pair of rows");
    nb::gil_scoped_release release;
    native<T>().band_products({left.data(), right.data(), size(left, 0), size(left, 1), size(left, 2), size(left, 3),
                               labels, reach, sums.data(), threads});
}

template <typename T> void bind(nb::module_& m) {
    m.def("bilateral_features", &bilateral<T>, "values"_a.noconvert(), "sizes"_a.noconvert(), "inverse"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a);
    m.def("feature_bounds", &feature_bounds<T>, "features"_a.noconvert());
    m.def("build_lattice", &build_lattice<T>, "features"_a.noconvert(), "scale"_a.noconvert(), "low"_a.noconvert(),
          "high"_a.noconvert(), "index"_a.noconvert(), "weight"_a.noconvert(), "order"_a.noconvert(), "threads"_a,
          "single"_a = false);
    m.def("image_lattice", &lattice_of_image<T>, "values"_a.noconvert(), "sizes"_a, "scales"_a, "origin"_a, "scale"_a,
          "points"_a.noconvert(), "rows"_a, "place"_a, "constant"_a, "tap"_a, "identity"_a, "least"_a, "most"_a,
          "index"_a.noconvert(), "weight"_a.noconvert(), "shift"_a.noconvert(), "minus"_a.noconvert(), "threads"_a);
    m.def("filter", &filter<T>, "x"_a.noconvert(), "index"_a.noconvert(), "splat"_a.noconvert(), "slice"_a.noconvert(),
          "neighbors"_a.noconvert(), "shift"_a.noconvert().none(), "tap"_a, "identity"_a, "order"_a,
          "out"_a.noconvert(), "threads"_a);
    m.def("corner_dots", &corner_dots<T>, "left"_a.noconvert(), "x"_a.noconvert(), "matrix"_a.noconvert().none(),
          "index"_a.noconvert(), "splat"_a.noconvert(), "neighbors"_a.noconvert(), "tap"_a, "identity"_a, "order"_a,
          "dots"_a.noconvert(), "products"_a.noconvert().none(), "threads"_a);
    m.def("row_products", &row_products<T>, "left"_a.noconvert(), "x"_a.noconvert(), "matrix"_a.noconvert().none(),
          "out"_a.noconvert(), "threads"_a);
    m.def("shrink_lines", &shrink_lines<T>, "x"_a.noconvert(), "band"_a, "out"_a.noconvert(), "threads"_a);
    m.def("shrink_axis", &shrink_axis<T>, "x"_a.noconvert(), "band"_a, "out"_a.noconvert(), "threads"_a);
    m.def("band_products", &band_products<T>, "left"_a.noconvert(), "right"_a.noconvert(), "labels"_a, "reach"_a,
          "sums"_a.noconvert(), "threads"_a);
    m.def("diagonal", &lattice_diagonal<T>, "index"_a.noconvert(), "weight"_a.noconvert(), "order"_a.noconvert(),
          "neighbors"_a.noconvert(), "tap"_a, "identity"_a, "out"_a.noconvert(), "slopes"_a.noconvert().none(),
          "threads"_a);
    m.def("embedding_adjoint", &adjoint<T>, "of_weight"_a.noconvert(), "order"_a.noconvert(), "scale"_a.noconvert(),
          "of_features"_a.noconvert(), "threads"_a);
    m.def("normalize", &normal<T>, "index"_a.noconvert(), "weight"_a.noconvert(), "order"_a.noconvert(),
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
    m.def("filter_axis", &filter_axis<T>, "x"_a.noconvert(), "taps"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("tap_slopes", &tap_slopes<T>, "g"_a.noconvert(), "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_filters(nb::module_& m) {
    bind<float>(m);
    bind<double>(m);
    m.def("order_words", [](int corners) { return order_words(corners); }, "corners"_a);
    m.def(
        "quotient_range",
        [](const std::vector<double>& lowest, const std::vector<double>& highest, const std::vector<double>& scale) {
            Quotients found = quotient_range(lowest, highest, scale);
            return std::make_pair(std::move(found.low), std::move(found.high));
        },
        "lowest"_a, "highest"_a, "scale"_a);
    m.def("normalized_weights", &normalized, "index"_a.noconvert(), "weight"_a.noconvert(), "neighbors"_a.noconvert(),
          "tap"_a, "normalization"_a, "gain"_a, "least"_a, "times"_a, "splat"_a.noconvert(), "slice"_a.noconvert(),
          "threads"_a);
}

}  // namespace fwcrf
