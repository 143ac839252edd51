// Between a network's layout, channel after channel, and the library's, pixel after pixel; logarithms on the way, and labels.
#include "kernels.hpp"
#include "logarithm.hpp"
#include "row_columns.hpp"
#include "vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// out[b][j][i] = act(x[b][i][j], beside[b][j][i]), where `beside` may be null. Squares of W x W entries in vectors, from
// the first to the last row and column; the last square of a row of them starts early enough to end with it. What is too
// narrow for a square goes entry by entry.
template <typename T, typename F>
static void transposed(const TurnArgs<T>& a, F&& act) {
    constexpr std::int64_t W = kLanes<T>, kTile = 64;  // tiles of both arrays fit into the first-level cache together
    const std::int64_t rows = a.rows, columns = a.columns;
    const std::int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t tile = 0; tile < a.batch * down * across; ++tile) {
        // Along the longer side, within a stretch of memory of either array; of the other there are as many as the shorter
        // side is long, and the processor foresees no more than a few.
        const bool wide = columns >= rows;
        const std::int64_t within = tile % (down * across), image = tile / (down * across);
        const std::int64_t i0 = (wide ? within % down : within / across) * kTile;
        const std::int64_t j0 = (wide ? within / down : within % across) * kTile;
        const std::int64_t i1 = i0 + kTile < rows ? i0 + kTile : rows;
        const std::int64_t j1 = j0 + kTile < columns ? j0 + kTile : columns;
        const T* const from = a.x + image * rows * columns;
        const T* const beside = a.beside ? a.beside + image * rows * columns : from;
        T* const to = a.out + image * rows * columns;
        if (i1 - i0 < W || j1 - j0 < W) {
            for (std::int64_t i = i0; i < i1; ++i)
                for (std::int64_t j = j0; j < j1; ++j)
                    to[j * rows + i] = act(Vec<T>{} + from[i * columns + j], Vec<T>{} + beside[j * rows + i])[0];
            continue;
        }
        for (std::int64_t i = i0; i < i1; i += W)
            for (std::int64_t j = j0; j < j1; j += W) {
                const std::int64_t r = i + W <= i1 ? i : i1 - W, c = j + W <= j1 ? j : j1 - W;
                Vec<T> square[W];
                for (int k = 0; k < W; ++k) {
                    const T* const row = from + (r + k) * columns + c;
                    if (wide) __builtin_prefetch(row + kTile);
                    square[k] = load(row);
                }
                transpose<T>(square);
                for (int k = 0; k < W; ++k) {
                    const std::int64_t at = (c + k) * rows + r;
                    if (!wide) __builtin_prefetch(to + at + kTile, 1);
                    store(to + at, act(square[k], load(beside + at)));
                }
            }
    }
}

template <typename T> static void log_line(const TurnArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    transposed(a, [=](Vec<T> v, Vec<T>) { return log<T>(slope * v + offset); });
}
template <typename T> static void log_line_derivative(const TurnArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    transposed(a, [=](Vec<T> g, Vec<T> x) { return slope * g / (slope * x + offset); });
}

// False if a value is not finite.
template <typename T> static bool negative(const T* x, std::int64_t n, T* out, int threads) {
    constexpr std::int64_t W = kLanes<T>, kEach = 4096;
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads) reduction(|| : bad)
#endif
    for (std::int64_t first = 0; first < n; first += kEach) {
        const std::int64_t end = first + kEach < n ? first + kEach : n;
        Vec<T> nothing{};  // 0 * v is not a number unless v is finite
        std::int64_t i = first;
        for (; i + W <= end; i += W) {
            const Vec<T> v = load(x + i);
            store(out + i, -v);
            nothing += v * T(0);
        }
        for (; i < end; ++i) {
            out[i] = -x[i];
            nothing[0] += x[i] * T(0);
        }
        for (int l = 0; l < W; ++l) bad = bad || nothing[l] != T(0);
    }
    (void)threads;
    return !bad;
}

// Larger, or the first that is not a number.
template <typename V> static inline auto beats(V value, V most) { return (most == most) & ~(value <= most); }

template <typename T> static std::int64_t largest(const T* row, std::int64_t length) {
    std::int64_t where = 0;
    for (std::int64_t s = 1; s < length; ++s)
        if (row[where] == row[where] && !(row[s] <= row[where])) where = s;
    return where;
}

// The largest entries of as many rows as a vector has lanes, and their columns.
template <typename T> struct Largest {
    Vec<T> most = Vec<T>{} - static_cast<T>(__builtin_inf()), where{};

    void see(std::int64_t column, Vec<T> v) {
        const auto more = beats(v, most);
        most = more ? v : most;
        where = more ? Vec<T>{} + static_cast<T>(column) : where;
    }
    void put(std::int64_t* out) const {
        for (int r = 0; r < kLanes<T>; ++r) out[r] = static_cast<std::int64_t>(where[r]);
    }
};

// The column of the largest entry of each row, the first of several; one that is not a number is larger.
template <typename T>
static void largest(const T* x, std::int64_t n, std::int64_t length, std::int64_t* out, int threads) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t groups = whole_groups<T>(n, length);
    (void)threads;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(threads)
#endif
    for (std::int64_t group = 0; group < groups; ++group) {
        Largest<T> best;
        columns_of(x + group * W * length, length, [&](int, std::int64_t column, Vec<T> v) { best.see(column, v); });
        best.put(out + group * W);
    }
    for (std::int64_t i = groups * W; i < n; ++i) out[i] = largest(x + i * length, length);
}

// Both in one pass, for some groups of rows of every image, G together.
template <int G, typename T> static void labelled(const TurnArgs<T>& a, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t W = kLanes<T>, kAhead = 8 * W;
    const std::int64_t rows = a.rows, columns = a.columns, several = (end - begin) / G;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (std::int64_t g = 0; g < a.batch * several; ++g) {
        const std::int64_t image = g / several, i = (begin + g % several * G) * W;
        T* const to = a.out + image * rows * columns + i;
        Largest<T> best[G];
        columns_of<G>(a.x + (image * rows + i) * columns, columns, [&](int group, std::int64_t column, Vec<T> v) {
            // The processor foresees no more than a few lines, and there are as many as columns.
            __builtin_prefetch(to + column * rows + group * W + kAhead, 1);
            store(to + column * rows + group * W, v);
            best[group].see(column, v);
        });
        for (int group = 0; group < G; ++group) best[group].put(a.largest + image * rows + i + group * W);
    }
}
template <typename T> static void labelled(const TurnArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t rows = a.rows, columns = a.columns, groups = whole_groups<T>(rows, columns);
    // Of many columns each group would write a little to more lines than the nearest cache holds.
    const std::int64_t together = columns > 64 ? groups / 4 * 4 : 0;
    if (together) labelled<4>(a, 0, together);
    if (together < groups) labelled<1>(a, together, groups);
    for (std::int64_t image = 0; image < a.batch; ++image)
        for (std::int64_t i = groups * W; i < rows; ++i) {
            const T* const row = a.x + (image * rows + i) * columns;
            for (std::int64_t j = 0; j < columns; ++j) a.out[(image * columns + j) * rows + i] = row[j];
            a.largest[image * rows + i] = largest(row, columns);
        }
}

template <typename T> static void transpose(const TurnArgs<T>& a) {
    const T factor = a.slope;
    if (a.largest) labelled(a);
    else transposed(a, [=](Vec<T> v, Vec<T>) { return factor * v; });
}

#define FWCRF_LAYOUT(T, SUFFIX)                                                                                      \
    void transpose_##SUFFIX(const TurnArgs<T>& a) { transpose(a); }                                                      \
    void log_line_##SUFFIX(const TurnArgs<T>& a) { log_line(a); }                                                        \
    void log_line_derivative_##SUFFIX(const TurnArgs<T>& a) { log_line_derivative(a); }                                  \
    bool negative_##SUFFIX(const T* x, std::int64_t n, T* out, int threads) { return negative(x, n, out, threads); }      \
    void largest_##SUFFIX(const T* x, std::int64_t n, std::int64_t length, std::int64_t* out, int threads) {         \
        largest(x, n, length, out, threads);                                                                         \
    }

FWCRF_LAYOUT(float, f32)
FWCRF_LAYOUT(double, f64)

}  // namespace fwcrf::FWCRF_ISA
