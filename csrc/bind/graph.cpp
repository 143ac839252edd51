// Sparse graphs.
#include "bind/arrays.hpp"
#include "graph/balls.hpp"
#include "graph/branch.hpp"
#include "graph/constraints.hpp"
#include "graph/crossover.hpp"
#include "graph/elimination.hpp"
#include "graph/expansion.hpp"
#include "graph/icm.hpp"
#include "graph/inverse.hpp"
#include "graph/levels.hpp"
#include "graph/maxflow.hpp"
#include "graph/sequential.hpp"
#include "graph/trws.hpp"
#include "runtime/parallel.hpp"

#include <exception>

namespace fwcrf {
namespace {

using Firsts = In<std::int64_t, 1>;
using Ends = In<std::int32_t, 1>;

// The ends of the edges, grouped by node, in the order of the edges.
void adjacency(In<std::int32_t, 2> edges, Out<std::int64_t, 1> first, Out<std::int32_t, 1> neighbor,
               Out<std::int32_t, 1> slot) {
    const std::size_t m = edges.shape(0), n = first.shape(0) - 1;
    require(first.shape(0) >= 1 && edges.shape(1) == 2, "two nodes per edge");
    require(neighbor.shape(0) == 2 * m && slot.shape(0) == 2 * m, "two ends per edge");
    const std::int32_t* ends = edges.data();
    for (std::size_t s = 0; s < 2 * m; ++s)
        require(ends[s] >= 0 && static_cast<std::size_t>(ends[s]) < n, "nodes of edges");
    nb::gil_scoped_release release;
    std::int64_t* f = first.data();
    for (std::size_t i = 0; i <= n; ++i) f[i] = 0;
    for (std::size_t s = 0; s < 2 * m; ++s) ++f[ends[s] + 1];
    for (std::size_t i = 0; i < n; ++i) f[i + 1] += f[i];
    for (std::size_t s = 0; s < 2 * m; ++s) {
        const std::int64_t at = f[ends[s]]++;
        neighbor.data()[at] = ends[s ^ 1];
        slot.data()[at] = static_cast<std::int32_t>(s);
    }
    for (std::size_t i = n; i > 0; --i) f[i] = f[i - 1];
    f[0] = 0;
}

// Checks that an array is a list of `count` starts and the end, which do not fall.
void require_starts(const Firsts& first, std::size_t count, std::size_t end) {
    require(first.shape(0) == count + 1, "one start per column, and the end");
    require(first.data()[0] == 0 && first.data()[count] == static_cast<std::int64_t>(end), "starts");
    for (std::size_t j = 0; j < count; ++j) require(first.data()[j] <= first.data()[j + 1], "starts that do not fall");
}

void inverse_at_factors(Firsts first, Ends row, In<double, 1> factor, In<double, 1> pivot, Out<double, 1> inverse,
                        Out<double, 1> diagonal) {
    const std::size_t n = pivot.shape(0);
    require_starts(first, n, row.shape(0));
    require_same(row, factor, "one number per row");
    require_same(row, inverse, "one number per row");
    require_same(pivot, diagonal, "one number per column");
    for (std::size_t j = 0; j < n; ++j)
        for (std::int64_t e = first.data()[j]; e < first.data()[j + 1]; ++e)
            require(row.data()[e] > static_cast<std::int64_t>(j) && row.data()[e] < static_cast<std::int64_t>(n),
                    "rows below the diagonal");
    nb::gil_scoped_release release;
    fwcrf::selected_inverse({static_cast<std::int64_t>(n), first.data(), row.data(), factor.data(), pivot.data(),
                             inverse.data(), diagonal.data()});
}

Adjacency graph_of(const Firsts& first, const Ends& neighbor, const Ends& slot, std::size_t n) {
    require(first.shape(0) == n + 1, "one start per node");
    require(neighbor.shape(0) == slot.shape(0) && neighbor.shape(0) % 2 == 0, "two ends per edge");
    require(first.data()[0] == 0 && first.data()[n] == static_cast<std::int64_t>(slot.shape(0)), "starts");
    return {static_cast<std::int64_t>(n), static_cast<std::int64_t>(slot.shape(0) / 2), first.data(), neighbor.data(),
            slot.data()};
}

std::int64_t levels(Firsts first, Ends neighbor, Out<std::int64_t, 1> level) {
    const std::size_t n = level.shape(0);
    require_starts(first, n, neighbor.shape(0));
    for (std::size_t k = 0; k < neighbor.shape(0); ++k)
        require(neighbor.data()[k] >= 0 && static_cast<std::size_t>(neighbor.data()[k]) < n, "nodes of edges");
    nb::gil_scoped_release release;
    const auto edges = static_cast<std::int64_t>(neighbor.shape(0) / 2);
    return levels_of({static_cast<std::int64_t>(n), edges, first.data(), neighbor.data(), nullptr}, level.data());
}

// Returns 0 if all images share the array, 1 if every image has its own.
template <typename A> std::size_t images_of(const A& a, std::size_t images) {
    require(a.shape(0) == 1 || a.shape(0) == images, "one per image, or one for all");
    return a.shape(0) == 1 ? 0 : 1;
}

template <typename T>
bool edge_sum(In<T, 3> x, Maybe<T, 3> unary, In<T, 2> weight, Maybe<T, 3> matrix, bool potts, double turned,
              Firsts first, Ends neighbor, Ends slot, Out<T, 3> out, int threads) {
    const std::size_t images = x.shape(0), n = x.shape(1), labels = x.shape(2), given = weight.shape(1);
    const Adjacency graph = graph_of(first, neighbor, slot, n);
    require(labels >= 1 && threads >= 1, "labels and threads");
    // With one edge, one weight is both.
    const bool uniform = given == 1;
    require(uniform || given == static_cast<std::size_t>(graph.edges), "one weight per edge, or one for all");
    require_same(x, out, "output shape");
    if (unary) require_same(x, *unary, "unary shape");
    const std::size_t own_weight = images_of(weight, images), own_matrix = matrix ? images_of(*matrix, images) : 0;
    require(!matrix || (matrix->shape(1) == labels && matrix->shape(2) == labels), "a square matrix over labels");
    nb::gil_scoped_release release;
    bool finite = true;
    for (std::size_t g = 0; g < images; ++g) {
        const std::size_t at = g * n * labels;
        const EdgeArgs<T> args{graph,
                               x.data() + at,
                               unary ? unary->data() + at : nullptr,
                               out.data() + at,
                               static_cast<std::int64_t>(labels),
                               weight.data() + own_weight * g * given,
                               uniform,
                               static_cast<T>(turned),
                               matrix  ? Labels::matrix
                               : potts ? Labels::potts
                                       : Labels::plain,
                               matrix ? matrix->data() + own_matrix * g * labels * labels : nullptr,
                               threads};
        finite &= native<T>().edge_sum(args);
    }
    return finite;
}

template <typename T>
bool table_sum(In<T, 3> x, Maybe<T, 3> unary, In<T, 4> tables, Firsts first, Ends neighbor, Ends slot, Out<T, 3> out,
               int threads) {
    const std::size_t images = x.shape(0), n = x.shape(1), labels = x.shape(2), m = tables.shape(1);
    const Adjacency graph = graph_of(first, neighbor, slot, n);
    require(labels >= 1 && threads >= 1, "labels and threads");
    require(m == static_cast<std::size_t>(graph.edges) && tables.shape(2) == labels && tables.shape(3) == labels,
            "one table per edge");
    require_same(x, out, "output shape");
    if (unary) require_same(x, *unary, "unary shape");
    const std::size_t own = images_of(tables, images);
    nb::gil_scoped_release release;
    bool finite = true;
    for (std::size_t g = 0; g < images; ++g) {
        const std::size_t at = g * n * labels;
        const TableArgs<T> args{graph,
                                x.data() + at,
                                unary ? unary->data() + at : nullptr,
                                out.data() + at,
                                static_cast<std::int64_t>(labels),
                                tables.data() + own * g * m * labels * labels,
                                threads};
        finite &= native<T>().table_sum(args);
    }
    return finite;
}

template <typename T>
PairArgs<T> pairs(const In<T, 3>& a, const In<T, 3>& b, const In<std::int32_t, 2>& edges, T* out, double turned,
                  int threads) {
    require(threads >= 1 && edges.shape(1) == 2, "two nodes per edge, threads >= 1");
    require_same(a, b, "shapes");
    const std::size_t n = a.shape(1);
    for (std::size_t s = 0; s < 2 * edges.shape(0); ++s)
        require(edges.data()[s] >= 0 && static_cast<std::size_t>(edges.data()[s]) < n, "nodes of edges");
    return {static_cast<std::int64_t>(edges.shape(0)), edges.data(),           a.data(), b.data(), out,
            static_cast<std::int64_t>(a.shape(2)),     static_cast<T>(turned), threads};
}

template <typename T>
void edge_inner(In<T, 3> a, In<T, 3> b, In<std::int32_t, 2> edges, double turned, Out<T, 2> out, int threads) {
    PairArgs<T> args = pairs(a, b, edges, out.data(), turned, threads);
    require(out.shape(0) == a.shape(0) && out.shape(1) == edges.shape(0), "output shape");
    nb::gil_scoped_release release;
    for (std::size_t g = 0; g < a.shape(0); ++g) {
        native<T>().edge_inner(args);
        args.a += a.shape(1) * a.shape(2);
        args.b += a.shape(1) * a.shape(2);
        args.out += edges.shape(0);
    }
}

template <typename T> void edge_outer(In<T, 3> a, In<T, 3> b, In<std::int32_t, 2> edges, Out<T, 4> out, int threads) {
    PairArgs<T> args = pairs(a, b, edges, out.data(), 1.0, threads);
    const std::size_t labels = a.shape(2);
    require(out.shape(0) == a.shape(0) && out.shape(1) == edges.shape(0) && out.shape(2) == labels &&
                out.shape(3) == labels,
            "output shape");
    nb::gil_scoped_release release;
    for (std::size_t g = 0; g < a.shape(0); ++g) {
        native<T>().edge_outer(args);
        args.a += a.shape(1) * labels;
        args.b += a.shape(1) * labels;
        args.out += edges.shape(0) * labels * labels;
    }
}

template <typename T>
void graph_descent(In<T, 3> unary, In<T, 3> x, Maybe<T, 2> weight, Maybe<T, 3> matrix, Maybe<T, 4> tables, Firsts first,
                   Ends neighbor, Ends slot, std::int64_t max_sweeps, std::int64_t restarts, std::uint64_t seed,
                   Out<std::int64_t, 2> out, int threads) {
    const std::size_t images = x.shape(0), n = x.shape(1), labels = x.shape(2);
    const Adjacency graph = graph_of(first, neighbor, slot, n);
    const auto m = static_cast<std::size_t>(graph.edges);
    require(n >= 1 && labels >= 1 && threads >= 1 && max_sweeps >= 1 && restarts >= 0, "sizes");
    require_same(x, unary, "unary shape");
    require(weight.has_value() != tables.has_value() && !(matrix && tables), "weights or tables");
    require(out.shape(0) == images && out.shape(1) == n, "output shape");
    require(!tables || (tables->shape(1) == m && tables->shape(2) == labels && tables->shape(3) == labels), "tables");
    require(!matrix || (matrix->shape(1) == labels && matrix->shape(2) == labels), "matrix");
    const std::size_t given = weight ? weight->shape(1) : 1;
    require(given == 1 || given == m, "one weight per edge, or one for all");
    const std::size_t own_weight = weight ? images_of(*weight, images) : 0;
    const std::size_t own_matrix = matrix ? images_of(*matrix, images) : 0;
    const std::size_t own_table = tables ? images_of(*tables, images) : 0;
    nb::gil_scoped_release release;
    std::exception_ptr problem;
    Stop stop;
    for_next(threads, static_cast<std::int64_t>(images), [&](std::int64_t g) {
        const DescentArgs<T> args{graph,
                                  static_cast<std::int64_t>(labels),
                                  unary.data() + g * n * labels,
                                  x.data() + g * n * labels,
                                  weight ? weight->data() + own_weight * g * given : nullptr,
                                  given == 1,
                                  matrix ? matrix->data() + own_matrix * g * labels * labels : nullptr,
                                  tables ? tables->data() + own_table * g * m * labels * labels : nullptr,
                                  max_sweeps,
                                  restarts,
                                  seed,
                                  out.data() + g * n,
                                  &stop};
        try {
            descend(args);
        } catch (...) {  // no memory; the exception must not leave the parallel region
            const Alone alone;
            problem = std::current_exception();
        }
    });
    if (problem) std::rethrow_exception(problem);
    stop.check();
}

// The result of a run with a deadline.
template <typename F> auto timed(double seconds, F run) {
    nb::gil_scoped_release release;
    Stop stop;
    Deadline deadline(seconds, &stop);
    auto found = run(deadline);
    stop.check();
    return found;
}

// A model of one image with its arrays, which stay alive as long as it does.
class HeldModel {
  public:
    HeldModel(In<double, 2> unary, int shape, Maybe<double, 1> weight, Maybe<double, 2> matrix, Maybe<double, 3> tables,
              double truncation, Firsts first, Ends neighbor, Ends slot)
        : unary_(unary), weight_(weight), matrix_(matrix), tables_(tables), first_(first), neighbor_(neighbor),
          slot_(slot) {
        const std::size_t n = unary.shape(0), labels = unary.shape(1);
        require(n >= 1 && labels >= 1, "nodes and labels");
        const Adjacency graph = graph_of(first, neighbor, slot, n);
        const auto m = static_cast<std::size_t>(graph.edges);
        for (std::size_t i = 0; i < n; ++i) {
            require(graph.first[i] <= graph.first[i + 1], "starts");
            bool allowed = false;
            for (std::size_t s = 0; s < labels; ++s) allowed |= unary.data()[i * labels + s] < kInfinity;
            require(allowed, "a label that is not forbidden for each node");
            for (std::int64_t k = graph.first[i]; k < graph.first[i + 1]; ++k)
                require(graph.neighbor[k] >= 0 && static_cast<std::size_t>(graph.neighbor[k]) < n &&
                            static_cast<std::size_t>(graph.neighbor[k]) != i && graph.slot[k] >= 0 &&
                            static_cast<std::size_t>(graph.slot[k]) < 2 * m,
                        "nodes of edges");
        }
        const auto kind = static_cast<EdgeShape>(shape);
        require(shape >= 0 && shape <= static_cast<int>(EdgeShape::quadratic), "shape");
        require(tables.has_value() == (kind == EdgeShape::tables), "tables");
        require(weight.has_value() == !tables.has_value(), "weights or tables");
        require(matrix.has_value() == (kind != EdgeShape::potts && kind != EdgeShape::tables), "matrix");
        require(!weight || weight->shape(0) == 1 || weight->shape(0) == m, "one weight per edge, or one for all");
        require(!matrix || (matrix->shape(0) == labels && matrix->shape(1) == labels), "a square matrix over labels");
        require(!tables || (tables->shape(0) == m && tables->shape(1) == labels && tables->shape(2) == labels),
                "one table per edge");
        model_ = {graph,
                  static_cast<std::int64_t>(labels),
                  unary.data(),
                  kind,
                  weight ? weight->data() : nullptr,
                  weight && weight->shape(0) == 1,
                  matrix ? matrix->data() : nullptr,
                  tables ? tables->data() : nullptr,
                  truncation};
    }

    std::tuple<std::int64_t, double, double, bool> trws(Out<double, 2> messages, std::int64_t iterations,
                                                        double seconds, double tolerance, Out<std::int64_t, 1> labels,
                                                        Out<double, 1> bounds, int threads,
                                                        std::optional<Out<double, 2>> forward) const {
        require(size(messages, 0) == model_.graph.edges && size(messages, 1) == model_.labels, "messages");
        if (forward) require(size(*forward, 0) == model_.graph.edges && size(*forward, 1) == model_.labels, "forward");
        require(iterations >= 0 && size(bounds, 0) >= iterations, "bounds");
        require(threads >= 1, "threads >= 1");
        check_labels(labels);
        nb::gil_scoped_release release;
        Stop stop;
        const TrwsResult found = fwcrf::trws({model_, messages.data(), iterations, seconds, tolerance, labels.data(),
                                              bounds.data(), &stop, forward ? forward->data() : nullptr, threads});
        stop.check();
        return {found.iterations, found.energy, found.bound, found.stationary};
    }

    // None if the model is not submodular with two labels; NaN if the time is over.
    std::optional<double> cut(double seconds, Out<std::int64_t, 1> labels) const {
        check_labels(labels);
        return timed(seconds, [&](Deadline& d) -> std::optional<double> {
            std::vector<std::uint8_t> flipped(model_.graph.n);
            if (model_.labels != 2 || !submodular_flips(model_, flipped.data())) return std::nullopt;
            return binary_cut(model_, flipped.data(), labels.data(), d);
        });
    }

    double typical_cost() const { return fwcrf::typical_cost(model_); }

    double energy(In<std::int64_t, 1> labels) const {
        check_labels(labels);
        return energy_of(model_, labels.data());
    }

    std::int64_t expand(std::int64_t cycles, double seconds, Out<std::int64_t, 1> labels) const {
        check_labels(labels);
        return timed(seconds, [&](Deadline& d) { return fwcrf::expand(model_, cycles, labels.data(), d); });
    }

    // None if the tables would be too large; NaN if the time is over.
    std::optional<double> eliminate(double most, double total, double seconds, Out<std::int64_t, 1> labels) const {
        require(most <= 1e12, "entries of a table");
        check_labels(labels);
        return timed(seconds, [&](Deadline& d) -> std::optional<double> {
            std::vector<std::int32_t> nodes(model_.graph.n);
            for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<std::int32_t>(i);
            Elimination elimination(model_);
            if (!elimination.plan(nodes, most, total, false)) return std::nullopt;
            return elimination.run(labels.data(), d);
        });
    }

    double balls(std::int64_t count, std::int64_t nodes, double entries, std::uint64_t seed, double seconds,
                 Out<std::int64_t, 1> labels) const {
        require(nodes >= 1 && entries >= 1 && entries <= 1e12, "sizes of the regions");
        check_labels(labels);
        return timed(seconds,
                     [&](Deadline& d) { return exact_balls({model_, count, nodes, entries, seed, labels.data()}, d); });
    }

    // Whether all labels were searched, and a limit of the rounding errors.
    std::tuple<bool, double> branch(std::int64_t sweeps, std::int64_t visits, double margin, double seconds,
                                    Out<std::int64_t, 1> labels) const {
        require(sweeps >= 1, "sweeps");
        check_labels(labels);
        return timed(seconds, [&](Deadline& d) -> std::tuple<bool, double> {
            std::vector<std::int32_t> nodes(model_.graph.n);
            for (std::size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<std::int32_t>(i);
            const BranchResult found = fwcrf::branch({model_, nodes, sweeps, visits, margin, labels.data()}, d);
            return {found.complete, found.error};
        });
    }

    double patches(std::int64_t count, std::int64_t nodes, std::int64_t visits, std::uint64_t seed, double seconds,
                   Out<std::int64_t, 1> labels) const {
        require(nodes >= 2, "sizes of the patches");
        check_labels(labels);
        return timed(seconds, [&](Deadline& d) {
            return exact_patches({model_, count, nodes, visits, seed, labels.data()}, d);
        });
    }

    bool propagate(In<std::uint8_t, 3> forbidden, Out<std::uint8_t, 2> allowed) const {
        require(size(allowed, 0) == model_.graph.n && size(allowed, 1) == model_.labels, "allowed");
        const ForbiddenPairs pairs = pairs_of(forbidden);
        nb::gil_scoped_release release;
        return fwcrf::propagate(pairs, allowed.data());
    }

    std::int64_t repair(In<std::uint8_t, 3> forbidden, std::int64_t moves, std::uint64_t seed, double seconds,
                        Out<std::int64_t, 1> labels) const {
        check_labels(labels);
        const ForbiddenPairs pairs = pairs_of(forbidden);
        return timed(seconds,
                     [&](Deadline& d) { return fwcrf::repair({model_, pairs, moves, seed, labels.data()}, d); });
    }

    double take_better_parts(In<std::int64_t, 1> other, Out<std::int64_t, 1> labels) const {
        check_labels(other);
        check_labels(labels);
        nb::gil_scoped_release release;
        return fwcrf::take_better_parts(model_, other.data(), labels.data());
    }

    bool sweep(In<double, 1> weights, In<double, 1> steps, double seconds, Out<double, 2> x) const {
        require(weights.shape(0) == steps.shape(0), "a weight and a step per sweep");
        require(size(x, 0) == model_.graph.n && size(x, 1) == model_.labels, "x");
        return timed(seconds, [&](Deadline& d) {
            return fwcrf::sweep({model_, size(weights, 0), weights.data(), steps.data(), x.data()}, d);
        });
    }

    void kick(std::int64_t restarts, std::uint64_t seed, double seconds, Out<std::int64_t, 1> labels) const {
        check_labels(labels);
        nb::gil_scoped_release release;
        Stop stop;
        descend(DescentArgs<double>{model_.graph, model_.labels, model_.unary, nullptr, model_.weight, model_.uniform,
                                    model_.matrix, model_.tables, 1000, restarts, seed, labels.data(), &stop, seconds});
        stop.check();
    }

  private:
    ForbiddenPairs pairs_of(const In<std::uint8_t, 3>& forbidden) const {
        const bool uniform = size(forbidden, 0) == 1;
        require(uniform || size(forbidden, 0) == model_.graph.edges, "one table per edge, or one for all");
        require(size(forbidden, 1) == model_.labels && size(forbidden, 2) == model_.labels, "pairs of labels");
        return {model_.graph, model_.labels, forbidden.data(), uniform};
    }

    template <typename A> void check_labels(const A& labels) const {
        require(size(labels, 0) == model_.graph.n, "one label per node");
        for (std::int64_t i = 0; i < model_.graph.n; ++i)
            require(labels.data()[i] >= 0 && labels.data()[i] < model_.labels, "labels");
    }

    In<double, 2> unary_;
    Maybe<double, 1> weight_;
    Maybe<double, 2> matrix_;
    Maybe<double, 3> tables_;
    Firsts first_;
    Ends neighbor_, slot_;
    GraphModel model_{};
};

template <typename T> void bind(nb::module_& m) {
    m.def("edge_sum", &edge_sum<T>, "x"_a.noconvert(), "unary"_a.noconvert().none(), "weight"_a.noconvert(),
          "matrix"_a.noconvert().none(), "potts"_a, "turned"_a, "first"_a.noconvert(), "neighbor"_a.noconvert(),
          "slot"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("table_sum", &table_sum<T>, "x"_a.noconvert(), "unary"_a.noconvert().none(), "tables"_a.noconvert(),
          "first"_a.noconvert(), "neighbor"_a.noconvert(), "slot"_a.noconvert(), "out"_a.noconvert(), "threads"_a);
    m.def("edge_inner", &edge_inner<T>, "a"_a.noconvert(), "b"_a.noconvert(), "edges"_a.noconvert(), "turned"_a,
          "out"_a.noconvert(), "threads"_a);
    m.def("edge_outer", &edge_outer<T>, "a"_a.noconvert(), "b"_a.noconvert(), "edges"_a.noconvert(),
          "out"_a.noconvert(), "threads"_a);
    m.def("graph_descent", &graph_descent<T>, "unary"_a.noconvert(), "x"_a.noconvert(), "weight"_a.noconvert().none(),
          "matrix"_a.noconvert().none(), "tables"_a.noconvert().none(), "first"_a.noconvert(), "neighbor"_a.noconvert(),
          "slot"_a.noconvert(), "max_sweeps"_a, "restarts"_a, "seed"_a, "out"_a.noconvert(), "threads"_a);
}

}  // namespace

void bind_graphs(nb::module_& m) {
    m.def("adjacency", &adjacency, "edges"_a.noconvert(), "first"_a.noconvert(), "neighbor"_a.noconvert(),
          "slot"_a.noconvert());
    m.def("levels", &levels, "first"_a.noconvert(), "neighbor"_a.noconvert(), "level"_a.noconvert());
    m.def("selected_inverse", &inverse_at_factors, "first"_a.noconvert(), "row"_a.noconvert(), "factor"_a.noconvert(),
          "pivot"_a.noconvert(), "inverse"_a.noconvert(), "diagonal"_a.noconvert());
    nb::class_<HeldModel>(m, "GraphModel")
        .def(nb::init<In<double, 2>, int, Maybe<double, 1>, Maybe<double, 2>, Maybe<double, 3>, double, Firsts, Ends,
                      Ends>(),
             "unary"_a.noconvert(), "shape"_a, "weight"_a.noconvert().none(), "matrix"_a.noconvert().none(),
             "tables"_a.noconvert().none(), "truncation"_a, "first"_a.noconvert(), "neighbor"_a.noconvert(),
             "slot"_a.noconvert())
        .def("trws", &HeldModel::trws, "messages"_a.noconvert(), "iterations"_a, "seconds"_a, "tolerance"_a,
             "labels"_a.noconvert(), "bounds"_a.noconvert(), "threads"_a, "forward"_a.noconvert().none() = nb::none())
        .def("cut", &HeldModel::cut, "seconds"_a, "labels"_a.noconvert())
        .def("typical_cost", &HeldModel::typical_cost)
        .def("energy", &HeldModel::energy, "labels"_a.noconvert())
        .def("expand", &HeldModel::expand, "cycles"_a, "seconds"_a, "labels"_a.noconvert())
        .def("eliminate", &HeldModel::eliminate, "most"_a, "total"_a, "seconds"_a, "labels"_a.noconvert())
        .def("balls", &HeldModel::balls, "count"_a, "nodes"_a, "entries"_a, "seed"_a, "seconds"_a,
             "labels"_a.noconvert())
        .def("branch", &HeldModel::branch, "sweeps"_a, "visits"_a, "margin"_a, "seconds"_a, "labels"_a.noconvert())
        .def("patches", &HeldModel::patches, "count"_a, "nodes"_a, "visits"_a, "seed"_a, "seconds"_a,
             "labels"_a.noconvert())
        .def("propagate", &HeldModel::propagate, "forbidden"_a.noconvert(), "allowed"_a.noconvert())
        .def("repair", &HeldModel::repair, "forbidden"_a.noconvert(), "moves"_a, "seed"_a, "seconds"_a,
             "labels"_a.noconvert())
        .def("take_better_parts", &HeldModel::take_better_parts, "other"_a.noconvert(), "labels"_a.noconvert())
        .def("sweep", &HeldModel::sweep, "weights"_a.noconvert(), "steps"_a.noconvert(), "seconds"_a, "x"_a.noconvert())
        .def("kick", &HeldModel::kick, "restarts"_a, "seed"_a, "seconds"_a, "labels"_a.noconvert());
    bind<float>(m);
    bind<double>(m);
}

}  // namespace fwcrf
