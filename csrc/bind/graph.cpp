// Sparse graphs.
#include "bind/arrays.hpp"
#include "graph/icm.hpp"

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

Adjacency graph_of(const Firsts& first, const Ends& neighbor, const Ends& slot, std::size_t n) {
    require(first.shape(0) == n + 1, "one start per node");
    require(neighbor.shape(0) == slot.shape(0) && neighbor.shape(0) % 2 == 0, "two ends per edge");
    require(first.data()[0] == 0 && first.data()[n] == static_cast<std::int64_t>(slot.shape(0)), "starts");
    return {static_cast<std::int64_t>(n), static_cast<std::int64_t>(slot.shape(0) / 2), first.data(), neighbor.data(),
            slot.data()};
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
#ifdef _OPENMP
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
#endif
    for (std::int64_t g = 0; g < static_cast<std::int64_t>(images); ++g) {
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
#ifdef _OPENMP
#pragma omp critical
#endif
            problem = std::current_exception();
        }
    }
    if (problem) std::rethrow_exception(problem);
    stop.check();
}

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
    bind<float>(m);
    bind<double>(m);
}

}  // namespace fwcrf
