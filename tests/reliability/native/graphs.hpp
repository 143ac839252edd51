// Sparse graphs: cases of the driver.
#pragma once

#include <limits>

#include "bind/dispatch.hpp"
#include "choices.hpp"
#include "graph/icm.hpp"

namespace fwcrf {

template <typename T> void graph(Choices& c) {
    const std::int64_t n = c.integer(1, 30), m = c.integer(0, c.integer(0, 3) ? 20 : 150), labels = c.integer(1, 20);
    const int threads = c.integer(1, 2);
    Array<std::int32_t> ends(2 * m), neighbor(2 * m), slot(2 * m);
    Array<std::int64_t> first(n + 1, 0);
    for (std::int64_t s = 0; s < 2 * m; ++s) ends[s] = c.any(0, static_cast<int>(n) - 1);  // loops and repetitions too
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t s = 0; s < 2 * m; ++s)
            if (ends[s] == i) {
                neighbor[at] = ends[s ^ 1];
                slot[at++] = static_cast<std::int32_t>(s);
            }
        first[i + 1] = at;
    }
    const Adjacency adjacency{n, m, first.get(), neighbor.get(), slot.get()};
    const bool uniform = c.flag();
    auto x = numbers<T>(c, n * labels, 1e6), u = numbers<T>(c, n * labels, 1e6),
         weight = numbers<T>(c, uniform ? 1 : m, 1e3);
    auto matrix = numbers<T>(c, labels * labels, 1e3), tables = numbers<T>(c, m * labels * labels, 1e3);
    // Only at a node that has an edge: x of isolated nodes is not read.
    const bool spoilt = m && c.integer(0, 7) == 0;
    if (spoilt) x[ends[0] * labels + c.any(0, static_cast<int>(labels) - 1)] = std::numeric_limits<T>::quiet_NaN();
    const T* unary = c.flag() ? u.get() : nullptr;
    const int kind = c.integer(0, 2);
    Array<T> sum(n * labels), from_tables(n * labels), inner(m), outer(m * labels * labels);
    const EdgeArgs<T> edges{adjacency,
                            x.get(),
                            unary,
                            sum.get(),
                            labels,
                            weight.get(),
                            uniform,
                            T(c.flag() ? 1 : -1),
                            static_cast<Labels>(kind),
                            kind == 2 ? matrix.get() : nullptr,
                            threads};
    const TableArgs<T> tabled{adjacency, x.get(), unary, from_tables.get(), labels, tables.get(), threads};
    PairArgs<T> pair{m, ends.get(), x.get(), u.get(), inner.get(), labels, T(1), threads};
    bool seen, seen_too;
    seen = native<T>().edge_sum(edges);
    seen_too = native<T>().table_sum(tabled);
    native<T>().edge_inner(pair);
    pair.out = outer.get();
    native<T>().edge_outer(pair);
    if (seen == spoilt || seen_too == spoilt) found("whether the graph's x is finite was not seen");
    if (spoilt) return;
    if (!sum.finite() || !from_tables.finite() || !inner.finite() || !outer.finite())
        found("a sum over edges is not finite");

    if (c.flag())  // forbidden labels, but never all of a node
        for (std::int64_t i = 0; i < n * labels; ++i)
            if (c.any(0, 3) == 0 && i % labels) u[i] = std::numeric_limits<T>::infinity();
    Array<std::int64_t> out(n);
    const bool by_table = kind == 0;
    const DescentArgs<T> descent{adjacency,
                                 labels,
                                 u.get(),
                                 x.get(),
                                 by_table ? nullptr : weight.get(),
                                 uniform,
                                 kind == 2 ? matrix.get() : nullptr,
                                 by_table ? tables.get() : nullptr,
                                 c.integer(1, 20),
                                 c.integer(0, 3),
                                 c.next(),
                                 out.get()};
    descend(descent);
    for (std::int64_t i = 0; i < n; ++i)
        if (out[i] < 0 || out[i] >= labels) found("a label that is none");
}

}  // namespace fwcrf
