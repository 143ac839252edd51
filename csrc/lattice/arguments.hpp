// Arguments of the functions on permutohedral lattices.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fwcrf {

// Points embedded per call: the block stays in the first-level cache.
constexpr int kBlock = 64;
constexpr int kMaxDim = 16;
// Filters take lattices with any number of corners; larger ones are built elsewhere.
constexpr std::size_t kMaxCorners = 257;

// The order of up to 17 axes, five bits each: one word for up to 12 axes, else two.
constexpr int kOrderBits = 5;
constexpr int kPerOrderWord = 12;
constexpr int order_words(int corners) { return corners > kPerOrderWord ? 2 : 1; }

// Simplices around a block of points. All arrays are [coordinate][point].
struct Embedding {
    alignas(64) std::int64_t quotient[kMaxDim + 1][kBlock];  // of the remainder-0 vertex by d + 1
    alignas(64) double weight[kMaxDim + 1][kBlock];          // barycentric coordinates
    alignas(64) std::int64_t order[2][kBlock];               // axis from corner m to corner m + 1, for all m
};

enum class BlurOrder : int { symmetric = 0, forward = 1, reverse = 2 };

// One axis of a lattice for a blur of whole rows.
//
// `member` lists the vertices that have a neighbour along the axis, line by line: the number of each vertex in the
// order of steps up the axis, and ~number for the last vertex of a line. A line has at least two vertices. `member` is
// null for all axes if every neighbour is near, as in lattices of positions on a grid: such lattices are blurred in a
// stream.
struct Lines {
    const std::int32_t* member;  // kAhead more entries than lines have, so that a reader may look ahead
    std::int64_t count;
    std::int64_t reach;  // the largest |number - number of a neighbour|, or one that is too large for a stream
};
constexpr int kAhead = 64;
// A division of a lattice among threads that splat into it side by side. A thread has a part of the points and a range
// of the vertices. Of each vertex that its points touch outside its range it has a row of its own, which is added to
// the vertex when all threads have splatted.
struct Borders {
    int threads;
    const std::int64_t* first;   // (threads + 1): the vertices of a part begin at first[part]
    const std::int32_t* index;   // (n, corners): the corners of the points, as vertices or as vertices + 1 + own row
    const std::int64_t* begin;   // (threads + 1): the own rows of a part begin at begin[part]
    const std::int32_t* vertex;  // of each own row; ascending within a part
};
static inline std::int64_t own_rows(const Borders& borders) { return borders.begin[borders.threads]; }

// Rows of a lattice of more bytes are prefetched, because the second-level cache does not hold them.
constexpr std::int64_t kCached = std::int64_t{3} << 19;
// Rows of a stream that are kept: about a megabyte of up to four vectors.
constexpr std::int64_t kStreamed = 8192;
constexpr std::int64_t kTile = 64;  // vertices of a stream that are blurred along one axis at a time

// out = K x with K = diag(shift) + slice (blur + identity I) splat'.
template <typename T> struct FilterArgs {
    const T* x;  // (n, channels)
    T* out;      // (n, channels)
    std::int64_t n;
    std::int64_t channels;
    int corners;                // d + 1
    const std::int32_t* index;  // (n, corners)
    const T* splat;             // (n, corners)
    const T* slice;             // (n, corners)
    const T* shift;             // (n) or null
    std::int64_t vertices;
    const std::int32_t* neighbors;  // (corners, vertices, 2); `vertices` if the neighbour is absent
    T tap;                          // weight of a neighbour, relative to the centre
    T identity;                     // weight of the unblurred value, relative to the blurred value
    BlurOrder order;
    int threads;
    const Lines* lines = nullptr;      // (corners) or null, for a blur of whole rows
    const Borders* borders = nullptr;  // or null: a thread splats into a lattice of its own, or not at all
};

// How many of the threads have a lattice of their own to splat into: small lattices pay, compared to the image.
static inline int lattices_that_pay(std::int64_t n, std::int64_t vertices, int threads) {
    const std::int64_t fit = n / (vertices + 1) + 1;
    return static_cast<int>(fit < threads ? fit : threads);
}

// out = diagonal of S (blur + identity I) S', S the weights. Up to kTabled corners, so that all sets of axes are the
// bits of one 64-bit word.
constexpr int kTabled = 6;
template <typename T> struct DiagonalArgs {
    std::int64_t n;
    int corners;                // at most kTabled
    const std::int32_t* index;  // (n, corners)
    const T* weight;            // (n, corners)
    const std::int64_t* order;  // (n)
    std::int64_t vertices;
    const std::int32_t* neighbors;  // (corners, vertices, 2)
    double tap, identity;
    T* out;     // (n)
    T* slopes;  // (n, corners) or null: derivatives of out in the weights
    int threads;
};

// D^-1/2 K D^-1/2 with D the row sums of K, where K = S (blur + identity I) S' with weights as in PlaceArgs and every
// K_ii set to 1.
template <typename T> struct NormalizeArgs {
    std::int64_t batch, n, vertices;
    int corners;                    // at most kTabled
    const std::int32_t* index;      // (batch, n, corners)
    const T* weight;                // (batch, n, corners)
    const std::int64_t* order;      // (batch, n)
    const std::int32_t* neighbors;  // (corners, vertices, 2)
    const T* factor;                // (batch)
    double exponent, tap, identity;
    T* out;    // (batch, n, corners): normalized weights; may be `weight`
    T* shift;  // (batch, n): to be added to the diagonal
    T* minus;  // (batch, n): -diag of the kernel of the normalized weights
    int threads;
};
// The smallest and the largest row sum.
struct RowSums {
    double least, most;
    void raise(RowSums other) {
        least = other.least < least ? other.least : least;
        most = other.most > most ? other.most : most;
    }
};

// out_i = sum_j exp(-|row_i - column_j|^2 / 2), separately for each image.
template <typename T> struct SumArgs {
    const T* row;     // (batch, rows, d)
    const T* column;  // (batch, columns, d)
    T* out;           // (batch, rows)
    std::int64_t batch, rows, columns;
    int d;
    int threads;
};

// out_i = factor exp(exponent |w_i|^2) w_i for the weights w_i of point i; exponent <= 0.
template <typename T> struct PlaceArgs {
    const T* weight;  // (batch, n, corners)
    const T* factor;  // (batch)
    T* out;           // (batch, n, corners)
    std::int64_t batch, n;
    int corners;
    T exponent;
    int threads;
};

// out_i = factor_i w_i and scaled_i = factor_i^2 diagonal_i.
template <typename T> struct ScaleArgs {
    const T* weight;  // (n, corners)
    const T* factor;  // (n)
    T* out;           // (n, corners)
    std::int64_t n;
    int corners;
    int threads;
    const T* diagonal[2];  // (n) or null
    T* scaled[2];          // (n), one for each diagonal that is not null
};

}  // namespace fwcrf
