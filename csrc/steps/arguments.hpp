// Arguments of the steps of a solver, and of label pruning.
#pragma once

#include "grid/arguments.hpp"
#include "lattice/arguments.hpp"

#include <iterator>

namespace fwcrf {

// (K + diag(shift)) (x) M, with K on a lattice or on a grid, and M a matrix or Potts.
template <typename T> struct Term {
    FilterArgs<T> lattice;  // x, out, n, channels, shift and threads are not used
    Grid<T> grid;           // axes = 0 if the term has a lattice
    const T* shift;         // (n) or null
    T potts;
    const T* matrix;  // (channels, channels), or null for Potts
};

// Vectors of a row of labels that has at least so many: rows of more than 4 come in fewer lengths, see PixelRows.
constexpr std::int64_t row_vectors(std::int64_t least) {
    return least <= 4 ? least : least <= 6 ? 6 : least <= 8 ? 8 : least <= 12 ? 12 : 16;
}
// The spread x of a term: the blurred lattice of x, (vertices, row), or the coarse x of a grid, before `middle`, with
// rows of whole vectors.
//
// True for a term whose spread x is much smaller than x, and gives K x in the same way as K is the transpose of itself.
template <typename T> bool has_spread(const Term<T>& term, std::int64_t n) {
    for (int a = 0; a < term.grid.axes; ++a)
        if (!term.grid.middle[a].width) return false;
    const FilterArgs<T>& l = term.lattice;
    return term.grid.axes || (2 * l.vertices < n && l.order == BlurOrder::symmetric && l.slice == l.splat);
}
// The number of values of the spread x, for vectors of `lanes` lanes.
template <typename T> std::int64_t spread_size(const Term<T>& term, std::int64_t row, std::int64_t lanes) {
    const Grid<T>& g = term.grid;
    if (!g.axes) return term.lattice.vertices * row;
    std::int64_t lines = g.up[0].columns;
    for (int a = 1; a + 1 < g.axes; ++a) lines *= g.up[a].columns;
    return lines * coarse_line(g, row, lanes);
}
// Derivatives of <point, P x> in the tables of a term, added up over the steps. The term counts as K x if it is Potts.
template <typename T> struct TableSlopes {
    T* weights;  // (n, corners) or null: in weights of a lattice that are `splat` and `slice`
    T* shift;    // (n) or null: in `shift`, whether or not the term has one
};

// A step from x to x + step (p - x), row by row, with p = map(v) and v = scale (P x + unary u) + keep x + lean w.
// w is the dual variable of a solver that has one. The result of a derivative map is step times the map's derivative at
// p = `other`, times v. The names are bound for Python: kMaps and kDuals are in the order of the enums.
enum class Map : int { none, softmax, project, vertex, softmax_derivative, project_derivative };
constexpr const char* kMaps[] = {"none", "softmax", "project", "vertex", "softmax derivative", "project derivative"};
// The new w: w itself; v minus its maximum; w + x - p; v.
enum class Dual : int { none, logits, multipliers, gradient };
constexpr const char* kDuals[] = {"none", "logits", "multipliers", "gradient"};
static_assert(std::size(kMaps) == static_cast<int>(Map::project_derivative) + 1 &&
                  std::size(kDuals) == static_cast<int>(Dual::gradient) + 1,
              "a name for every map and dual");
template <typename T> struct Update {
    Map map;
    T scale, keep, step, unary, lean;
    Dual dual;
};

constexpr int kMaxTerms = 8;

// Products whose rows on the right have three vectors and the ones on the left half as many values; the latter are zero
// past the ones that count.
template <typename T> struct WideArgs {
    const T* left;   // of products (rows, half a row); of outer products (count, half a row)
    const T* right;  // (count, row): two matrices side by side, or rows of two arrays
    std::int64_t rows, count;
    T* out;  // (rows, row): the products; not used by outer products
};
// The functions of a set with vectors twice as wide as the ones of the steps.
template <typename T> struct Wide {
    void (*products)(const WideArgs<T>&);
    void (*outers)(const WideArgs<T>&, double* first, double* second);
};
// Labels with gradients, matrices or duals that the engine takes, on every instruction set: rows of 256 bytes.
template <typename T> constexpr std::int64_t kMostLabels = 256 / sizeof(T);

// Upper bounds on the messages of Potts terms: `all` over all labels of a pixel together, and `last` over (message to
// the last label) x (probability of the last label after the step).
template <typename T> struct MessageBound {
    T all = 0, last = 0;
    void raise(T to_all, T to_last) {
        all = to_all > all ? to_all : all;
        last = to_last > last ? to_last : last;
    }
};
// Optional first operation, without kernels: out = map(scale x), or step times a derivative of the map taken at
// `other`. With a derivative, the dual variable of the steps becomes scale x.
template <typename T> struct Start {
    Map map;
    T scale;
    const T* other;  // (n, channels) for derivatives, else null
    T* out;          // (n, channels)
    T step = T(1);
};
// Softmax over several panels of labels: each panel writes exp(v) and adds to `sum`; the next step multiplies x by
// factor = 1 / sum.
template <typename T> struct Shared {
    const T* factor;  // (n) or null
    T* sum;           // (n)
};
// out = P x + unary u with P the sum of the terms, or `steps` updates in a row, each from the result of the previous
// update.
template <typename T> struct StepArgs {
    const T* x;      // (n, channels)
    const T* unary;  // (n, channels) or null
    std::int64_t n, channels;
    int terms;
    const Term<T>* term;
    int steps;
    const Update<T>* update;  // (steps)
    // (steps) arrays (n, channels). They may be one array, or x. With many labels only the last array is filled. The
    // last pointer may be null if only `sum` is wanted.
    T* const* out;
    const T* const* other;  // (steps) arrays (n, channels), or null
    T* sum;                 // (n, channels) or null: the sum of all derivatives, from `start` on
    T* dual;                // (n, channels) or null: w
    // (terms, channels, channels) or null: the derivative of <point, out> in each Potts weight or matrix, summed over
    // the steps. For Potts only the first entry is filled.
    double* slopes;
    int threads;
    MessageBound<T>* bound = nullptr;  // raised if every term is Potts
    bool plain = false;                // a Potts term gives w y instead of w (sum(y) - y)
    const Start<T>* start = nullptr;   // with many labels only softmax(-unary), and x is the unary
    const Shared<T>* shared = nullptr;
    T* const* goal = nullptr;         // (steps) arrays (n, channels): p of a step that is not 1; some may be null
    const T* const* point = nullptr;  // (steps) arrays (n, channels); null: the arrays of `other`
    // (1 + steps, 3) or null: <v, other>, <v, point of the next step> and <result, other> of the start and of each
    // derivative, with the logarithm of `other` in the last one for a softmax.
    double* rates = nullptr;
    // (steps) or null: the pixels whose P x a lazy step reads; 0 for a step that changes nothing. Filled for lazy steps
    // and steps back only, and for two labels from the first step on that is not taken.
    std::int64_t* reads = nullptr;
    // A pixel may stay where it is if no entry of p - x is larger; when all stay, the steps end. With 0 a softmax takes
    // steps of all pixels.
    T tolerance = 0;
    // (steps, terms) or null, and so may be each array: filled with the spread x of every step.
    T* const* spreads = nullptr;
    // (steps, terms) or null, and so may be each array: the spread points.
    const T* const* point_spreads = nullptr;
    const TableSlopes<T>* tables = nullptr;  // (terms) or null; `weights` needs spread points
    const Wide<T>* wide = nullptr;           // or null: the set of the steps has the widest vectors
};

// For each label: the smallest u minus the smallest u of its row, and the largest x.
template <typename T> struct SpanArgs {
    const T *x, *unary;  // (n, labels); x may be null, which stands for 0
    std::int64_t n, labels;
    T *gap, *most;  // (labels)
    int threads;
};

// All labels that are not in `kept` merged into one label: x is their sum, exp(scale u) the sum of their exponentials.
// The inverse gives each label its share of the sum. With scale = 0 the labels are dropped instead of merged.
template <typename T> struct MergeArgs {
    const T *x, *unary;  // (n, labels), n and labels at least the lanes of a vector; x null: softmax(-unary)
    std::int64_t n, labels;
    const std::int64_t* kept;  // (count)
    std::int64_t count;
    const T* merged;  // (labels): 1 for a merged label, 0 for a kept label
    T scale;          // negative, or 0 to drop labels
    // (n, count + 1) with the merged label last, or (n, count) if labels are dropped. `few` may be null for a merge.
    T *few, *few_unary;
    T* out;  // (n, labels), for the inverse
    int threads;
};

}  // namespace fwcrf
