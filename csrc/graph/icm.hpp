// Labels of low energy on a sparse graph, by changing one node at a time.
#pragma once

#include "graph/arguments.hpp"
#include "runtime/stop.hpp"

namespace fwcrf {

template <typename T> struct DescentArgs {
    Adjacency graph;
    std::int64_t labels;
    const T* unary;  // (n, labels); infinite for a forbidden label
    const T* x;      // (n, labels): the start; null to start from the labels in `out`
    // The cost of an edge from i to j: table(s, t), or weight matrix(s, t), or weight [s != t].
    const T* weight;  // (edges), or (1) if uniform; null with tables
    bool uniform;
    const T* matrix;  // (labels, labels) or null
    const T* tables;  // (edges, labels, labels) or null
    std::int64_t max_sweeps;
    std::int64_t restarts;
    std::uint64_t seed;
    std::int64_t* out;       // (n)
    Stop* stop = nullptr;    // may end the run, with `out` as it was
    double seconds = 1e300;  // after which no more regions are perturbed
};

template <typename T> void descend(const DescentArgs<T>& args);

}  // namespace fwcrf
