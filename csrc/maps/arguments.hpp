// Arguments of the maps of whole arrays: onto simplices, from scores to energies, between layouts.
#pragma once

#include <cstdint>

namespace fwcrf {

// Each row of scale x mapped to the simplex; or the derivative of the map at p, applied to scale x.
template <typename T> struct SimplexArgs {
    const T* x;  // (n, length)
    const T* p;  // (n, length), or null if no derivative
    T* out;      // (n, length)
    std::int64_t n;
    std::int64_t length;  // at least 1
    T scale;
    int threads;
};

// From (batch, rows, columns) to (batch, columns, rows): slope x, or log(slope x + offset), or the derivative of that
// logarithm at `beside`, applied to x.
template <typename T> struct TransposeArgs {
    const T* x;
    const T* beside;  // (batch, columns, rows) or null
    T* out;
    std::int64_t batch, rows, columns;
    T slope, offset;
    int threads;
    std::int64_t* largest = nullptr;  // (batch, rows) or null: argmax of each row of x, for slope 1
};

// Unary energies with the labels last: -x of logits, or -log max(x, least) of probabilities.
template <typename T> struct EnergyArgs {
    const T* x;                     // (batch, labels, n), or (batch, n, labels) if `last`
    T* out;                         // (batch, n, labels)
    std::int64_t batch, labels, n;  // at least one label
    bool last, probabilities;
    T least;  // positive
    int threads;
};
// Minimum and maximum of all scores, and of their sums over the labels. Undefined if not finite.
struct ScoreRange {
    double least, most, lowest_sum, highest_sum;
    bool finite;
};

}  // namespace fwcrf
