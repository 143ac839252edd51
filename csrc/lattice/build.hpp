// The permutohedral lattice of a set of points: the vertices around each point, and the neighbours of each vertex.
// Built once per image, then read by every filter.
#pragma once

#include "maps/features.hpp"
#include "runtime/block_allocator.hpp"
#include "runtime/stop.hpp"

#include <cstdint>
#include <vector>

namespace fwcrf {

template <typename T> struct Points {
    const T* features;   // (batch * n, d), in standard deviations; null if they come from `grid`
    std::int64_t batch;  // images; no two images share a vertex
    std::int64_t n;      // points per image
    int d;
    bool single;  // embedded in float arithmetic; only for float features
    const GridFeatures<T>* grid = nullptr;
    std::int64_t before = 0;  // points of `grid` before the first one

    // The features of `count` points from number i on; `room` has space for them.
    const T* rows(std::int64_t i, std::int64_t count, T* room) const {
        if (features) return features + i * d;
        grid->rows(before + i, count, room);
        return room;
    }
    // The points of image b.
    Points image(std::int64_t b) const {
        return {features ? features + b * n * d : nullptr, 1, n, d, single, grid, before + b * n};
    }
};

// Neighbours of every vertex, (d + 1, vertices, 2): one step down and one step up each axis, or `vertices` if the
// neighbour is absent.
struct Graph {
    std::int64_t vertices = 0;
    std::vector<std::int32_t, BlockAllocator<std::int32_t>> neighbors;
};

// Bounds on the first d lattice quotients of all points, from bounds on their d features. Throws std::domain_error if a
// double does not resolve the cells of the farthest point.
struct Quotients {
    std::vector<std::int64_t> low, high;
};
Quotients quotient_range(const std::vector<double>& lowest, const std::vector<double>& highest,
                         const std::vector<double>& scale);

// Fills `index` and `weight`, (batch * n, d + 1): the corners of the simplex around each point and its
// barycentric coordinates; and `order`, (batch * n, order_words(d + 1)): the axes that lead from
// corner to corner and from the last back to the first, packed. Vertices are numbered in the order in which
// the points first touch them, for any number of threads. `scale` holds d factors; `low` and
// `high` bound each of the first d lattice quotients over all points. Throws std::length_error if
// 31 bits cannot number all vertices.
template <typename T>
Graph build(const Points<T>& points, const double* scale, const std::int64_t* low, const std::int64_t* high,
            std::int32_t* index, T* weight, std::int64_t* order, int threads);

// The exact diagonal of slice (blur + identity I) slice'. Steps along all d + 1 axes cancel, so only two chains of
// neighbours join two corners of a simplex: both are walked. `slopes`, (n, d + 1) or null, are derivatives in the
// weights.
template <typename T>
void diagonal(std::int64_t n, int d, const std::int32_t* index, const T* weight, const std::int64_t* order,
              std::int64_t vertices, const std::int32_t* neighbors, double tap, double identity, T* out, T* slopes,
              int threads);

// The derivative in the features, (n, d), from the derivative in the weights, (n, d + 1): inside its simplex a point's
// weights are linear in its features.
template <typename T>
void embedding_adjoint(std::int64_t n, int d, const T* of_weight, const std::int64_t* order, const double* scale,
                       T* of_features, int threads);

}  // namespace fwcrf
