// Splat, blur and slice on a built lattice, and convolution along one axis of a grid.
//
// Work is split into contiguous ranges, one per thread, so that the result depends on the number of
// threads but never on their timing.
#include "diagonal_rows.hpp"
#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "open_sets.hpp"
#include "scratch.hpp"
#include "single_lattice.hpp"
#include "vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// False if a value was not finite: it shows in the lattice, which is smaller than the image.
template <typename T, int NV, int C, int G>
static bool filter_panel(const FilterArgs<T>& a, std::int64_t first, std::int64_t width,
                         std::int64_t groups, Scratch& scratch) {
    const Pass<T, NV, C, G> pass{a, first, width, groups};
    Blurred<T> lattice{};
    lattice.base = scratch.get<T>(lattice.plan(a, pass.stride()));
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    {
        const Team team = this_team();
        bad = !lattice.fill(pass, team);
        pass.slice(share(a.n, team.thread, team.threads), lattice.result());
    }
    return !bad;
}

// One channel.
template <typename T, int C> static bool filter_line(const FilterArgs<T>& a, Scratch& scratch) {
    SingleLattice<T> lattice{a.vertices, a.corners, a.neighbors, a.tap, a.identity};
    lattice.base = scratch.get<T>(lattice.room(a.threads));
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    {
        const Team team = this_team();
        const Range points = share(a.n, team.thread, team.threads);
        const T* const x = a.x;
        lattice.template splat<C>(a.index, a.splat, points, [x](std::int64_t i) { return x[i]; }, lattice.cleared(team));
        bad = !lattice.blur(team);
        for (std::int64_t i = points.begin; i < points.end; ++i)
            a.out[i] = lattice.template slice<C>(a.index, a.slice, i) + (a.shift ? a.shift[i] * x[i] : T(0));
    }
    return !bad;
}

template <typename T, int C> static bool filter(const FilterArgs<T>& a, Scratch& scratch) {
    constexpr int W = kLanes<T>;
    if (a.channels == 1 && a.order == BlurOrder::symmetric) return filter_line<T, C>(a, scratch);
    constexpr std::int64_t group = 4 * W;
    switch (a.channels > group ? 5 : (a.channels + W - 1) / W) {
    case 1: return filter_panel<T, 1, C, 1>(a, 0, a.channels, 1, scratch);
    case 2: return filter_panel<T, 2, C, 1>(a, 0, a.channels, 1, scratch);
    case 3: return filter_panel<T, 3, C, 1>(a, 0, a.channels, 1, scratch);
    case 4: return filter_panel<T, 4, C, 1>(a, 0, a.channels, 1, scratch);
    default: break;
    }
    // As wide as the scratch memory allows: each panel reads and writes the image once.
    constexpr std::int64_t bytes = std::int64_t{64} << 20;
    const std::int64_t fit = bytes / (5 * (a.vertices + 1) * group * std::int64_t{sizeof(T)});
    const std::int64_t total = (a.channels + group - 1) / group;
    const std::int64_t panel = fit < 2 ? 2 : fit;
    bool finite = true;
    for (std::int64_t done = 0; done < total; done += panel) {
        // Never a single group at the end: only several end with the last channel.
        std::int64_t begin = done, groups = total - done < panel ? total - done : panel;
        if (groups == 1) begin = done - 1, groups = 2;
        finite &= filter_panel<T, 4, C, 0>(a, begin * group, group, groups, scratch);
    }
    return finite;
}

template <typename T> static bool filter(const FilterArgs<T>& a) {
    thread_local Scratch scratch;
    // Position and colour, or position and grey: worth unrolling.
    const bool finite = a.corners == 6   ? filter<T, 6>(a, scratch)
                        : a.corners == 4 ? filter<T, 4>(a, scratch)
                                         : filter<T, 0>(a, scratch);
    scratch.trim();
    return finite;
}

// dots_ic += <left_i, value at corner c of point i>, for as many channels as one group has.
template <typename T, int NV, int C> static void corner_panel(const FilterArgs<T>& a, const T* left, T* dots, Scratch& scratch) {
    const Pass<T, NV, C, 1> pass{a, 0, a.channels, 1};
    Blurred<T> lattice{};
    lattice.base = scratch.get<T>(lattice.plan(a, pass.stride()));
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        const Team team = this_team();
        lattice.fill(pass, team);
        const T* const values = lattice.result();
        const int corners = C ? C : a.corners;
        const Range mine = share(a.n, team.thread, team.threads);
        for (std::int64_t i = mine.begin; i < mine.end; ++i) {
            Vec<T> v[NV];
            pass.read(left + i * a.channels, false, v);
            for (int c = 0; c < corners; ++c) {
                const T* const row = values + a.index[i * corners + c] * pass.stride();
                Vec<T> sum{};
                for (int k = 0; k < NV; ++k) sum += v[k] * load(row + k * kLanes<T>);
                T total = 0;
                for (int l = 0; l < kLanes<T>; ++l) total += sum[l];
                dots[i * corners + c] += total;
            }
        }
    }
}

template <typename T, int C> static void corner_dots(const FilterArgs<T>& a, const T* left, T* dots, Scratch& scratch) {
    switch ((a.channels + kLanes<T> - 1) / kLanes<T>) {
    case 1: return corner_panel<T, 1, C>(a, left, dots, scratch);
    case 2: return corner_panel<T, 2, C>(a, left, dots, scratch);
    case 3: return corner_panel<T, 3, C>(a, left, dots, scratch);
    default: return corner_panel<T, 4, C>(a, left, dots, scratch);
    }
}
template <typename T> static void corner_dots(const FilterArgs<T>& a, const T* left, T* dots) {
    thread_local Scratch scratch;
    a.corners == 6 ? corner_dots<T, 6>(a, left, dots, scratch) : corner_dots<T, 0>(a, left, dots, scratch);
    scratch.trim();
}
void corner_dots_f32(const FilterArgs<float>& a, const float* left, float* dots) { corner_dots(a, left, dots); }
void corner_dots_f64(const FilterArgs<double>& a, const double* left, double* dots) { corner_dots(a, left, dots); }

template <int C, typename T> static void diagonal_rows(const DiagonalArgs<T>& a, const std::uint64_t* open, Range range) {
    using Rows = DiagonalRows<C, T>;
    constexpr int W = Rows::W;
    const typename Rows::Taps taps(a.tap, a.identity);
    for (std::int64_t i = range.begin; i < range.end; i += W) {
        const Rows rows(a, open, i, range.end);
        Vec<T> slope[C] = {};
        const Vec<T> sum = a.slopes ? rows.template sums<true>(taps, slope) : rows.template sums<false>(taps, slope);
        if (i + W <= range.end) store(a.out + i, sum);
        else store_part(a.out + i, sum, range.end - i);
        for (int l = 0; a.slopes && l < W && i + l < range.end; ++l)
            for (int k = 0; k < C; ++k) a.slopes[(i + l) * C + k] = slope[k][l];
    }
}

template <typename T> static void diagonal(const DiagonalArgs<T>& a) {
    thread_local Scratch scratch;
    OpenSets sets(a.vertices, a.corners, a.neighbors, scratch);
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        const Team team = this_team();
        const std::uint64_t* const open = sets.find(team);
        const Range range = share(a.n, team.thread, team.threads);
        switch (a.corners) {
        case 2: diagonal_rows<2>(a, open, range); break;
        case 3: diagonal_rows<3>(a, open, range); break;
        case 4: diagonal_rows<4>(a, open, range); break;
        case 5: diagonal_rows<5>(a, open, range); break;
        default: diagonal_rows<6>(a, open, range); break;
        }
    }
    scratch.trim();
}

void diagonal_f32(const DiagonalArgs<float>& a) { diagonal(a); }
void diagonal_f64(const DiagonalArgs<double>& a) { diagonal(a); }

// Some columns of x, of one outer index, with zeros above and below: a step along the axis is `width` values.
template <typename T> struct Tile {
    static constexpr std::int64_t kUnit = 4 * kLanes<T>;  // `padded` is a multiple of it

    std::int64_t at, width, size, padded;  // its first entry in the arrays, and its values
    T *values, *room;                      // in memory, and as many again

    Tile(const AxisArgs<T>& a, std::int64_t outer, Range columns, Scratch& scratch)
        : at(outer * a.length * a.inner + columns.begin), width(columns.end - columns.begin), size(a.length * width),
          padded((size + kUnit - 1) / kUnit * kUnit) {
        const std::int64_t margin = a.radius * width;
        values = scratch.get<T>(2 * margin + 2 * padded) + margin;
        room = values + padded + margin;
        std::memset(values - margin, 0, margin * sizeof(T));
        std::memset(values + size, 0, (padded - size + margin) * sizeof(T));
        read(a, a.x, values);
    }
    void read(const AxisArgs<T>& a, const T* array, T* to) const {
        for (std::int64_t i = 0; i < a.length; ++i)
            std::memcpy(to + i * width, array + at + i * a.inner, width * sizeof(T));
    }
    void write(const AxisArgs<T>& a, const T* from) const {
        for (std::int64_t i = 0; i < a.length; ++i)
            std::memcpy(a.out + at + i * a.inner, from + i * width, width * sizeof(T));
    }
};

constexpr std::int64_t kWidest = 64;  // columns of a tile
template <typename T> static std::int64_t tiles(const AxisArgs<T>& a) {
    return a.length ? a.outer * ((a.inner + kWidest - 1) / kWidest) : 0;
}

// act(number, tile) for all of them.
template <typename T, typename F> static void for_tiles(const AxisArgs<T>& a, F&& act) {
    const std::int64_t strips = (a.inner + kWidest - 1) / kWidest;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        Scratch scratch;
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (std::int64_t k = 0; k < tiles(a); ++k) {
            const Range columns = share(a.inner, static_cast<int>(k % strips), static_cast<int>(strips));
            act(k, Tile<T>(a, k / strips, columns, scratch));
        }
    }
}

template <typename T> static void axis(const AxisArgs<T>& a) {
    constexpr int W = kLanes<T>, unroll = 4;
    for_tiles(a, [&](std::int64_t, const Tile<T>& tile) {
        for (std::int64_t p = 0; p < tile.size; p += unroll * W) {
            const T* const centre = tile.values + p;
            Vec<T> sum[unroll];
            for (int k = 0; k < unroll; ++k) sum[k] = a.taps[0] * load(centre + k * W);
            for (std::int64_t t = 1; t <= a.radius; ++t) {
                const T tap = a.taps[t];
                const T* before = centre - t * tile.width;
                const T* after = centre + t * tile.width;
                for (int k = 0; k < unroll; ++k) sum[k] += tap * (load(before + k * W) + load(after + k * W));
            }
            for (int k = 0; k < unroll; ++k) store(tile.room + p + k * W, sum[k]);
        }
        tile.write(a, tile.room);
    });
}

// What each tap of a filter along the axis has to do with <g, filtered x>, with g as `out`.
template <typename T> static void tap_slopes(const AxisArgs<T>& a, double* slopes) {
    constexpr int W = kLanes<T>;
    constexpr std::int64_t kStretch = 512;  // that stays in the first-level cache for all taps
    const std::int64_t taps = a.radius + 1;
    thread_local Scratch memory;
    double* const each = memory.get<double>(tiles(a) * taps);
    for_tiles(a, [&](std::int64_t k, const Tile<T>& tile) {
        tile.read(a, a.out, tile.room);
        std::memset(tile.room + tile.size, 0, (tile.padded - tile.size) * sizeof(T));
        double* const own = each + k * taps;
        for (std::int64_t t = 0; t < taps; ++t) own[t] = 0;
        for (std::int64_t first = 0; first < tile.padded; first += kStretch) {
            const std::int64_t end = first + kStretch < tile.padded ? first + kStretch : tile.padded;
            for (std::int64_t t = 0; t < taps; ++t) {
                const T* const before = tile.values - t * tile.width;
                const T* const after = tile.values + t * tile.width;
                Vec<T> sum[4] = {};
                for (std::int64_t p = first; p < end; p += 4 * W)
                    for (int j = 0; j < 4; ++j) {
                        const std::int64_t q = p + j * W;
                        sum[j] += load(tile.room + q) * (t ? load(before + q) + load(after + q) : load(after + q));
                    }
                sum[0] += sum[1] + sum[2] + sum[3];
                for (int l = 0; l < W; ++l) own[t] += sum[0][l];
            }
        }
    });
    for (std::int64_t t = 0; t < taps; ++t) slopes[t] = 0;
    for (std::int64_t k = 0; k < tiles(a); ++k)
        for (std::int64_t t = 0; t < taps; ++t) slopes[t] += each[k * taps + t];
    memory.trim();
}

void tap_slopes_f32(const AxisArgs<float>& a, double* slopes) { tap_slopes(a, slopes); }
void tap_slopes_f64(const AxisArgs<double>& a, double* slopes) { tap_slopes(a, slopes); }
void axis_f32(const AxisArgs<float>& a) { axis(a); }
void axis_f64(const AxisArgs<double>& a) { axis(a); }

bool filter_f32(const FilterArgs<float>& a) { return filter(a); }
bool filter_f64(const FilterArgs<double>& a) { return filter(a); }

}  // namespace fwcrf::FWCRF_ISA
