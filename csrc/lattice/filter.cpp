// The lattice filter: splat, blur, slice.
//
// The work is split into contiguous ranges, one per thread: the result depends on the number of threads, never on their
// timing.
#include "bind/functions.hpp"
#include "lattice/blur.hpp"
#include "lattice/single.hpp"
#include "runtime/scratch.hpp"
#include "simd/product.hpp"

namespace fwcrf::FWCRF_ISA {

// False if a value is not finite. The lattice is checked, which is smaller than the image.
template <typename T, int NV, int C, int G>
static bool filter_panel(const FilterArgs<T>& a, std::int64_t first, std::int64_t width, std::int64_t groups,
                         Scratch& scratch) {
    const Pass<T, NV, C, G> pass{a, first, width, groups};
    BlurredLattice<T> lattice{};
    lattice.base = scratch.get<T>(lattice.plan(a, pass.stride()));
    Any bad;
    in_parallel(a.threads, [&](Team team) {
        bad |= !lattice.fill(pass, team);
        pass.slice(share(a.n, team.thread, team.threads), lattice.result());
    });
    return !bad;
}

// One channel.
template <typename T, int C> static bool filter_line(const FilterArgs<T>& a, Scratch& scratch) {
    SingleLattice<T> lattice{a.vertices, a.corners, a.neighbors, a.tap, a.identity, a.order};
    lattice.base = scratch.get<T>(lattice.room(a.threads));
    Any bad;
    in_parallel(a.threads, [&](Team team) {
        const Range points = share(a.n, team.thread, team.threads);
        const T* const x = a.x;
        lattice.template splat<C>(
            a.index, a.splat, points, [x](std::int64_t i) { return x[i]; }, lattice.cleared(team));
        bad |= !lattice.blur(team);
        for (std::int64_t i = points.begin; i < points.end; ++i)
            a.out[i] = lattice.template slice<C>(a.index, a.slice, i) + (a.shift ? a.shift[i] * x[i] : T(0));
    });
    return !bad;
}

template <typename T, int C> static bool filter_any(const FilterArgs<T>& a, Scratch& scratch) {
    constexpr int W = kLanes<T>;
    if (a.channels == 1) return filter_line<T, C>(a, scratch);
    constexpr std::int64_t group = 4 * W;
    switch (a.channels > group ? 5 : (a.channels + W - 1) / W) {
    case 1: return filter_panel<T, 1, C, 1>(a, 0, a.channels, 1, scratch);
    case 2: return filter_panel<T, 2, C, 1>(a, 0, a.channels, 1, scratch);
    case 3: return filter_panel<T, 3, C, 1>(a, 0, a.channels, 1, scratch);
    case 4: return filter_panel<T, 4, C, 1>(a, 0, a.channels, 1, scratch);
    default: break;
    }
    // As wide as the scratch memory allows: every panel reads and writes the image.
    constexpr std::int64_t bytes = std::int64_t{64} << 20;
    const std::int64_t fit = bytes / (5 * (a.vertices + 1) * group * std::int64_t{sizeof(T)});
    const std::int64_t total = (a.channels + group - 1) / group;
    const std::int64_t panel = fit < 2 ? 2 : fit;
    bool finite = true;
    for (std::int64_t done = 0; done < total; done += panel) {
        // Never a single group at the end: only several groups end with the last channel.
        std::int64_t begin = done, groups = total - done < panel ? total - done : panel;
        if (groups == 1) begin = done - 1, groups = 2;
        finite &= filter_panel<T, 4, C, 0>(a, begin * group, group, groups, scratch);
    }
    return finite;
}

template <typename T> bool filter(const FilterArgs<T>& a) {
    thread_local Scratch scratch;
    // Position and colour, position and grey, and position are unrolled.
    const bool finite = a.corners == 6   ? filter_any<T, 6>(a, scratch)
                        : a.corners == 4 ? filter_any<T, 4>(a, scratch)
                        : a.corners == 3 ? filter_any<T, 3>(a, scratch)
                                         : filter_any<T, 0>(a, scratch);
    scratch.trim();
    return finite;
}

// Pixels whose rows stay in the first-level cache.
constexpr std::int64_t kRowsAtOnce = 64;

// The matrix as pad_rows copies it; null for null.
template <typename T, int NV> static const T* padded(const T* matrix, std::int64_t labels, T* to) {
    if (matrix) pad_rows<T, NV>(matrix, labels, to);
    return matrix ? to : nullptr;
}

// Rows of points, times a matrix if there is one.
template <typename T, int NV, typename P>
static void read_rows(const P& pass, const T* from, Range points, const T* matrix, T* rows) {
    constexpr std::int64_t W = kLanes<T>, row = NV * W;
    alignas(64) T read[kRowsAtOnce * row];
    T* const to = matrix ? read : rows;
    for (std::int64_t i = points.begin; i < points.end; ++i) {
        Vec<T> v[NV];
        prefetch(from + (i + kRowsAtOnce) * pass.a.channels, row);
        pass.read(from + i * pass.a.channels, false, v);
        for (int k = 0; k < NV; ++k) store(to + (i - points.begin) * row + k * W, v[k]);
    }
    if (!matrix) return;
    const std::int64_t count = points.end - points.begin;
    std::memset(rows, 0, count * row * sizeof(T));
    add_products<T, NV>(to, matrix, pass.a.channels, count, rows);
}

// See corner_dots; for one group of channels. With `Both`, the lattice of `left` lies behind the one of x.
template <typename T, int NV, int C, bool Both>
static void corner_panel(const FilterArgs<T>& a, const T* left, const T* given, T* dots, T* products,
                         Scratch& scratch) {
    constexpr int W = kLanes<T>;
    constexpr std::int64_t row = NV * W;
    FilterArgs<T> swapped = a;
    swapped.x = left;
    const Pass<T, NV, C, 1> pass{a, 0, a.channels, 1}, other{swapped, 0, a.channels, 1};
    BlurredLattice<T> lattice{}, second{};
    const std::int64_t needed = lattice.plan(a, row), more = Both ? second.plan(swapped, row) : 0;
    lattice.base = scratch.get<T>(needed + more + a.channels * row);
    second.base = lattice.base + needed;
    const T* const matrix = padded<T, NV>(given, a.channels, second.base + more);
    Barrier barrier;
    in_parallel(a.threads, [&](Team team) {
        lattice.fill(pass, team);
        if (Both) second.fill(other, team);
        T* const values = const_cast<T*>(lattice.result());
        const T* const others = Both ? second.result() : nullptr;
        const Range vertices = share(a.vertices, team.thread, team.threads);
        for (std::int64_t v = vertices.begin; matrix && v < vertices.end; v += kRowsAtOnce) {
            const std::int64_t count = v + kRowsAtOnce < vertices.end ? kRowsAtOnce : vertices.end - v;
            alignas(64) T read[kRowsAtOnce * row];
            std::memcpy(read, values + v * row, count * row * sizeof(T));
            std::memset(values + v * row, 0, count * row * sizeof(T));
            add_products<T, NV>(read, matrix, a.channels, count, values + v * row);
        }
        barrier.wait(team.threads);
        alignas(64) T ours[kRowsAtOnce * row], more_rows[kRowsAtOnce * row];
        T* const theirs = Both ? more_rows : ours;
        // The sums of W vectors at a time: a sum along a vector takes longer than its products.
        const auto points = [&](auto together, std::int64_t i, const T* v, const T* w) {
            const int corners = C ? C : a.corners, each = corners + Both, all = decltype(together)::value * each;
            for (int first = 0; first < all; first += W) {
                Vec<T> sum[W] = {};
#pragma GCC unroll 16
                for (int r = 0; r < W; ++r) {
                    if (first + r >= all) break;
                    const int q = (first + r) / each, c = (first + r) % each;
                    const T *const here = v + q * row, *const there = w + q * row;
                    const std::int64_t at = c < corners ? a.index[(i + q) * corners + c] * row : 0;
                    for (int k = 0; k < NV; ++k) {
                        const Vec<T> other = c < corners ? load(values + at + k * W) : load(there + k * W);
                        sum[r] += load(here + k * W) * other;
                        if (Both && c < corners) sum[r] += load(there + k * W) * load(others + at + k * W);
                    }
                }
                const Vec<T> found = sums<T>(sum);
                T* const to = dots + i * corners + first;
                if (!Both) {
                    store_some(to, load_some(to, all - first) + found, all - first);
                    continue;
                }
#pragma GCC unroll 16
                for (int r = 0; r < W; ++r) {
                    if (first + r >= all) break;
                    const int q = (first + r) / each, c = (first + r) % each;
                    (c < corners ? dots[(i + q) * corners + c] : products[i + q]) += found[r];
                }
            }
        };
        constexpr int kTogether = C && C + Both <= W ? W / (C + Both) : 1;
        const Range mine = share(a.n, team.thread, team.threads);
        for (std::int64_t i = mine.begin; i < mine.end; i += kRowsAtOnce) {
            const Range some{i, i + kRowsAtOnce < mine.end ? i + kRowsAtOnce : mine.end};
            read_rows<T, NV>(pass, left, some, nullptr, ours);
            if (Both) read_rows<T, NV>(pass, a.x, some, matrix, theirs);
            std::int64_t q = 0;
            for (; q + kTogether <= some.end - i; q += kTogether)
                points(std::integral_constant<int, kTogether>{}, i + q, ours + q * row, theirs + q * row);
            for (; q < some.end - i; ++q)
                points(std::integral_constant<int, 1>{}, i + q, ours + q * row, theirs + q * row);
        }
    });
}

// The same for one channel.
template <typename T, int C>
static void corner_line(const FilterArgs<T>& a, const T* left, T* dots, T* products, Scratch& scratch) {
    SingleLattice<T> lattice{a.vertices, a.corners, a.neighbors, a.tap, a.identity, a.order};
    SingleLattice<T> second{a.vertices, a.corners, a.neighbors, a.tap, a.identity, a.order};
    lattice.base = scratch.get<T>(2 * lattice.room(a.threads));
    second.base = lattice.base + lattice.room(a.threads);
    in_parallel(a.threads, [&](Team team) {
        const Range points = share(a.n, team.thread, team.threads);
        const auto fill = [&](SingleLattice<T>& into, const T* from) {
            into.template splat<C>(
                a.index, a.splat, points, [from](std::int64_t i) { return from[i]; }, into.cleared(team));
            into.blur(team);
        };
        fill(lattice, a.x);
        if (products) fill(second, left);
        const T *const values = lattice.result(), *const others = second.result();
        const int corners = C ? C : a.corners;
        for (std::int64_t i = points.begin; i < points.end; ++i) {
            for (std::int64_t m = i * corners; m < (i + 1) * corners; ++m)
                dots[m] += left[i] * values[a.index[m]] + (products ? a.x[i] * others[a.index[m]] : T(0));
            if (products) products[i] += left[i] * a.x[i];
        }
    });
}

template <typename T, int C, bool Both>
static void corner_dots_any(const FilterArgs<T>& a, const T* left, const T* matrix, T* dots, T* products,
                            Scratch& scratch) {
    if (a.channels == 1 && !matrix) return corner_line<T, C>(a, left, dots, Both ? products : nullptr, scratch);
    switch ((a.channels + kLanes<T> - 1) / kLanes<T>) {
    case 1: return corner_panel<T, 1, C, Both>(a, left, matrix, dots, products, scratch);
    case 2: return corner_panel<T, 2, C, Both>(a, left, matrix, dots, products, scratch);
    case 3: return corner_panel<T, 3, C, Both>(a, left, matrix, dots, products, scratch);
    default: return corner_panel<T, 4, C, Both>(a, left, matrix, dots, products, scratch);
    }
}
template <typename T> void corner_dots(const FilterArgs<T>& a, const T* left, const T* matrix, T* dots, T* products) {
    thread_local Scratch scratch;
    if (products && a.corners == 6) corner_dots_any<T, 6, true>(a, left, matrix, dots, products, scratch);
    else if (products) corner_dots_any<T, 0, true>(a, left, matrix, dots, products, scratch);
    else corner_dots_any<T, 0, false>(a, left, nullptr, dots, nullptr, scratch);
    scratch.trim();
}

// See row_products; for rows of NV vectors.
template <typename T, int NV>
static void row_products_of(const FilterArgs<T>& a, const T* left, const T* given, T* out) {
    constexpr int W = kLanes<T>;
    constexpr std::int64_t row = NV * W;
    const Pass<T, NV, 0, 1> pass{a, 0, a.channels, 1};
    Scratch scratch;
    const T* const matrix = padded<T, NV>(given, a.channels, scratch.get<T>(a.channels * row));
    in_parallel(a.threads, [&](Team team) {
        alignas(64) T ours[kRowsAtOnce * row], theirs[kRowsAtOnce * row];
        const Range mine = share(a.n, team.thread, team.threads);
        for (std::int64_t i = mine.begin; i < mine.end; i += kRowsAtOnce) {
            const Range some{i, i + kRowsAtOnce < mine.end ? i + kRowsAtOnce : mine.end};
            read_rows<T, NV>(pass, left, some, nullptr, ours);
            read_rows<T, NV>(pass, a.x, some, matrix, theirs);
            for (std::int64_t q = 0; q < some.end - i; q += W) {
                Vec<T> sum[W] = {};
                for (int r = 0; r < W && i + q + r < some.end; ++r)
                    for (int k = 0; k < NV; ++k)
                        sum[r] += load(ours + (q + r) * row + k * W) * load(theirs + (q + r) * row + k * W);
                const std::int64_t left_over = some.end - i - q;
                store_some(out + i + q, load_some(out + i + q, left_over) + sums<T>(sum), left_over);
            }
        }
    });
}
template <typename T> void row_products(const FilterArgs<T>& a, const T* left, const T* matrix, T* out) {
    switch ((a.channels + kLanes<T> - 1) / kLanes<T>) {
    case 1: return row_products_of<T, 1>(a, left, matrix, out);
    case 2: return row_products_of<T, 2>(a, left, matrix, out);
    case 3: return row_products_of<T, 3>(a, left, matrix, out);
    default: return row_products_of<T, 4>(a, left, matrix, out);
    }
}

FWCRF_INSTANTIATE(filter)
FWCRF_INSTANTIATE(corner_dots)
FWCRF_INSTANTIATE(row_products)

}  // namespace fwcrf::FWCRF_ISA
