// Splat, blur and slice on a built lattice, and convolution along one axis of a grid.
//
// Work is split into contiguous ranges, one per thread, so that the result depends on the number of
// threads but never on their timing.
#include "kernels.hpp"
#include "lattice_pass.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <cstring>
#ifdef __x86_64__
#include <immintrin.h>
#endif

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

// One channel, as for the sums of rows: a lattice of single values stays in the nearest cache, where one of vectors does
// not. For the symmetric order.
template <typename T, int C> struct Line {
    const FilterArgs<T>& a;
    T* const base;  // four lattices to work in, and one of each thread's own
    Barrier barrier{};

    static std::int64_t size(const FilterArgs<T>& a) { return a.vertices + 1; }
    T* lattice(int number) const { return base + number * size(a); }

    void splat(Range points, T* __restrict values) const {
        const int corners = C ? C : a.corners;
        std::memset(values, 0, size(a) * sizeof(T));
        for (std::int64_t i = points.begin; i < points.end; ++i)
            for (int c = 0; c < corners; ++c) values[a.index[i * corners + c]] += a.splat[i * corners + c] * a.x[i];
    }
    T blurred(const T* source, int axis, std::int64_t v) const {
        const std::int32_t* const pair = a.neighbors + (axis * a.vertices + v) * 2;
        return source[v] + a.tap * (source[pair[0]] + source[pair[1]]);
    }
    // False if this thread met a value that was not finite.
    bool run(Team team) {
        const int corners = C ? C : a.corners, last = corners - 1;
        const Range points = share(a.n, team.thread, team.threads), own = share(a.vertices, team.thread, team.threads);
        splat(points, lattice(4 + team.thread));
        for (int number = 0; number < 4 && team.thread == 0; ++number) lattice(number)[a.vertices] = T(0);
        barrier.wait(team.threads);
        T* const all = lattice(4);
        T nothing = 0;  // 0 * v is not a number unless v is finite
        for (std::int64_t v = own.begin; v < own.end; ++v) {
            for (int t = 1; t < team.threads; ++t) all[v] += lattice(4 + t)[v];
            nothing += all[v] * T(0);
        }
        barrier.wait(team.threads);
        const T *forward = all, *reverse = all;
        for (int j = 0; j < last; ++j) {
            T *const f = lattice(j & 1), *const r = lattice(2 + (j & 1));
            for (std::int64_t v = own.begin; v < own.end; ++v) f[v] = blurred(forward, j, v);
            for (std::int64_t v = own.begin; v < own.end; ++v) r[v] = blurred(reverse, last - j, v);
            barrier.wait(team.threads);
            forward = f;
            reverse = r;
        }
        T* const done = lattice(last & 1);
        for (std::int64_t v = own.begin; v < own.end; ++v)
            done[v] = T(0.5) * (blurred(forward, last, v) + blurred(reverse, 0, v)) + a.identity * all[v];
        barrier.wait(team.threads);
        for (std::int64_t i = points.begin; i < points.end; ++i) {
            T sum = a.shift ? a.shift[i] * a.x[i] : T(0);
            for (int c = 0; c < corners; ++c) sum += a.slice[i * corners + c] * done[a.index[i * corners + c]];
            a.out[i] = sum;
        }
        return nothing == T(0);
    }
};

template <typename T, int C> static bool filter_line(const FilterArgs<T>& a, Scratch& scratch) {
    Line<T, C> line{a, scratch.get<T>((4 + a.threads) * Line<T, C>::size(a))};
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    bad = !line.run(this_team());
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

// Sixteen bytes from each of as many places as fit into a vector.
template <typename T> static inline Vec<T> sixteens(const std::uint64_t* table, const std::int32_t* at) {
    const auto one = [&](int q) { return table + 2 * std::int64_t{at[q]}; };
#if defined(__AVX512F__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    const __m512i low = _mm512_inserti64x2(_mm512_castsi128_si512(part(0)), part(1), 1);
    return (Vec<T>)_mm512_inserti64x2(_mm512_inserti64x2(low, part(2), 2), part(3), 3);
#elif defined(__AVX2__)
    const auto part = [&](int q) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(one(q))); };
    return (Vec<T>)_mm256_inserti128_si256(_mm256_castsi128_si256(part(0)), part(1), 1);
#else
    Vec<T> v;
    std::memcpy(&v, one(0), sizeof(v));
    return v;
#endif
}

// So many points at a time as a vector has lanes.
template <int C, typename T> struct DiagonalRows {
    using Integer = decltype(Vec<T>{} > Vec<T>{});
    static constexpr int W = kLanes<T>;
    static constexpr int kBits = 8 * sizeof(T);
    static constexpr int kParts = 64 / kBits;       // lanes that a word of `open` takes
    static constexpr int kCorners = W / (2 * kParts);  // whose words fit into a vector
    static constexpr int kPadded = (C + kCorners - 1) / kCorners * kCorners;

    Integer down[kPadded][kParts], up[kPadded][kParts];
    Vec<T> weight[C];

    // The points at these places in the arrays.
    DiagonalRows(const DiagonalArgs<T>& a, const std::int64_t (&point)[W]) {
        for (int k = 0; k < kPadded; k += kCorners) {
            Vec<T> square[W];
            for (int l = 0; l < W; ++l) {
                std::int32_t at[kCorners];
                for (int q = 0; q < kCorners; ++q) at[q] = a.index[point[l] * C + (k + q < C ? k + q : 0)];
                square[l] = sixteens<T>(a.open, at);
            }
            transpose<T>(square);
            for (int q = 0; q < kCorners; ++q)
                for (int p = 0; p < kParts; ++p) {
                    down[k + q][p] = (Integer)square[2 * q * kParts + p];
                    up[k + q][p] = (Integer)square[(2 * q + 1) * kParts + p];
                }
        }
        if constexpr (C <= W) {
            // Whole vectors, where rows follow one another and others come after them.
            if (point[W - 1] == point[0] + W - 1 && point[W - 1] * C + W <= a.n * C) {
                Vec<T> square[W];
                for (int l = 0; l < W; ++l) square[l] = load(a.weight + point[l] * C);
                transpose<T>(square);
                for (int k = 0; k < C; ++k) weight[k] = square[k];
                return;
            }
        }
        for (int l = 0; l < W; ++l)
            for (int k = 0; k < C; ++k) weight[k][l] = a.weight[point[l] * C + k];
    }

    // Whether sets of axes are among those of the words.
    static inline Integer among(const Integer (&words)[kParts], Integer axes) {
        if constexpr (kParts == 1) return (words[0] >> axes) & 1;
        else return ((axes >= kBits ? words[1] : words[0]) >> (axes & (kBits - 1))) & 1;
    }

    static inline Vec<T> number(Integer small) {
        if constexpr (sizeof(T) == 4) return __builtin_convertvector(small, Vec<T>);
        // An integer below 2^52 in the low bits of 2^52, read as a double.
        else return (Vec<T>)(small | 0x4330000000000000) - 4503599627370496.0;
    }

    // The quadratic form, and its derivatives, added to 0, if they are asked for.
    template <bool Slopes>
    Vec<T> sums(const Integer (&axis)[C], const T (&power)[C + 1], T identity, Vec<T> (&slope)[C]) const {
        Vec<T> sum{};
        for (int k = 0; k < C; ++k) {
            Vec<T> reached = (T(1) + identity) * weight[k];
            if (Slopes) slope[k] += reached;
            Integer axes{};
            // s steps up the axes that follow corner k lead to corner k + s, and down again.
            for (int s = 1; s <= C; ++s) {
                const int to = (k + s) % C;
                axes |= axis[(k + s - 1) % C];
                const Vec<T> chains = power[s] * number(among(up[k], axes) + among(down[to], axes));
                reached += chains * weight[to];
                if (Slopes) slope[to] += chains * weight[k];
            }
            sum += weight[k] * reached;
            if (Slopes) slope[k] += reached;
        }
        return sum;
    }
};

template <int C, typename T> static void diagonal_rows(const DiagonalArgs<T>& a, Range range) {
    using Rows = DiagonalRows<C, T>;
    constexpr int W = Rows::W;
    T power[C + 1] = {T(1)};
    for (int s = 1; s <= C; ++s) power[s] = power[s - 1] * static_cast<T>(a.tap);
    for (std::int64_t i = range.begin; i < range.end; i += W) {
        std::int64_t point[W];
        for (int l = 0; l < W; ++l) point[l] = i + l < range.end ? i + l : i;
        typename Rows::Integer order, axis[C];
        static_assert(kTabled * kOrderBits < 32, "the order of all axes fits into a lane");
        for (int l = 0; l < W; ++l) order[l] = static_cast<std::int32_t>(a.order[point[l]]);
        for (int k = 0; k < C; ++k) axis[k] = 1 << ((order >> kOrderBits * k) & 31);
        const Rows rows(a, point);
        const T identity = static_cast<T>(a.identity);
        Vec<T> slope[C] = {};
        const Vec<T> sum = a.slopes ? rows.template sums<true>(axis, power, identity, slope)
                                    : rows.template sums<false>(axis, power, identity, slope);
        if (i + W <= range.end) store(a.out + i, sum);
        else store_part(a.out + i, sum, range.end - i);
        for (int l = 0; a.slopes && l < W && i + l < range.end; ++l)
            for (int k = 0; k < C; ++k) a.slopes[(i + l) * C + k] = slope[k][l];
    }
}

template <typename T> static void diagonal(const DiagonalArgs<T>& a) {
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads)
#endif
    for (int part = 0; part < a.threads; ++part) {
        const Range range = share(a.n, part, a.threads);
        switch (a.corners) {
        case 2: diagonal_rows<2>(a, range); break;
        case 3: diagonal_rows<3>(a, range); break;
        case 4: diagonal_rows<4>(a, range); break;
        case 5: diagonal_rows<5>(a, range); break;
        default: diagonal_rows<6>(a, range); break;
        }
    }
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
