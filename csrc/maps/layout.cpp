// Transposes between a network's layout, channel after channel, and the library's, pixel after pixel; with logarithms
// and argmax in the same pass.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "simd/math.hpp"
#include "simd/rows.hpp"

namespace fwcrf::FWCRF_ISA {

// out[b][j][i] = act(x[b][i][j], beside[b][j][i]), where `beside` may be null. In squares of W x W entries; the last
// square ends with the row or column. A tile that is narrower than a square is transposed entry by entry.
template <typename T, typename F> static void transposed(const TransposeArgs<T>& a, F&& act) {
    constexpr std::int64_t W = kLanes<T>, kTile = 64;  // tiles of both arrays fit into the first-level cache together
    const std::int64_t rows = a.rows, columns = a.columns;
    const std::int64_t down = (rows + kTile - 1) / kTile, across = (columns + kTile - 1) / kTile;
    for_each(a.threads, a.batch * down * across, [&](std::int64_t tile) {
        // Tiles follow the longer side. One array is then read or written in one stretch of memory, the other in as
        // many streams as the shorter side is long; the processor prefetches only a few streams by itself.
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
                    to[j * rows + i] = lane(act(fill(from[i * columns + j]), fill(beside[j * rows + i])), 0);
            return;
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
    });
}

template <typename T> void transpose_log(const TransposeArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    transposed(a, [=](Vec<T> v, Vec<T>) { return log<T>(slope * v + offset); });
}
template <typename T> void transpose_log_derivative(const TransposeArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    transposed(a, [=](Vec<T> g, Vec<T> x) { return slope * g / (slope * x + offset); });
}

// True if the value is larger, or the first NaN.
template <typename V> static inline auto beats(V value, V most) { return (most == most) & ~(value <= most); }

template <typename T> static std::int64_t argmax_of_row(const T* row, std::int64_t length) {
    std::int64_t where = 0;
    for (std::int64_t s = 1; s < length; ++s)
        if (row[where] == row[where] && !(row[s] <= row[where])) where = s;
    return where;
}

// The largest entries of W rows so far, and their columns.
template <typename T> struct Largest {
    Vec<T> most = Vec<T>{} - kInfinity<T>, where{};

    void see(std::int64_t column, Vec<T> v) {
        const auto more = beats(v, most);
        most = select(more, v, most);
        where = select(more, fill(static_cast<T>(column)), where);
    }
    void put(std::int64_t* out) const {
        for (int r = 0; r < kLanes<T>; ++r) out[r] = static_cast<std::int64_t>(lane(where, r));
    }
};

template <typename T> void argmax(const T* x, std::int64_t n, std::int64_t length, std::int64_t* out, int threads) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t groups = whole_groups<T>(n, length);
    for_each(threads, groups, [=](std::int64_t group) {
        Largest<T> best;
        columns_of(x + group * W * length, length, [&](int, std::int64_t column, Vec<T> v) { best.see(column, v); });
        best.put(out + group * W);
    });
    for (std::int64_t i = groups * W; i < n; ++i) out[i] = argmax_of_row(x + i * length, length);
}

// Transpose and argmax in one pass, for groups [begin, end) of rows of every image, G groups together.
template <int G, typename T>
static void transpose_and_argmax(const TransposeArgs<T>& a, std::int64_t begin, std::int64_t end) {
    constexpr std::int64_t W = kLanes<T>, kAhead = 8 * W;
    const std::int64_t rows = a.rows, columns = a.columns, several = (end - begin) / G;
    for_each(a.threads, a.batch * several, [&](std::int64_t g) {
        const std::int64_t image = g / several, i = (begin + g % several * G) * W;
        T* const to = a.out + image * rows * columns + i;
        Largest<T> best[G];
        columns_of<G>(a.x + (image * rows + i) * columns, columns, [&](int group, std::int64_t column, Vec<T> v) {
            // The processor prefetches only a few streams by itself, and there is one per column.
            __builtin_prefetch(to + column * rows + group * W + kAhead, 1);
            store(to + column * rows + group * W, v);
            best[group].see(column, v);
        });
        for (int group = 0; group < G; ++group) best[group].put(a.largest + image * rows + i + group * W);
    });
}
template <typename T> static void transpose_and_argmax(const TransposeArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t rows = a.rows, columns = a.columns, groups = whole_groups<T>(rows, columns);
    // With many columns, single groups would write a little to more cache lines than the first-level cache holds.
    const std::int64_t together = columns > 64 ? groups / 4 * 4 : 0;
    if (together) transpose_and_argmax<4>(a, 0, together);
    if (together < groups) transpose_and_argmax<1>(a, together, groups);
    for (std::int64_t image = 0; image < a.batch; ++image)
        for (std::int64_t i = groups * W; i < rows; ++i) {
            const T* const row = a.x + (image * rows + i) * columns;
            for (std::int64_t j = 0; j < columns; ++j) a.out[(image * columns + j) * rows + i] = row[j];
            a.largest[image * rows + i] = argmax_of_row(row, columns);
        }
}

template <typename T> void transpose_array(const TransposeArgs<T>& a) {
    const T factor = a.slope;
    if (a.largest) transpose_and_argmax(a);
    else transposed(a, [=](Vec<T> v, Vec<T>) { return factor * v; });
}

FWCRF_INSTANTIATE(transpose_array)
FWCRF_INSTANTIATE(transpose_log)
FWCRF_INSTANTIATE(transpose_log_derivative)
FWCRF_INSTANTIATE(argmax)

}  // namespace fwcrf::FWCRF_ISA
