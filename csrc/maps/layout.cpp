// Transposes between a network's layout, channel after channel, and the library's, pixel after pixel; with logarithms
// and argmax in the same pass.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "simd/math.hpp"
#include "simd/rows.hpp"

namespace fwcrf::FWCRF_ISA {

// Calls act(tile, v, at, j, fresh) with vectors v of column j of x, transposed: their place in the output is `at`. In
// squares of W x W entries; the last square ends with the row or column, and `fresh` has the lanes that came in no
// square before. A tile that is narrower than a square is transposed entry by entry: one(tile, x, at, j). read(place in
// x) is the vector there. `tile` is made by begin(), and given to end(tile).
template <typename T, typename R, typename B, typename F, typename G, typename E>
static void in_squares(const TransposeArgs<T>& a, R&& read, B&& begin, F&& act, G&& one, E&& end) {
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
        const std::int64_t whole = image * rows * columns;
        auto work = begin();
        if (i1 - i0 < W || j1 - j0 < W) {
            for (std::int64_t i = i0; i < i1; ++i)
                for (std::int64_t j = j0; j < j1; ++j) one(work, whole + i * columns + j, whole + j * rows + i, j);
            return end(work);
        }
        const Int<T> number = lanes_of<Int<T>>([](int l) { return l; });
        for (std::int64_t i = i0; i < i1; i += W)
            for (std::int64_t j = j0; j < j1; j += W) {
                const std::int64_t r = i + W <= i1 ? i : i1 - W, c = j + W <= j1 ? j : j1 - W;
                Vec<T> square[W];
                for (int k = 0; k < W; ++k) {
                    const std::int64_t at = whole + (r + k) * columns + c;
                    if (wide) __builtin_prefetch(a.x + at + kTile);
                    square[k] = read(at);
                }
                transpose<T>(square);
                for (int k = 0; k < W; ++k) {
                    const std::int64_t at = whole + (c + k) * rows + r;
                    if (!wide) __builtin_prefetch(a.out + at + kTile, 1);
                    const auto before = static_cast<decltype(lane(number, 0) + 0)>(c + k < j ? W : i - r);
                    act(work, square[k], at, c + k, number >= before);
                }
            }
        end(work);
    });
}
// out[b][j][i] = act(x[b][i][j], beside[b][j][i]), where `beside` may be null.
template <typename T, typename F> static void transposed(const TransposeArgs<T>& a, F&& act) {
    const T* const beside = a.beside ? a.beside : a.x;
    in_squares(
        a, [&](std::int64_t at) { return load(a.x + at); }, [] { return 0; },
        [&](int, Vec<T> v, std::int64_t at, std::int64_t, Mask<T>) { store(a.out + at, act(v, load(beside + at))); },
        [&](int, std::int64_t from, std::int64_t at, std::int64_t) {
            a.out[at] = lane(act(fill(a.x[from]), fill(beside[at])), 0);
        },
        [](int) {});
}

template <typename T> void transpose_log(const TransposeArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    if (!a.blended) return transposed(a, [=](Vec<T> v, Vec<T>) { return log<T>(slope * v + offset); });
    const auto blend = [&](auto x, auto y) { return x + a.share * (y - x); };
    in_squares(
        a, [&](std::int64_t at) { return blend(load(a.x + at), load(a.blended + at)); }, [] { return 0; },
        [&](int, Vec<T> v, std::int64_t at, std::int64_t, Mask<T>) { store(a.out + at, log<T>(slope * v + offset)); },
        [&](int, std::int64_t from, std::int64_t at, std::int64_t) {
            a.out[at] = lane(log<T>(fill(slope * blend(a.x[from], a.blended[from]) + offset)), 0);
        },
        [](int) {});
}
template <typename T> void transpose_log_derivative(const TransposeArgs<T>& a) {
    const T slope = a.slope, offset = a.offset;
    transposed(a, [=](Vec<T> g, Vec<T> x) { return slope * g / (slope * x + offset); });
}

// The same for a blend of `beside` and `blended`.
template <typename T> void blend_log_derivative(const TransposeArgs<T>& a, BlendSlopes<T>& found) {
    const T slope = a.slope, offset = a.offset, share = a.share;
    const auto both = [=](auto g, auto x, auto y) { return slope * g / (slope * (x + share * (y - x)) + offset); };
    found.share = 0;
    in_squares(
        a, [&](std::int64_t at) { return load(a.x + at); }, [] { return Vec<T>{}; },
        [&](Vec<T>& sum, Vec<T> g, std::int64_t at, std::int64_t, Mask<T> fresh) {
            const Vec<T> x = load(a.beside + at), y = load(a.blended + at), d = both(g, x, y), of_y = share * d;
            store(a.out + at, d - of_y);
            store(found.blended + at, of_y);
            sum += select(fresh, d * (y - x), Vec<T>{});
        },
        [&](Vec<T>& sum, std::int64_t from, std::int64_t at, std::int64_t) {
            const T x = a.beside[at], y = a.blended[at], d = both(a.x[from], x, y);
            a.out[at] = d - share * d;
            found.blended[at] = share * d;
            set_lane(sum, 0, lane(sum, 0) + d * (y - x));
        },
        [&](Vec<T> sum) {
            const double all = static_cast<double>(total<T>(sum));
            const Alone alone;
            found.share += all;
        });
}

template <typename T> void transpose_and_sum(const TransposeArgs<T>& a, double* sums) {
    struct Sums {
        Vec<T> of_column[kMostSums], dots;  // of a tile
    };
    in_squares(
        a, [&](std::int64_t at) { return load(a.x + at); }, [] { return Sums{}; },
        [&](Sums& sum, Vec<T> v, std::int64_t at, std::int64_t j, Mask<T> fresh) {
            store(a.out + at, a.slope * v);
            v = select(fresh, v, Vec<T>{});
            sum.of_column[j] += v;
            sum.dots += v * load(a.beside + at);
        },
        [&](Sums& sum, std::int64_t from, std::int64_t at, std::int64_t j) {
            const T v = a.x[from];
            a.out[at] = a.slope * v;
            set_lane(sum.of_column[j], 0, lane(sum.of_column[j], 0) + v);
            set_lane(sum.dots, 0, lane(sum.dots, 0) + v * a.beside[at]);
        },
        [&](const Sums& sum) {
            const Alone alone;
            for (std::int64_t j = 0; j < a.columns; ++j) sums[j] += static_cast<double>(total<T>(sum.of_column[j]));
            sums[a.columns] += static_cast<double>(total<T>(sum.dots));
        });
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
FWCRF_INSTANTIATE(blend_log_derivative)
FWCRF_INSTANTIATE(transpose_and_sum)
FWCRF_INSTANTIATE(argmax)

}  // namespace fwcrf::FWCRF_ISA
