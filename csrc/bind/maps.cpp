// Maps of whole arrays: layouts, energies, simplices, argmax.
#include "bind/arrays.hpp"

#include <nanobind/stl/array.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

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

// The logarithm of a blend of x and y, and its derivatives in x, y and the share, of which the last one is returned.
template <typename T>
void transposed_blend_log(In<T, 3> x, In<T, 3> y, double share, double slope, double offset, Out<T, 3> out,
                          int threads) {
    TransposeArgs<T> args = turned<T>(x, nullptr, slope, offset, out, threads);
    require_same(x, y, "shapes");
    args.blended = y.data();
    args.share = static_cast<T>(share);
    nb::gil_scoped_release release;
    native<T>().transpose_log(args);
}
template <typename T>
double blend_log_derivative(In<T, 3> g, In<T, 3> x, In<T, 3> y, double share, double slope, double offset,
                            Out<T, 3> of_x, Out<T, 3> of_y, int threads) {
    TransposeArgs<T> args = turned<T>(g, &x, slope, offset, of_x, threads);
    require_same(x, y, "shapes");
    require_same(of_x, of_y, "shapes");
    args.blended = y.data();
    args.share = static_cast<T>(share);
    BlendSlopes<T> found{of_y.data(), 0};
    nb::gil_scoped_release release;
    native<T>().blend_log_derivative(args, found);
    return found.share;
}

template <typename T>
void transposed_and_summed(In<T, 3> x, In<T, 3> beside, double factor, Out<T, 3> out, Out<double, 1> sums,
                           int threads) {
    const TransposeArgs<T> args = turned<T>(x, &beside, factor, 0, out, threads);
    require(x.shape(2) <= kMostSums && sums.shape(0) == x.shape(2) + 1,
            "a sum per column, of at most 64, and one more");
    nb::gil_scoped_release release;
    native<T>().transpose_and_sum(args, sums.data());
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
                                                          Out<T, 3> out, int threads, double slope,
                                                          Maybe<T, 1> offset) {
    const std::size_t batch = out.shape(0), n = out.shape(1), labels = out.shape(2);
    require(scores.shape(0) == batch && scores.shape(last ? 1 : 2) == n && scores.shape(last ? 2 : 1) == labels,
            "shapes");
    require(labels >= 1 && least > 0 && threads >= 1, "at least one label, a least probability, threads >= 1");
    require(!offset || (offset->shape(0) == labels && !last && !probabilities), "an offset per label, of logits");
    const EnergyArgs<T> args{scores.data(),
                             out.data(),
                             static_cast<std::int64_t>(batch),
                             static_cast<std::int64_t>(labels),
                             static_cast<std::int64_t>(n),
                             last,
                             probabilities,
                             static_cast<T>(least),
                             threads,
                             offset ? offset->data() : nullptr,
                             static_cast<T>(slope)};
    nb::gil_scoped_release release;
    const ScoreRange e = native<T>().energies(args);
    return {e.finite, e.least, e.most, e.lowest_sum, e.highest_sum};
}

// Some pixels of a grid. `window` has, for each axis, the size of the grid, the first pixel, the step and the number of
// pixels.
struct Window {
    std::vector<std::int64_t> each[4];
    Sampled pixels{};

    Window(const std::vector<std::array<std::int64_t, 4>>& window, std::size_t n) {
        std::size_t product = 1;
        for (const auto& axis : window) {
            const auto [size, first, step, number] = axis;
            require(size >= 1 && first >= 0 && step >= 1 && number >= 1 && first < size, "pixels of the grid");
            require(number - 1 <= (size - 1 - first) / step, "pixels of the grid");
            for (std::size_t k = 0; k < 4; ++k) each[k].push_back(axis[k]);
            require(static_cast<std::size_t>(size) <= n / product, "one row per pixel of the grid");
            product *= static_cast<std::size_t>(size);
        }
        require(!window.empty() && product == n, "one row per pixel of the grid");
        pixels = {static_cast<int>(window.size()), each[0].data(), each[1].data(), each[2].data(), each[3].data()};
    }
};

template <typename T> ShareArgs<T> share_args(const In<T, 3>& unary, const Sampled& pixels, int threads) {
    require(unary.shape(2) >= 1 && threads >= 1, "at least one label, threads >= 1");
    ShareArgs<T> args{};
    args.unary = unary.data();
    args.batch = size(unary, 0);
    args.n = size(unary, 1);
    args.labels = size(unary, 2);
    args.pixels = pixels;
    args.threads = threads;
    return args;
}

// The largest probability of some pixels, and its label.
template <typename T>
void best_labels(In<T, 3> unary, const std::vector<std::array<std::int64_t, 4>>& window, Out<T, 2> best,
                 Out<std::int64_t, 2> labels, int threads) {
    const Window given(window, unary.shape(1));
    require_same(best, labels, "one entry per pixel");
    require(best.shape(0) == unary.shape(0) && size(best, 1) == given.pixels.total(), "one entry per pixel");
    ShareArgs<T> args = share_args<T>(unary, given.pixels, threads);
    args.best = best.data();
    args.where = labels.data();
    nb::gil_scoped_release release;
    native<T>().label_shares(args);
}

// -log(mean probability over some pixels + floor) of each label that is the best one of a pixel, above the least of all
// labels; 0 for every other label.
template <typename T>
void rarity(In<T, 3> unary, const std::vector<std::array<std::int64_t, 4>>& window, double floor, Out<T, 2> rare,
            int threads) {
    const Window given(window, unary.shape(1));
    require(rare.shape(0) == unary.shape(0) && rare.shape(1) == unary.shape(2) && floor > 0, "one entry per label");
    const std::size_t batch = rare.shape(0), labels = rare.shape(1);
    std::vector<double> sums(batch * labels);
    const auto wins = std::make_unique<bool[]>(sums.size());
    ShareArgs<T> args = share_args<T>(unary, given.pixels, threads);
    args.sums = sums.data();
    args.wins = wins.get();
    {
        nb::gil_scoped_release release;
        native<T>().label_shares(args);
    }
    const auto count = static_cast<double>(given.pixels.total());
    for (std::size_t b = 0; b < batch; ++b) {
        double* const own = sums.data() + b * labels;
        for (std::size_t s = 0; s < labels; ++s) own[s] = -std::log(own[s] / count + floor);
        const double least = *std::min_element(own, own + labels);
        for (std::size_t s = 0; s < labels; ++s)
            rare.data()[b * labels + s] = static_cast<T>(wins[b * labels + s] ? own[s] - least : 0.0);
    }
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
    m.def("transpose_blend_log", &transposed_blend_log<T>, "x"_a.noconvert(), "y"_a.noconvert(), "share"_a, "slope"_a,
          "offset"_a, "out"_a.noconvert(), "threads"_a);
    m.def("blend_log_derivative", &blend_log_derivative<T>, "g"_a.noconvert(), "x"_a.noconvert(), "y"_a.noconvert(),
          "share"_a, "slope"_a, "offset"_a, "of_x"_a.noconvert(), "of_y"_a.noconvert(), "threads"_a);
    m.def("transpose_and_sum", &transposed_and_summed<T>, "x"_a.noconvert(), "beside"_a.noconvert(), "factor"_a,
          "out"_a.noconvert(), "sums"_a.noconvert(), "threads"_a);
    m.def("argmax", &largest_columns<T>, "x"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("energies", &energies<T>, "scores"_a.noconvert(), "last"_a, "probabilities"_a, "least"_a, "out"_a.noconvert(),
          "threads"_a, "slope"_a = 1.0, "offset"_a.noconvert().none() = nb::none());
    m.def("best_labels", &best_labels<T>, "unary"_a.noconvert(), "window"_a, "best"_a.noconvert(),
          "labels"_a.noconvert(), "threads"_a);
    m.def("rarity", &rarity<T>, "unary"_a.noconvert(), "window"_a, "floor"_a, "rare"_a.noconvert(), "threads"_a);
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
