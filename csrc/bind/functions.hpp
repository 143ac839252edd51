// The list of all functions that are compiled once per instruction set: one line per function.
//
// F(result, name, arguments), with T for float and double. The declarations, the table of pointers and the tables'
// contents are generated from this list; see dispatch.hpp.
#pragma once

#include "graph/arguments.hpp"
#include "lattice/arguments.hpp"
#include "maps/arguments.hpp"
#include "steps/arguments.hpp"

// lanes: of a vector of T.
// embed: `single` computes in float, so that points on the border of two simplices fall as in other software.
// feature_bounds: minimum and maximum of each feature of n >= 1 points; false if a feature is not finite.
// filter, run_steps, edge_sum, table_sum: false if x (for graphs: x at a node with edges) is not finite.
// corner_dots: dots (n, corners) += <left_i, blurred value at corner c of point i>, the derivative of <left, K x> in
//     `slice`. With products (n), the derivatives of <left, K x M> in weights that are `splat` and `slice`, and in a
//     diagonal that is added to K, if the order of the blurs is symmetric: dots also += <x_i M, blurred `left` at
//     corner c>, and products += <left_i, x_i M>. M is symmetric, (channels, channels), or null for the identity. At
//     most 4 vectors of channels; `out`, `slice` and `shift` are not used.
// row_products: out (n) += <left_i, x_i M>, of the same n, channels, x, M and threads.
// shrink_lines, shrink_axis, band_products: see BandArgs and BandProductArgs.
// blend_log_derivative: see BlendSlopes.
// transpose_and_sum: slope x, and sums += the sum of each column of x, of at most kMostSums, and <x, beside>.
// tap_slopes: derivative of <out, filtered x> in each tap; `taps` is not used, and `out` is only read.
// wide_products: out = left right, for rows of three vectors, see WideArgs.
// wide_outers: both halves of left' right, added to arrays (rows, half a row).
// run_steps: more than kMostLabels only with Potts terms and without other, sum and dual.
// argmax: the first largest entry of each row of (n, length), length >= 1; NaN counts as the largest.
#define FWCRF_FUNCTIONS(F)                                                                                             \
    F(std::int64_t, lanes, ())                                                                                         \
    F(void, embed, (const T* features, int count, int d, const double* scale, bool single, Embedding& out))            \
    F(bool, feature_bounds, (const T* features, std::int64_t n, int d, double* low, double* high))                     \
    F(bool, filter, (const FilterArgs<T>&))                                                                            \
    F(void, corner_dots, (const FilterArgs<T>&, const T* left, const T* matrix, T* dots, T* products))                 \
    F(void, row_products, (const FilterArgs<T>&, const T* left, const T* matrix, T* out))                              \
    F(void, shrink_lines, (const BandArgs<T>&))                                                                        \
    F(void, shrink_axis, (const BandArgs<T>&))                                                                         \
    F(void, band_products, (const BandProductArgs<T>&))                                                                \
    F(void, diagonal, (const DiagonalArgs<T>&))                                                                        \
    F(RowSums, normalize, (const NormalizeArgs<T>&))                                                                   \
    F(void, gaussian_sums, (const SumArgs<T>&))                                                                        \
    F(void, place_weights, (const PlaceArgs<T>&))                                                                      \
    F(void, scale_weights, (const ScaleArgs<T>&))                                                                      \
    F(void, filter_axis, (const AxisArgs<T>&))                                                                         \
    F(void, tap_slopes, (const AxisArgs<T>&, double* slopes))                                                          \
    F(void, wide_products, (const WideArgs<T>&))                                                                       \
    F(void, wide_outers, (const WideArgs<T>&, double* first, double* second))                                          \
    F(bool, run_steps, (const StepArgs<T>&))                                                                           \
    F(void, label_spans, (const SpanArgs<T>&))                                                                         \
    F(void, merge_labels, (const MergeArgs<T>&))                                                                       \
    F(void, unmerge_labels, (const MergeArgs<T>&))                                                                     \
    F(void, project, (const SimplexArgs<T>&))                                                                          \
    F(void, project_derivative, (const SimplexArgs<T>&))                                                               \
    F(void, softmax, (const SimplexArgs<T>&))                                                                          \
    F(void, softmax_derivative, (const SimplexArgs<T>&))                                                               \
    F(ScoreRange, energies, (const EnergyArgs<T>&))                                                                    \
    F(void, label_shares, (const ShareArgs<T>&))                                                                       \
    F(void, transpose_array, (const TransposeArgs<T>&))                                                                \
    F(void, transpose_log, (const TransposeArgs<T>&))                                                                  \
    F(void, blend_log_derivative, (const TransposeArgs<T>&, BlendSlopes<T>&))                                          \
    F(void, transpose_and_sum, (const TransposeArgs<T>&, double* sums))                                                \
    F(void, transpose_log_derivative, (const TransposeArgs<T>&))                                                       \
    F(void, argmax, (const T* x, std::int64_t n, std::int64_t length, std::int64_t* out, int threads))                 \
    F(bool, edge_sum, (const EdgeArgs<T>&))                                                                            \
    F(bool, table_sum, (const TableArgs<T>&))                                                                          \
    F(void, edge_inner, (const PairArgs<T>&))                                                                          \
    F(void, edge_outer, (const PairArgs<T>&))

#define FWCRF_DECLARE(RESULT, NAME, ARGUMENTS) template <typename T> RESULT NAME ARGUMENTS;

#ifdef FWCRF_ISA
namespace fwcrf::FWCRF_ISA {
FWCRF_FUNCTIONS(FWCRF_DECLARE)
}  // namespace fwcrf::FWCRF_ISA

// At the end of the file that defines the function.
#define FWCRF_INSTANTIATE(NAME)                                                                                        \
    template decltype(NAME<float>) NAME<float>;                                                                        \
    template decltype(NAME<double>) NAME<double>;
#endif
