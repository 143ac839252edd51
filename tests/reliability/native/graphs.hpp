// Sparse graphs: cases of the driver.
#pragma once

#include <limits>

#include "bind/dispatch.hpp"
#include "choices.hpp"
#include "graph/balls.hpp"
#include "graph/branch.hpp"
#include "graph/constraints.hpp"
#include "graph/crossover.hpp"
#include "graph/elimination.hpp"
#include "graph/expansion.hpp"
#include "graph/icm.hpp"
#include "graph/inverse.hpp"
#include "graph/maxflow.hpp"
#include "graph/sequential.hpp"
#include "graph/trws.hpp"

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

// Entries of an inverse, with the columns of a band matrix: exact where the factor is the identity.
inline void inverse(Choices& c) {
    const std::int64_t n = c.integer(1, 30), band = c.integer(0, 6);
    Array<std::int64_t> first(n + 1, 0);
    for (std::int64_t j = 0; j < n; ++j) first[j + 1] = first[j] + std::min(band, n - 1 - j);
    const std::int64_t entries = first[n];
    Array<std::int32_t> row(entries);
    for (std::int64_t j = 0; j < n; ++j)
        for (std::int64_t e = first[j]; e < first[j + 1]; ++e) row[e] = static_cast<std::int32_t>(j + 1 + e - first[j]);
    auto factor = numbers<double>(c, entries, 1.0), pivot = numbers<double>(c, n, 1e3);
    const bool identity = c.flag();
    for (std::int64_t e = 0; e < entries; ++e)
        if (identity) factor[e] = 0;
    for (std::int64_t j = 0; j < n; ++j) pivot[j] = 1 + std::fabs(pivot[j]);
    Array<double> at(entries), diagonal(n);
    selected_inverse({n, first.get(), row.get(), factor.get(), pivot.get(), at.get(), diagonal.get()});
    for (std::int64_t j = 0; j < n && identity; ++j)
        if (diagonal[j] != 1 / pivot[j]) found("the inverse of a diagonal matrix");
}

// The MAP methods on a random model: labels are labels, no move raises the energy, and no bound is above it.
inline void map_methods(Choices& c) {
    const std::int64_t n = c.integer(1, 25), labels = c.integer(1, 6);
    const std::int64_t m = n > 1 ? c.integer(0, c.integer(0, 3) ? 30 : 120) : 0;
    Array<std::int32_t> ends(2 * m), neighbor(2 * m), slot(2 * m);
    Array<std::int64_t> first(n + 1, 0);
    for (std::int64_t e = 0; e < m; ++e) {
        ends[2 * e] = c.any(0, static_cast<int>(n) - 1);
        ends[2 * e + 1] = static_cast<std::int32_t>((ends[2 * e] + c.any(1, static_cast<int>(n) - 1)) % n);
    }
    std::int64_t at = 0;
    for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t s = 0; s < 2 * m; ++s)
            if (ends[s] == i) {
                neighbor[at] = ends[s ^ 1];
                slot[at++] = static_cast<std::int32_t>(s);
            }
        first[i + 1] = at;
    }
    const auto shape = static_cast<EdgeShape>(c.integer(0, 4));
    const bool uniform = c.flag(), tabled = shape == EdgeShape::tables,
               distance = shape == EdgeShape::linear || shape == EdgeShape::quadratic;
    auto unary = numbers<double>(c, n * labels, 1e3), weight = numbers<double>(c, uniform ? 1 : m, 1e2),
         matrix = numbers<double>(c, labels * labels, 1e2), tables = numbers<double>(c, m * labels * labels, 1e2);
    const double truncation = c.flag() ? kInfinity : c.integer(0, 5);
    if (distance) {
        for (std::int64_t e = 0; e < (uniform ? 1 : m); ++e) weight[e] = weight[e] < 0 ? -weight[e] : weight[e];
        for (std::int64_t s = 0; s < labels; ++s)
            for (std::int64_t t = 0; t < labels; ++t) {
                const double apart = static_cast<double>(s > t ? s - t : t - s);
                const double cost = shape == EdgeShape::linear ? apart : apart * apart;
                matrix[s * labels + t] = cost < truncation ? cost : truncation;
            }
    }
    if (c.flag())
        for (std::int64_t i = 0; i < n * labels; ++i)
            if (c.any(0, 3) == 0 && i % labels) unary[i] = kInfinity;
    const GraphModel model{{n, m, first.get(), neighbor.get(), slot.get()},
                           labels,
                           unary.get(),
                           shape,
                           tabled ? nullptr : weight.get(),
                           uniform,
                           tabled || shape == EdgeShape::potts ? nullptr : matrix.get(),
                           tabled ? tables.get() : nullptr,
                           truncation};
    double small = 1e-9;
    for (std::int64_t i = 0; i < n * labels; ++i)
        if (unary[i] < kInfinity) small += 1e-12 * std::abs(unary[i]);
    for (std::int64_t e = 0; e < m; ++e)
        for (std::int64_t s = 0; s < labels; ++s)
            for (std::int64_t t = 0; t < labels; ++t) small += 1e-12 * std::abs(model.cost(e, s, t));
    Deadline deadline(1e9, nullptr);
    Array<std::int64_t> best(n, 0), other(n);
    for (std::int64_t i = 0; i < n; ++i) other[i] = 0;
    double energy = energy_of(model, best.get());
    const auto check = [&](const char* method) {
        for (std::int64_t i = 0; i < n; ++i)
            if (best[i] < 0 || best[i] >= labels) found("a label that is none");
        const double now = energy_of(model, best.get());
        if (!(now <= energy + small)) found(method);
        energy = now;
    };
    typical_cost(model);
    Array<double> messages(m * labels, 0), bounds(8), x(n * labels), weights(3, 0.5), steps(3, 0.7);
    const std::int64_t iterations = c.integer(1, 8);
    Array<std::int64_t> by_levels(n, 0);
    const TrwsResult trees = trws({model, messages.get(), iterations, 1e9, 0.0, best.get(), bounds.get(), nullptr});
    check("TRW-S raised the energy");
    if (!(trees.bound <= energy + small)) found("a bound above an energy");
    for (std::int64_t k = 0; k < m * labels; ++k) messages[k] = 0;
    const TrwsResult threaded = trws({model, messages.get(), iterations, 1e9, 0.0, by_levels.get(), bounds.get(),
                                      nullptr, nullptr, c.integer(2, 3), 1});
    bool same = threaded.bound == trees.bound && threaded.energy == trees.energy;
    for (std::int64_t i = 0; i < n; ++i) same &= by_levels[i] == best[i];
    if (!same) found("TRW-S depends on the number of threads");
    exact_balls({model, c.integer(1, 4), c.integer(1, 12), 64.0, c.next(), best.get()}, deadline);
    check("balls raised the energy");
    expand(model, 2, best.get(), deadline);
    check("an expansion raised the energy");
    take_better_parts(model, other.get(), best.get());
    check("a crossover raised the energy");
    Array<std::uint8_t> flipped(n);
    if (labels == 2 && submodular_flips(model, flipped.get())) {
        binary_cut(model, flipped.get(), best.get(), deadline);
        check("a cut raised the energy");
    }
    exact_patches({model, c.integer(1, 3), c.integer(2, 12), c.integer(1, 300), c.next(), best.get()}, deadline);
    check("patches raised the energy");
    Elimination elimination(model);
    std::vector<std::int32_t> nodes(n);
    for (std::int64_t i = 0; i < n; ++i) nodes[i] = static_cast<std::int32_t>(i);
    const BranchResult searched = branch({model, nodes, c.integer(1, 5), 2000, 0.0, best.get()}, deadline);
    check("branch and bound raised the energy");
    if (searched.complete && energy + searched.error + small < trees.bound) found("not the least energy");
    if (elimination.plan(nodes, 2e4, 2e5, false)) {
        const double before = energy, value = elimination.run(best.get(), deadline);
        check("elimination raised the energy");
        if (!(value >= trees.bound - small && value <= energy + small)) found("not the least energy");
        if (searched.complete && !(value >= before - searched.error - small)) found("branch and bound missed labels");
    }
    const bool one = c.flag();
    Array<std::uint8_t> pairs((one ? 1 : m) * labels * labels), allowed(n * labels);
    for (std::int64_t k = 0; k < (one ? 1 : m) * labels * labels; ++k) pairs[k] = c.any(0, 3) == 0;
    for (std::int64_t i = 0; i < n * labels; ++i) allowed[i] = unary[i] < kInfinity;
    const ForbiddenPairs forbidden{model.graph, labels, pairs.get(), one};
    const bool possible = propagate(forbidden, allowed.get());
    const std::int64_t left = repair({model, forbidden, 200, c.next(), best.get()}, deadline);
    std::int64_t conflicts = 0;
    for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t k = first[i]; k < first[i + 1]; ++k)
            conflicts += !(slot[k] & 1) && forbidden.at(slot[k], best[i], best[neighbor[k]]);
    if (conflicts != left) found("conflicts are counted wrongly");
    for (std::int64_t i = 0; i < n && left == 0; ++i)
        if (!possible || !allowed[i * labels + best[i]]) found("propagation took a label of an allowed labelling");
    for (std::int64_t i = 0; i < n * labels; ++i) x[i] = 1.0 / static_cast<double>(labels);
    sweep({model, 3, weights.get(), steps.get(), x.get()}, deadline);
    if (!x.finite()) found("a sweep is not finite");
}

}  // namespace fwcrf
