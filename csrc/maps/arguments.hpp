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
    // Of a logarithm: in place of x, or of `beside` of its derivative, (1 - share) times it plus share times this.
    const T* blended = nullptr;
    T share = 0;
};

// The derivatives of the logarithm of a blend in `blended` and `share`; TransposeArgs::out is the one in the other
// part.
template <typename T> struct BlendSlopes {
    T* blended;  // (batch, columns, rows)
    double share;
};
constexpr int kMostSums = 64;  // columns of `transpose_and_sum`

// Unary energies with the labels last: -x of logits, or -log max(x, least) of probabilities.
template <typename T> struct EnergyArgs {
    const T* x;                     // (batch, labels, n), or (batch, n, labels) if `last`
    T* out;                         // (batch, n, labels)
    std::int64_t batch, labels, n;  // at least one label
    bool last, probabilities;
    T least;  // positive
    int threads;
    // (labels) or null: slope x + offset in place of x, of logits that are not `last`.
    const T* offset = nullptr;
    T slope = 1;
};
// Minimum and maximum of all scores, and of their sums over the labels. Undefined if not finite.
struct ScoreRange {
    double least, most, lowest_sum, highest_sum;
    bool finite;
};

// Some pixels of a grid: along axis a, `count[a]` of them from `first[a]` on, `step[a]` apart.
struct Sampled {
    int axes;
    const std::int64_t *sizes, *first, *step, *count;  // (axes)

    std::int64_t total() const {
        std::int64_t n = 1;
        for (int a = 0; a < axes; ++a) n *= count[a];
        return n;
    }
    // The number of the i-th of these pixels in the grid.
    std::int64_t pixel(std::int64_t i) const {
        std::int64_t at = 0, stride = 1;
        for (int a = axes - 1; a >= 0; --a) {
            at += (first[a] + i % count[a] * step[a]) * stride;
            i /= count[a];
            stride *= sizes[a];
        }
        return at;
    }
};

// Probabilities softmax(-unary) at some pixels of every image.
template <typename T> struct ShareArgs {
    const T* unary;  // (batch, n, labels), no entry NaN, and one below infinity in every row
    std::int64_t batch, n, labels;
    Sampled pixels;       // the same for all images
    T* best;              // (batch, pixels): the largest probability; or null
    std::int64_t* where;  // (batch, pixels): its label, the first of equal ones; or null
    double* sums;         // (batch, labels): sums of the probabilities over the pixels; or null
    bool* wins;           // (batch, labels): whether the label is the best one of a pixel; or null
    int threads;
};

}  // namespace fwcrf
