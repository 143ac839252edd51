// Lattices and dense models on them: cases of the driver.
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "arrays.hpp"
#include "bind/dispatch.hpp"
#include "choices.hpp"
#include "lattice/build.hpp"
#include "lattice/image.hpp"
#include "lattice/lines.hpp"
#include "lattice/sample.hpp"
#include "lattice/weights.hpp"

namespace fwcrf {

template <typename T> struct Built {
    int d, corners;
    Array<std::int32_t> index, neighbors;
    Array<T> weight;
    Array<std::int64_t> order;
    std::int64_t vertices;
};

// The lattice of n points per image, after a check of its tables.
template <typename T> Built<T> lattice_of(const Points<T>& points, int threads) {
    const int d = points.d, corners = d + 1;
    const std::int64_t n = points.batch * points.n;
    double scale[kMaxDim], least[kMaxDim], most[kMaxDim];
    for (int i = 0; i < d; ++i) scale[i] = std::sqrt(2.0 / 3) * corners / std::sqrt((i + 1.0) * (i + 2.0));
    bool finite;
    finite = native<T>().feature_bounds(points.features, n, d, least, most);
    if (!finite) found("finite features are not seen as such");
    Array<std::int64_t> lows(d), highs(d);
    for (int j = 0; j < d; ++j) {
        double l = 0, h = 0;
        for (int i = j; i < d; ++i) {
            l += least[i] * scale[i];
            h += most[i] * scale[i];
        }
        if (j) {
            l -= j * most[j - 1] * scale[j - 1];
            h -= j * least[j - 1] * scale[j - 1];
        }
        lows[j] = static_cast<std::int64_t>(std::floor(l / corners)) - 2;
        highs[j] = static_cast<std::int64_t>(std::ceil(h / corners)) + 2;
    }
    Array<std::int32_t> index(n * corners);
    Array<T> weight(n * corners);
    Array<std::int64_t> order(n * order_words(corners));
    const Graph graph = build(points, scale, lows.get(), highs.get(), index.get(), weight.get(), order.get(), threads);
    if (!weight.finite()) found("weights are not finite");
    for (std::int64_t i = 0; i < index.size; ++i)
        if (index[i] < 0 || index[i] >= graph.vertices) found("a vertex that is none");
    for (const std::int32_t v : graph.neighbors)
        if (v < 0 || v > graph.vertices) found("a neighbour that is none");
    Array<std::int32_t> neighbors(static_cast<std::int64_t>(graph.neighbors.size()));
    std::copy(graph.neighbors.begin(), graph.neighbors.end(), neighbors.get());
    return {d, corners, std::move(index), std::move(neighbors), std::move(weight), std::move(order), graph.vertices};
}

// The lattice of random points.
template <typename T> Built<T> built(Choices& c, std::int64_t batch, std::int64_t n, int threads) {
    const int d = c.integer(1, kMaxDim);
    auto features = numbers<T>(c, batch * n * d, 1e6);
    return lattice_of(Points<T>{features.get(), batch, n, d, c.flag()}, threads);
}

// Calibration of a lattice: every sum is finite, and weights become no larger.
template <typename T> void fitted(Choices& c, std::int64_t batch, std::int64_t n, Built<T>& l, int threads) {
    const std::int64_t columns = c.integer(1, 40);
    auto some = numbers<T>(c, batch * n * l.d, 10), others = numbers<T>(c, batch * columns * l.d, 10);
    Array<T> sums(batch * n), weight(l.weight.size);
    const SumArgs<T> sum{some.get(), others.get(), sums.get(), batch, n, columns, l.d, threads};
    Array<T> ones(batch);
    std::fill(ones.get(), ones.get() + batch, T(1));
    const PlaceArgs<T> place{l.weight.get(), ones.get(), weight.get(), batch, n, l.corners, T(-0.3), threads};
    Array<T> scaled(l.weight.size), diagonal(batch * n);
    const ScaleArgs<T> scale{l.weight.get(), sums.get(), scaled.get(),          batch * n,
                             l.corners,      threads,    {nullptr, sums.get()}, {nullptr, diagonal.get()}};
    native<T>().gaussian_sums(sum);
    native<T>().place_weights(place);
    native<T>().scale_weights(scale);
    const std::int64_t count = c.integer(2, 30), own = c.integer(1, static_cast<int>(count) - 1);
    Array<std::int64_t> points(count);
    for (std::int64_t i = 0; i < count; ++i) points[i] = c.any(0, static_cast<int>(n) - 1);
    Array<T> exact(batch * own), by_lattice(batch * own);
    const FilterArgs<T> filter{nullptr,
                               nullptr,
                               batch * n,
                               1,
                               l.corners,
                               l.index.get(),
                               l.weight.get(),
                               nullptr,
                               nullptr,
                               l.vertices,
                               l.neighbors.get(),
                               T(0.5),
                               T(-0.1),
                               static_cast<BlurOrder>(c.integer(0, 2)),
                               threads};
    sample(SampleArgs<T>{
        {some.get(), batch, n, l.d, false}, points.get(), count, own, filter, -0.3, exact.get(), by_lattice.get()});
    if (!exact.finite() || !by_lattice.finite()) found("sums of a sample are not finite");
    if (!sums.finite() || !scaled.finite() || !diagonal.finite()) found("sums of the exact kernel are not finite");
    for (std::int64_t i = 0; i < weight.size; ++i)
        if (!(std::abs(weight[i]) <= std::abs(l.weight[i]))) found("a weight has grown by its place");
}

// Normalized weights, for as many corners as one word holds.
template <typename T> void normalized(std::int64_t batch, std::int64_t n, Built<T>& l, int threads) {
    if (l.corners > kTabled) return;
    Array<T> factor(batch, T(1)), out(l.weight.size), shift(batch * n), minus(batch * n);
    const RowSums sums = native<T>().normalize({batch, n, l.vertices, l.corners, l.index.get(), l.weight.get(),
                                                l.order.get(), l.neighbors.get(), factor.get(), -0.3, 0.5, -0.1,
                                                out.get(), shift.get(), minus.get(), threads});
    if (!out.finite() || !shift.finite() || !minus.finite()) found("normalized weights are not finite");
    if (!(sums.least > 0 && sums.least <= sums.most)) found("row sums are not positive");
}

// A blur of whole rows in one order, and weights that are normalised for it.
template <typename T> void whole_rows(Choices& c, FilterArgs<T> args, Array<T>& out, bool spoilt) {
    const LatticeLines lines = lattice_lines(args.corners, args.vertices, args.neighbors, args.threads);
    args.lines = lines.axes.data();
    args.order = c.flag() ? BlurOrder::forward : BlurOrder::reverse;
    args.identity = 0;
    if (native<T>().filter(args) == spoilt) found("whether x is finite was not seen by whole rows");
    if (!spoilt && !out.finite()) found("a filter of whole rows is not finite");
    if constexpr (std::is_same_v<T, float>) {
        Array<T> splat(args.n * args.corners), slice(args.n * args.corners);
        normalized_weights(WeightsArgs<T>{args, static_cast<Normalization>(c.integer(0, 3)), T(0.9), T(1e-20), T(2),
                                          splat.get(), slice.get()});
        if (!splat.finite() || !slice.finite()) found("weights normalised by row sums are not finite");
    }
}

// The lattice of images, of bytes or numbers and in two layouts of memory.
template <typename T> void images(Choices& c) {
    const int axes = c.integer(1, 3), channels = c.integer(1, kTabled - 1 - axes), threads = c.integer(1, 2);
    const std::int64_t batch = c.integer(1, 2);
    std::int64_t sizes[3], n = 1;
    for (int a = 0; a < axes; ++a) n *= sizes[a] = c.integer(1, 7);
    const int d = axes + channels;
    auto values = numbers<T>(c, batch * n * channels, 1e3), scales = numbers<T>(c, d, 1);
    Array<std::uint8_t> bytes(values.size);
    for (std::int64_t i = 0; i < values.size; ++i) bytes[i] = static_cast<std::uint8_t>(c.integer(0, 255));
    Array<T> inverse(d), corner(axes, T(3));
    for (int k = 0; k < d; ++k) inverse[k] = T(1) / (T(0.1) + std::abs(scales[k]));
    const bool planes = c.flag(), whole = c.flag();
    const Pixels<T> pixels{whole ? nullptr : values.get(), batch,          n * channels,
                           planes ? 1 : channels,          planes ? n : 1, channels,
                           whole ? bytes.get() : nullptr};
    const GridFeatures<T> features{pixels, sizes, axes, inverse.get(), c.flag() ? corner.get() : nullptr};
    double scale[kMaxDim];
    for (int i = 0; i < d; ++i) scale[i] = std::sqrt(2.0 / 3) * (d + 1) / std::sqrt((i + 1.0) * (i + 2.0));
    const std::int64_t count = n, rows = n > 1 ? c.integer(0, static_cast<int>(n) - 1) : 0;
    Array<std::int64_t> points(count);
    for (std::int64_t i = 0; i < count; ++i) points[i] = i;
    Array<std::int32_t> index(batch * n * (d + 1));
    Array<T> weight(index.size), shift(batch * n), minus(batch * n);
    Graph graph;
    const bool finite =
        image_lattice(ImageLatticeArgs<T>{features, scale, points.get(), count, rows, -0.3, 0.5, -0.1, 1.0, 1e-6, 8.0,
                                          index.get(), weight.get(), shift.get(), minus.get(), threads},
                      graph);
    if (!finite) found("finite images are not seen as such");
    if (!weight.finite() || !shift.finite() || !minus.finite()) found("the lattice of an image is not finite");
    for (std::int64_t i = 0; i < index.size; ++i)
        if (index[i] < 0 || index[i] >= graph.vertices) found("a vertex that is none");
}

template <typename T> void lattice(Choices& c) {
    if (!c.integer(0, 3)) return images<T>(c);
    const int threads = c.integer(1, 2);
    const std::int64_t batch = c.integer(1, 2), n = c.integer(1, c.integer(0, 5) ? 20 : 150), rows = batch * n;
    Built<T> l = built<T>(c, batch, n, threads);
    const std::int64_t channels = c.integer(1, c.integer(0, 5) ? 24 : 130);
    auto x = numbers<T>(c, rows * channels, 1e6), shift = numbers<T>(c, rows, 1e3);
    const bool spoilt = spoil(c, x);
    Array<T> out(rows * channels), on_diagonal(rows), slopes(rows * l.corners, T(0));
    const FilterArgs<T> args{x.get(),
                             out.get(),
                             rows,
                             channels,
                             l.corners,
                             l.index.get(),
                             l.weight.get(),
                             l.weight.get(),
                             c.flag() ? shift.get() : nullptr,
                             l.vertices,
                             l.neighbors.get(),
                             T(0.5),
                             T(-0.1),
                             static_cast<BlurOrder>(c.integer(0, 2)),
                             threads};
    bool seen;
    seen = native<T>().filter(args);
    if (seen == spoilt) found("whether x is finite was not seen");
    fitted(c, batch, n, l, threads);
    normalized(batch, n, l, threads);
    const std::int64_t most = 4 * native<T>().lanes();
    if (channels <= most) {
        Array<T> dots(rows * l.corners);
        for (std::int64_t i = 0; i < dots.size; ++i) dots[i] = 0;
        Array<T> products(rows, T(0));
        const bool both = args.order == BlurOrder::symmetric && c.flag();
        auto matrix = numbers<T>(c, channels * channels, 10);
        const T* const some = both && c.flag() ? matrix.get() : nullptr;
        native<T>().corner_dots(args, x.get(), some, dots.get(), both ? products.get() : nullptr);
        native<T>().row_products(args, x.get(), some, products.get());
        if (!spoilt && !dots.finite()) found("a dot at a corner is not finite");
        if (!spoilt && !products.finite()) found("a product at a point is not finite");
    }
    if (!spoilt && !out.finite()) found("a filter is not finite");
    whole_rows(c, args, out, spoilt);
    diagonal(rows, l.d, l.index.get(), l.weight.get(), l.order.get(), l.vertices, l.neighbors.get(), 0.5, -0.1,
             on_diagonal.get(), c.flag() ? slopes.get() : nullptr, threads);
    if (!on_diagonal.finite() || !slopes.finite()) found("a diagonal is not finite");
}

// Steps on unary + (lattice + grid) x, with matrices or Potts.
template <typename T> void model(Choices& c) {
    const int threads = c.integer(1, 2), axes = c.integer(1, 3);
    std::vector<Banded<T>> bands;
    Term<T> terms[2]{};
    std::int64_t n = 1;
    bands.reserve(9);
    for (int a = 0; a < axes; ++a) {
        const std::int64_t size = c.integer(1, 7), between = c.integer(1, 9);
        n *= size;
        terms[1].grid.down[a] = bands.emplace_back(c, between, size).band;
        if (c.flag()) terms[1].grid.middle[a] = bands.emplace_back(c, between, between).band;
        terms[1].grid.up[a] = bands.emplace_back(c, size, between).band;
    }
    Grid<T>& grid = terms[1].grid;
    grid.axes = axes;
    grid.radius = c.integer(0, 9);
    auto taps = numbers<T>(c, grid.radius + 1, 1), left = numbers<T>(c, grid.up[axes - 1].rows, 1),
         right = numbers<T>(c, grid.up[axes - 1].rows, 1);
    grid.taps = taps.get();
    grid.left = left.get();
    grid.right = right.get();
    Built<T> l = built<T>(c, 1, n, threads);
    terms[0].lattice.corners = l.corners;
    terms[0].lattice.index = l.index.get();
    terms[0].lattice.splat = terms[0].lattice.slice = l.weight.get();
    terms[0].lattice.vertices = l.vertices;
    terms[0].lattice.neighbors = l.neighbors.get();
    terms[0].lattice.tap = T(0.5);
    terms[0].lattice.identity = T(-0.1);
    terms[0].lattice.order = static_cast<BlurOrder>(c.integer(0, 2));

    // Steps as in inference: Potts, no gradients, no duals. Then two labels are one number per pixel, and any number of
    // labels goes, in panels. Otherwise rows end at every number of vectors, or one label before or behind it.
    const bool plain = c.flag(), alone = c.flag() && plain;
    const auto most = static_cast<int>(kMostLabels<T>), lanes = static_cast<int>(native<T>().lanes());
    const int kind = c.integer(0, 5);
    // Equal updates may take lazy steps.
    const bool equal = plain && c.flag();
    const int steps = equal ? c.integer(4, 9) : c.integer(1, 3);
    const int rows = std::clamp(lanes * c.integer(1, 16) + c.integer(-1, 1), 1, most);
    const std::int64_t labels = kind == 5            ? 2
                                : kind == 4 && plain ? c.integer(most - 1, 3 * most)
                                : kind >= 3          ? rows
                                                     : c.integer(1, kind ? std::min(most, 24) : most);
    const std::int64_t size = n * labels;
    auto matrices = numbers<T>(c, labels * labels, 10), shift = numbers<T>(c, n, 10);
    for (Term<T>& term : terms) {
        term.potts = static_cast<T>(c.normal());
        term.matrix = !plain && c.flag() ? matrices.get() : nullptr;
        term.shift = c.flag() ? shift.get() : nullptr;
    }
    auto x = numbers<T>(c, size, 100), unary = numbers<T>(c, size, 1e3);
    const bool spoilt = spoil(c, x);
    Array<T> other(size, T(1) / static_cast<T>(labels)), sum(size, T(0)), dual(size, T(0));
    Array<T> goal(size, T(0)), point(size, T(1) / static_cast<T>(labels));
    Array<double> slopes(2 * labels * labels, 0.0), rates(3 * (1 + steps), 0.0);
    std::vector<Array<T>> outs;
    std::vector<T*> out;
    std::vector<const T*> others(3, other.get()), points(3, point.get());
    std::vector<T*> goals(3, c.flag() ? goal.get() : nullptr);
    std::vector<Update<T>> updates;
    for (int k = 0; k < steps; ++k) {
        out.push_back(k && (plain || c.flag()) ? out.back() : outs.emplace_back(size).get());
        updates.push_back({static_cast<Map>(plain ? c.integer(1, 3) : c.integer(0, 5)), static_cast<T>(c.normal()),
                           static_cast<T>(c.unit()), static_cast<T>(c.unit()), static_cast<T>(c.integer(0, 2)),
                           static_cast<T>(plain ? 0 : c.integer(-1, 1)),
                           static_cast<Dual>(plain ? 0 : c.integer(0, 3))});
        if (equal) updates[k] = updates[0];
    }
    std::vector<std::int64_t> reads(steps);
    MessageBound<T> bound;
    const bool sums = c.flag(), sloped = c.flag();
    const int first = c.flag(), count = first ? 1 : c.integer(1, 2);
    Array<T> begin(size);
    const bool back = !plain && c.flag();
    const Start<T> before{back ? Map::softmax_derivative : Map::softmax, T(-1), other.get(), begin.get(),
                          static_cast<T>(back ? c.unit() : 1)};
    const StepArgs<T> args{alone ? unary.get() : x.get(),
                           plain || c.flag() ? unary.get() : nullptr,
                           n,
                           labels,
                           count,
                           terms + first,
                           steps,
                           updates.data(),
                           out.data(),
                           plain ? nullptr : others.data(),
                           sums && !plain ? sum.get() : nullptr,
                           plain ? nullptr : dual.get(),
                           sloped && !plain ? slopes.get() : nullptr,
                           threads,
                           !plain && c.flag() ? &bound : nullptr,
                           false,
                           alone || back ? &before : nullptr,
                           nullptr,
                           plain ? nullptr : goals.data(),
                           !plain && c.flag() ? points.data() : nullptr,
                           !plain && c.flag() ? rates.get() : nullptr,
                           reads.data(),
                           static_cast<T>(c.flag() ? 1e-5 : 0)};
    bool seen;
    seen = native<T>().run_steps(args);
    // The result of a start need not be finite if x is not, and it is not always checked.
    if (!(back && spoilt) && seen != (alone || !spoilt)) found("whether the model's x is finite was not seen");
    if (spoilt) return;
    for (auto& values : outs)
        if (!values.finite()) found("a step is not finite");
    if (!slopes.finite() || !sum.finite() || !dual.finite() || !rates.finite() || !goal.finite())
        found("a sum of steps is not finite");
    if (!std::isfinite(bound.all) || !std::isfinite(bound.last)) found("a message bound is not finite");
    if (plain) return;

    // The way back through projections, whose points are vertices but for some pixels.
    Array<T> ends(size, T(0));
    for (std::int64_t i = 0; i < n; ++i) {
        const bool vertex = c.any(0, 15) > 0;
        for (std::int64_t s = 0; s < labels && !vertex; ++s) ends[i * labels + s] = T(1) / static_cast<T>(labels);
        if (vertex) ends[i * labels + c.any(0, static_cast<int>(labels) - 1)] = T(1);
    }
    const Start<T> last{Map::project_derivative, T(1), ends.get(), begin.get(), T(1)};
    const std::vector<Update<T>> derivatives(steps, {Map::project_derivative, T(0.1), 0, T(1), 0, 0, Dual::none});
    const std::vector<T*> one(steps, begin.get());
    others.assign(steps, ends.get());
    StepArgs<T> reverse = args;
    reverse.unary = nullptr;
    reverse.update = derivatives.data();
    reverse.out = one.data();
    reverse.other = others.data();
    reverse.start = &last;
    reverse.dual = nullptr;
    reverse.slopes = reverse.rates = nullptr;
    reverse.bound = nullptr;
    reverse.goal = nullptr;
    reverse.point = nullptr;
    native<T>().run_steps(reverse);
    if (!begin.finite() || !sum.finite()) found("a derivative of projections is not finite");
}

}  // namespace fwcrf
