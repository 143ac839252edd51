#include "lattice/image.hpp"

#include "bind/dispatch.hpp"
#include "lattice/sample.hpp"
#include "runtime/blocks.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

namespace fwcrf {

template <typename T>
T fitted_factor(const T* exact, const T* own, std::int64_t rows, double constant, double least, double most) {
    double over = 0, under = 0;
    for (std::int64_t i = 0; i < rows; ++i) {
        over += static_cast<double>(own[i]) * exact[i];
        under += static_cast<double>(own[i]) * own[i];
    }
    const double ratio = under > least ? over / under : constant;
    return static_cast<T>(std::clamp(ratio, constant / most, constant * most));
}

template <typename T> bool image_lattice(const ImageLatticeArgs<T>& a, Graph& graph) {
    const int d = a.features.width(), corners = d + 1;
    std::vector<double> low(d), high(d);
    if (!a.features.bounds(low.data(), high.data(), a.threads)) return false;
    const std::vector<double> scale(a.scale, a.scale + d);
    const Quotients range = quotient_range(low, high, scale);
    const Points<T> points{nullptr, a.features.pixels.images, a.features.count(), d, false, &a.features};
    const std::int64_t rows = points.batch * points.n;
    const std::unique_ptr<void, decltype(&give_block)> block(take_block(rows * sizeof(std::int64_t)), &give_block);
    auto* const order = static_cast<std::int64_t*>(block.get());
    graph = build(points, a.scale, range.low.data(), range.high.data(), a.index, a.weight, order, a.threads);
    FilterArgs<T> lattice{};
    lattice.n = rows;
    lattice.channels = 1;
    lattice.corners = corners;
    lattice.index = a.index;
    lattice.splat = lattice.slice = a.weight;
    lattice.vertices = graph.vertices;
    lattice.neighbors = graph.neighbors.data();
    lattice.tap = static_cast<T>(a.tap);
    lattice.identity = static_cast<T>(a.identity);
    lattice.threads = a.threads;
    std::vector<T> exact(points.batch * a.rows), own(points.batch * a.rows), factor(points.batch);
    if (a.rows) sample(SampleArgs<T>{points, a.points, a.count, a.rows, lattice, a.exponent, exact.data(), own.data()});
    for (std::int64_t b = 0; b < points.batch; ++b)
        factor[b] = std::sqrt(
            fitted_factor(exact.data() + b * a.rows, own.data() + b * a.rows, a.rows, a.constant, a.least, a.most));
    native<T>().normalize({points.batch, points.n, graph.vertices, corners, a.index, a.weight, order,
                           graph.neighbors.data(), factor.data(), a.exponent, a.tap, a.identity, a.weight, a.shift,
                           a.minus, a.threads});
    return true;
}

template bool image_lattice(const ImageLatticeArgs<float>&, Graph&);
template bool image_lattice(const ImageLatticeArgs<double>&, Graph&);

}  // namespace fwcrf
