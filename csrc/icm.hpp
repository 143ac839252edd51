// Labels of low energy on a sparse graph by moving one node at a time.
#pragma once

#include "kernels.hpp"

#include <cstdint>

namespace fwcrf {

template <typename T> struct DescentArgs {
    Adjacency graph;
    std::int64_t labels;
    const T* unary;                  // (n, labels); infinite where a label is forbidden
    const T* x;                      // (n, labels): where to start
    // What an edge from i to j costs: table(s, t), or weight times matrix(s, t), or weight [s != t].
    const T* weight;                 // (edges), or one for all; null with tables
    bool uniform;
    const T* matrix;                 // (labels, labels) or null
    const T* tables;                 // (edges, labels, labels) or null
    std::int64_t max_sweeps;
    std::int64_t restarts;
    std::uint64_t seed;
    std::int64_t* out;               // (n)
};

template <typename T> void descend(const DescentArgs<T>& args);

}  // namespace fwcrf
