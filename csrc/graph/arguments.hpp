// Arguments of the functions on sparse graphs.
#pragma once

#include <cstdint>

namespace fwcrf {

// Ends of edges, grouped by node: first[i] to first[i + 1] belong to node i.
struct Adjacency {
    std::int64_t n, edges;
    const std::int64_t* first;     // (n + 1)
    const std::int32_t* neighbor;  // (2 edges)
    const std::int32_t* slot;      // (2 edges): twice the edge, plus 1 at its second node
};

// out = unary + (K x) M, where K_ij is the weight of the edge from i to j, and K_ji = turned K_ij.
enum class Labels : int { plain = 0, potts = 1, matrix = 2 };
template <typename T> struct EdgeArgs {
    Adjacency graph;
    const T* x;      // (n, channels)
    const T* unary;  // (n, channels) or null
    T* out;          // (n, channels)
    std::int64_t channels;
    const T* weight;  // (edges), or one for all
    bool uniform;
    T turned;
    Labels labels;    // M: the identity, 1 - identity, or `matrix`
    const T* matrix;  // (channels, channels) or null
    int threads;
};

// out_i = unary_i + sum of T_ij x_j: the table of an edge at its first node, its transpose at the second node.
template <typename T> struct TableArgs {
    Adjacency graph;
    const T* x;      // (n, channels)
    const T* unary;  // (n, channels) or null
    T* out;          // (n, channels)
    std::int64_t channels;
    const T* tables;  // (edges, channels, channels)
    int threads;
};

// For each edge (i, j): <a_i, b_j> + turned <a_j, b_i>, or the matrix a_i b_j' + b_i a_j'.
template <typename T> struct PairArgs {
    std::int64_t edges;
    const std::int32_t* ends;  // (edges, 2)
    const T* a;                // (n, channels)
    const T* b;                // (n, channels)
    T* out;                    // (edges) or (edges, channels, channels)
    std::int64_t channels;
    T turned;
    int threads;
};

}  // namespace fwcrf
