// The inner loops, compiled once per instruction set and chosen at run time.
//
// edges.cpp, embed.cpp, energies.cpp, fused.cpp, gaussian.cpp, kernels.cpp, layout.cpp, lump.cpp, normal.cpp, simplex.cpp and
// spans.cpp are compiled several times with FWCRF_ISA naming the variant; each copy lives in its own namespace and is reached through
// one table of function pointers.
#pragma once

#include <cstdint>

namespace fwcrf {

// Points embedded per call: small enough for the block to stay in the first-level cache.
constexpr int kBlock = 64;
constexpr int kMaxDim = 16;

// The order of up to 17 axes, five bits each, as one word for up to 12 of them and two for more.
constexpr int kOrderBits = 5;
constexpr int kPerOrderWord = 12;
constexpr int order_words(int corners) { return corners > kPerOrderWord ? 2 : 1; }

// Where a block of points falls in the permutohedral lattice. All arrays are [coordinate][lane].
struct Embedding {
    alignas(64) std::int64_t quotient[kMaxDim + 1][kBlock];  // of the remainder-0 vertex by d + 1
    alignas(64) double weight[kMaxDim + 1][kBlock];          // barycentric coordinates
    alignas(64) std::int64_t order[2][kBlock];  // axis from corner m to corner m + 1, for all m
};

enum class BlurOrder : int { symmetric = 0, forward = 1, reverse = 2 };

// K = diag(shift) + slice * (blur + identity * I) * splat^T, in place of a class of operators.
template <typename T> struct FilterArgs {
    const T* x;                      // (n, channels)
    T* out;                          // (n, channels)
    std::int64_t n;
    std::int64_t channels;
    int corners;                     // d + 1
    const std::int32_t* index;       // (n, corners)
    const T* splat;                  // (n, corners)
    const T* slice;                  // (n, corners)
    const T* shift;                  // (n) or null
    std::int64_t vertices;
    const std::int32_t* neighbors;   // (corners, vertices, 2); absent is `vertices`
    T tap;                           // weight of a neighbour relative to the centre
    T identity;                      // weight of the unblurred value relative to the blurred one
    BlurOrder order;
    int threads;
};

// Points of a lattice with few enough axes that the sets of them are the bits of one word.
constexpr int kTabled = 6;
template <typename T> struct DiagonalArgs {
    std::int64_t n;
    int corners;                     // at most kTabled
    const std::int32_t* index;       // (n, corners)
    const T* weight;                 // (n, corners)
    const std::int64_t* order;       // (n)
    std::int64_t vertices;
    const std::int32_t* neighbors;   // (corners, vertices, 2)
    double tap, identity;
    T* out;                          // (n)
    T* slopes;                       // (n, corners) or null: the derivatives in the weights
    int threads;
};

// K = S (B + identity I) S' of weights that are placed as in PlaceArgs, with every K_ii set to 1, divided by the square roots
// of its row sums on both sides.
template <typename T> struct NormalArgs {
    std::int64_t batch, n, vertices;
    int corners;                     // at most kTabled
    const std::int32_t* index;       // (batch, n, corners)
    const T* weight;                 // (batch, n, corners)
    const std::int64_t* order;       // (batch, n)
    const std::int32_t* neighbors;   // (corners, vertices, 2)
    const T* factor;                 // (batch)
    double exponent, tap, identity;
    T* out;                          // (batch, n, corners), the weights
    T* shift;                        // (batch, n): what has to be added to the diagonal
    T* minus;                        // (batch, n): less what the weights alone have there
    int threads;
};
// Of rows, the least and the largest.
struct Sums {
    double least, most;
    void raise(Sums other) {
        least = other.least < least ? other.least : least;
        most = other.most > most ? other.most : most;
    }
};

// out_i = sum_j exp(-|row_i - column_j|^2 / 2), for each image by itself.
template <typename T> struct SumArgs {
    const T* row;                    // (batch, rows, d)
    const T* column;                 // (batch, columns, d)
    T* out;                          // (batch, rows)
    std::int64_t batch, rows, columns;
    int d;
    int threads;
};

// out_i = factor exp(exponent |w_i|^2) w_i for the weights w_i of each point; the exponent is at most 0.
template <typename T> struct PlaceArgs {
    const T* weight;                 // (batch, n, corners)
    const T* factor;                 // (batch)
    T* out;                          // (batch, n, corners)
    std::int64_t batch, n;
    int corners;
    T exponent;
    int threads;
};

// out_i = factor_i w_i; and what sits on the diagonal of the kernel, times factor_i^2.
template <typename T> struct ScaleArgs {
    const T* weight;                 // (n, corners)
    const T* factor;                 // (n)
    T* out;                          // (n, corners)
    std::int64_t n;
    int corners;
    int threads;
    const T* diagonal[2];            // (n) or null
    T* scaled[2];                    // (n), where there is a diagonal
};

// Gaussian-like filter along one axis of an array seen as (outer, length, inner), zero outside.
template <typename T> struct AxisArgs {
    const T* x;
    T* out;
    std::int64_t outer, length, inner;
    const T* taps;                   // taps[t] multiplies x[i - t] + x[i + t]; taps[0] the centre
    std::int64_t radius;
    int threads;
};

// A banded matrix: row j has `width` entries, from column first[j] on, and zeros elsewhere. No row begins before the one
// above it.
template <typename T> struct Band {
    std::int64_t rows, columns, width;  // width 0: there is no matrix
    const std::int32_t* first;          // (rows)
    const T* weight;                    // (rows, width)
};

// K_1 (x) K_2 (x) ... over the axes of a grid, each as K_a = up_a middle_a down_a.
constexpr int kMaxAxes = 8;
template <typename T> struct Grid {
    int axes;
    Band<T> down[kMaxAxes], middle[kMaxAxes], up[kMaxAxes];
    // The last axis but for the coarse grid: diag(left) K diag(right), where taps[t] are t from the diagonal; or null.
    const T *taps, *left, *right;
    std::int64_t radius;
};

// (K + diag(shift)) (x) M, with K on a lattice or on a grid, and M a matrix or Potts.
template <typename T> struct Term {
    FilterArgs<T> lattice;           // its x, out, n, channels, shift and threads are not looked at
    Grid<T> grid;                    // axes = 0 where the term has a lattice
    const T* shift;                  // (n) or null
    T potts;
    const T* matrix;                 // (channels, channels), or null for Potts
};

// What becomes of y = P x + unary u, row by row: x + step (p - x) with p the map of v = scale y + keep x + lean w, where
// w is the dual variable of a solver that has one; or a derivative at p times scale y, for which p is `other`.
enum class Map : int { none, softmax, project, vertex, softmax_derivative, project_derivative };
// What w becomes: it stays; v less its largest entry; w + x - p.
enum class Dual : int { none, logits, multipliers };
template <typename T> struct Move {
    Map map;
    T scale, keep, step, unary, lean;
    Dual dual;
};

constexpr int kMaxTerms = 8;
// The most that kernels times Potts weights give to a pixel, all labels together; and the most that they give to the
// last one, times its part of the pixel after the move.
template <typename T> struct Reach {
    T all = 0, last = 0;
    void raise(T to_all, T to_last) {
        all = to_all > all ? to_all : all;
        last = to_last > last ? to_last : last;
    }
};
// Where the steps begin, if that is not x: at the map of scale x, row by row and without the kernels.
template <typename T> struct Before {
    Map map;
    T scale;
    const T* other;                  // (n, channels) for derivatives, or null
    T* out;                          // (n, channels)
};
// Of pixels that have other labels elsewhere: x counts times a factor, and softmax leaves its exponentials, undivided, adding
// them up.
template <typename T> struct Shared {
    const T* factor;                 // (n) or null
    T* sum;                          // (n)
};
// out = unary + sum of the terms, applied to x: one pass over x to gather it, one to answer. With moves, so many
// times in a row, each starting where the last one ended.
template <typename T> struct FusedArgs {
    const T* x;                      // (n, channels)
    const T* unary;                  // (n, channels) or null
    std::int64_t n, channels;
    int terms;
    const Term<T>* term;
    int steps;
    const Move<T>* move;             // (steps)
    T* const* out;                   // (steps) arrays (n, channels), which may all be the same, or x; for more than
                                     // `fused_channels` only the last one is filled; null after the last step if just
                                     // the sum is asked for
    const T* const* other;           // (steps) arrays (n, channels), or null
    T* sum;                          // (n, channels) or null: what all derivatives add up to, that before the steps first
    T* dual;                         // (n, channels) or null: w
    // With y_c = (K_c + diag) x: the derivative of <other, out> in each Potts weight, or in each matrix, of all
    // steps together; or null.
    double* slopes;                  // (terms, channels, channels); of Potts only the first is filled
    int threads;
    Reach<T>* reach = nullptr;       // raised by what comes up, if every term is Potts
    bool plain = false;              // a Potts term answers with its weight times y_c, not with what other labels get of it
    const Before<T>* before = nullptr;  // for more than `fused_channels` at softmax(-unary): x is the unary
    const Shared<T>* shared = nullptr;
};

// Maps of the rows of an array, each to its own simplex, and their derivatives.
template <typename T> struct SimplexArgs {
    const T* x;                      // (n, length)
    const T* p;                      // (n, length): where the derivative is taken; or null
    T* out;                          // (n, length)
    std::int64_t n;
    std::int64_t length;             // at least 1
    T scale;                         // x counts times this
    int threads;
};

// From (batch, rows, columns) to (batch, columns, rows), as slope x or as the logarithm of slope x + offset; or the
// derivative of that times x, where it was taken of `beside`.
template <typename T> struct TurnArgs {
    const T* x;
    const T* beside;                 // (batch, columns, rows) or null
    T* out;
    std::int64_t batch, rows, columns;
    T slope, offset;
    int threads;
    std::int64_t* largest = nullptr;  // (batch, rows) or null: the column of the largest x, if x is taken as it is
};

// Of each label: the least u less the least u of its row, and the largest x.
template <typename T> struct SpanArgs {
    const T *x, *unary;              // (n, labels); x may be null, which is taken for 0
    std::int64_t n, labels;
    T *gap, *most;                   // (labels)
    int threads;
};

// Labels other than `kept`, taken together as one: x is the sum of theirs, and exp(scale u) the sum of their
// exponentials. And back: each has its part of the sum. Or those that are kept alone, of which nothing comes back.
template <typename T> struct LumpArgs {
    const T *x, *unary;              // (n, labels), both at least as many as a vector has lanes; x for the way there, or
                                     // null for softmax(-unary)
    std::int64_t n, labels;
    const std::int64_t* kept;        // (count)
    std::int64_t count;
    const T* other;                  // (labels): 0 for those that are kept
    T scale;                         // negative; 0 to leave the others out
    T *few, *few_unary;              // (n, count + 1), the last for the others; or (n, count); on the way there the first of
                                     // these may be null if others are not left out
    T* out;                          // (n, labels), for the way back
    int threads;
};

// Energies of scores: out = -x of logits, or -log max(x, least) of probabilities, with the labels last.
template <typename T> struct EnergyArgs {
    const T* x;                      // (batch, labels, n), or (batch, n, labels) if the labels are `last` here too
    T* out;                          // (batch, n, labels)
    std::int64_t batch, labels, n;   // at least one label
    bool last, probabilities;
    T least;                         // positive
    int threads;
};
// Of all entries, and of the sums over the labels; where there are NaN, none of it.
struct Extent {
    double least, most, lowest_sum, highest_sum;
    bool finite;
};

// The ends of the edges of a graph by node: those of node i are first[i] to first[i + 1].
struct Adjacency {
    std::int64_t n, edges;
    const std::int64_t* first;       // (n + 1)
    const std::int32_t* neighbor;    // (2 edges)
    const std::int32_t* slot;        // (2 edges): twice the edge, plus 1 at its second node
};

// out = unary + (K x) M, where K_ij is the weight of the edge from i to j and K_ji is `turned` times that.
enum class Labels : int { plain = 0, potts = 1, matrix = 2 };
template <typename T> struct EdgeArgs {
    Adjacency graph;
    const T* x;                      // (n, channels)
    const T* unary;                  // (n, channels) or null
    T* out;                          // (n, channels)
    std::int64_t channels;
    const T* weight;                 // (edges), or one for all
    bool uniform;
    T turned;
    Labels labels;                   // M: the identity, 1 - identity, or `matrix`
    const T* matrix;                 // (channels, channels) or null
    int threads;
};

// out_i = unary_i + sum of T_ij x_j, where an edge's table is T_ij at its first node and T_ij' at its second.
template <typename T> struct TableArgs {
    Adjacency graph;
    const T* x;                      // (n, channels)
    const T* unary;                  // (n, channels) or null
    T* out;                          // (n, channels)
    std::int64_t channels;
    const T* tables;                 // (edges, channels, channels)
    int threads;
};

// Per edge (i, j): <a_i, b_j> + turned <a_j, b_i>, or the matrix a_i b_j' + b_i a_j'.
template <typename T> struct PairArgs {
    std::int64_t edges;
    const std::int32_t* ends;        // (edges, 2)
    const T* a;                      // (n, channels)
    const T* b;                      // (n, channels)
    T* out;                          // (edges) or (edges, channels, channels)
    std::int64_t channels;
    T turned;
    int threads;
};

struct Kernels {
    const char* isa;
    void (*embed_f32)(const float* features, int count, int d, const double* scale, Embedding& out);
    void (*embed_f64)(const double* features, int count, int d, const double* scale,
                      Embedding& out);
    // All in float, so that points on the border of two simplices fall where other software puts them.
    void (*embed_single)(const float* features, int count, int d, const double* scale,
                         Embedding& out);
    // Per-feature extremes of n >= 1 points; false if any feature is not finite.
    bool (*bounds_f32)(const float* features, std::int64_t n, int d, double* low, double* high);
    bool (*bounds_f64)(const double* features, std::int64_t n, int d, double* low, double* high);
    // False if x held a value that was not finite.
    bool (*filter_f32)(const FilterArgs<float>&);
    bool (*filter_f64)(const FilterArgs<double>&);
    // dots (n, corners) += <left_i, blurred value at corner c of point i>: the derivative of <left, filtered x> in the
    // weights off the lattice. For at most `fused_channels`; of the arguments, `out`, `slice` and `shift` are not looked at.
    void (*corner_dots_f32)(const FilterArgs<float>&, const float* left, float* dots);
    void (*corner_dots_f64)(const FilterArgs<double>&, const double* left, double* dots);
    void (*diagonal_f32)(const DiagonalArgs<float>&);
    void (*diagonal_f64)(const DiagonalArgs<double>&);
    Sums (*normal_f32)(const NormalArgs<float>&);
    Sums (*normal_f64)(const NormalArgs<double>&);
    void (*gaussian_sums_f32)(const SumArgs<float>&);
    void (*gaussian_sums_f64)(const SumArgs<double>&);
    void (*placed_f32)(const PlaceArgs<float>&);
    void (*placed_f64)(const PlaceArgs<double>&);
    void (*scaled_rows_f32)(const ScaleArgs<float>&);
    void (*scaled_rows_f64)(const ScaleArgs<double>&);
    void (*axis_f32)(const AxisArgs<float>&);
    void (*axis_f64)(const AxisArgs<double>&);
    // The derivative of <out, filtered x> in each tap; the taps are not looked at, and nothing is written to `out`.
    void (*tap_slopes_f32)(const AxisArgs<float>&, double* slopes);
    void (*tap_slopes_f64)(const AxisArgs<double>&, double* slopes);
    // Most channels the fused model takes if it has matrices, others, a sum or a dual; and itself: false if x held a value
    // that was not finite.
    std::int64_t fused_channels_f32, fused_channels_f64;
    bool (*fused_f32)(const FusedArgs<float>&);
    bool (*fused_f64)(const FusedArgs<double>&);
    void (*project_f32)(const SimplexArgs<float>&);
    void (*project_f64)(const SimplexArgs<double>&);
    void (*project_derivative_f32)(const SimplexArgs<float>&);
    void (*project_derivative_f64)(const SimplexArgs<double>&);
    void (*softmax_f32)(const SimplexArgs<float>&);
    void (*softmax_f64)(const SimplexArgs<double>&);
    void (*softmax_derivative_f32)(const SimplexArgs<float>&);
    void (*softmax_derivative_f64)(const SimplexArgs<double>&);
    Extent (*energies_f32)(const EnergyArgs<float>&);
    Extent (*energies_f64)(const EnergyArgs<double>&);
    // False if x held a value that was not finite at a node with edges.
    bool (*edge_sum_f32)(const EdgeArgs<float>&);
    bool (*edge_sum_f64)(const EdgeArgs<double>&);
    bool (*table_sum_f32)(const TableArgs<float>&);
    bool (*table_sum_f64)(const TableArgs<double>&);
    void (*edge_inner_f32)(const PairArgs<float>&);
    void (*edge_inner_f64)(const PairArgs<double>&);
    void (*edge_outer_f32)(const PairArgs<float>&);
    void (*edge_outer_f64)(const PairArgs<double>&);
    // See layout.hpp.
    void (*transpose_f32)(const TurnArgs<float>&);
    void (*transpose_f64)(const TurnArgs<double>&);
    void (*log_line_f32)(const TurnArgs<float>&);
    void (*log_line_f64)(const TurnArgs<double>&);
    void (*log_line_derivative_f32)(const TurnArgs<float>&);
    void (*log_line_derivative_f64)(const TurnArgs<double>&);
    void (*spans_f32)(const SpanArgs<float>&);
    void (*spans_f64)(const SpanArgs<double>&);
    void (*lump_f32)(const LumpArgs<float>&);
    void (*lump_f64)(const LumpArgs<double>&);
    void (*unlump_f32)(const LumpArgs<float>&);
    void (*unlump_f64)(const LumpArgs<double>&);
    bool (*negative_f32)(const float*, std::int64_t, float*, int);
    bool (*negative_f64)(const double*, std::int64_t, double*, int);
    void (*largest_f32)(const float*, std::int64_t, std::int64_t, std::int64_t*, int);
    void (*largest_f64)(const double*, std::int64_t, std::int64_t, std::int64_t*, int);
};

// The fastest table this processor can run; FWCRF_ISA=generic|avx2|avx512 in the environment lowers it.
const Kernels& kernels();

}  // namespace fwcrf
