// Sums over the edges of a sparse graph, and their derivatives: inner and outer products per edge.
//
// Sums are computed node by node, so that no two threads write to the same place, and in the order of the edges: the
// result does not depend on the number of threads.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "simd/vectors.hpp"

namespace fwcrf::FWCRF_ISA {

// Vectors of a row that are summed together, in registers.
constexpr int kAtOnce = 4;

template <typename T> static inline T total(const T* row, std::int64_t count) {
    constexpr int W = kLanes<T>;
    Vec<T> sum{};
    std::int64_t at = 0;
    for (; at + W <= count; at += W) sum += load(row + at);
    T lane[W];
    store(lane, sum);
    for (int half = W / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    T rest = lane[0];
    for (; at < count; ++at) rest += row[at];
    return rest;
}

template <typename T> static inline T dot(const T* a, const T* b, std::int64_t count) {
    constexpr int W = kLanes<T>;
    Vec<T> sum{};
    std::int64_t at = 0;
    for (; at + W <= count; at += W) sum += load(a + at) * load(b + at);
    T lane[W];
    store(lane, sum);
    for (int half = W / 2; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lane[l] += lane[l + half];
    T rest = lane[0];
    for (; at < count; ++at) rest += a[at] * b[at];
    return rest;
}

// The nodes of one of `parts` threads: all threads have about the same number of nodes plus ends of edges.
static inline Range nodes(const Adjacency& g, int part, int parts) {
    const std::int64_t work = g.first[g.n] + g.n;
    std::int64_t bound[2];
    for (int end = 0; end < 2; ++end) {
        const std::int64_t wanted = work * (part + end) / parts;
        std::int64_t low = 0, high = g.n;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (g.first[middle] + middle < wanted) low = middle + 1;
            else high = middle;
        }
        bound[end] = low;
    }
    return {bound[0], bound[1]};
}

// row = sum over the edges of node i of weight x_j, for NV vectors of the channels. A row shorter than a vector is read
// past its end, except at the end of the array.
template <typename T, int NV, bool uniform>
static inline void gather(const EdgeArgs<T>& a, std::int64_t i, const std::int64_t (&at)[NV], std::int64_t safe,
                          T* row) {
    const Adjacency& g = a.graph;
    const T side[2] = {T(1), a.turned};
    Vec<T> sum[NV]{};
    for (std::int64_t e = g.first[i]; e < g.first[i + 1]; ++e) {
        const std::int64_t j = g.neighbor[e];
        const T* x = a.x + j * a.channels;
        const T weight = uniform ? T(1) : a.weight[a.uniform ? 0 : g.slot[e] >> 1] * side[g.slot[e] & 1];
        for (int k = 0; k < NV; ++k) {
            const Vec<T> v = j < safe ? load(x + at[k]) : load_part(x + at[k], a.channels);
            if (uniform) sum[k] += v;
            else sum[k] += weight * v;
        }
    }
    for (int k = 0; k < NV; ++k) {
        if (uniform) sum[k] *= a.weight[0];
        store(row + at[k], sum[k]);
    }
}

// out = unary + (row) M; false if the row is not finite.
template <typename T> static inline bool finish(const EdgeArgs<T>& a, std::int64_t i, const T* __restrict row) {
    const std::int64_t L = a.channels;
    T* __restrict out = a.out + i * L;
    const T* __restrict unary = a.unary ? a.unary + i * L : nullptr;
    const T all = total(row, L);
    if (a.labels == Labels::potts) {
        if (unary)
            for (std::int64_t l = 0; l < L; ++l) out[l] = unary[l] + (all - row[l]);
        else
            for (std::int64_t l = 0; l < L; ++l) out[l] = all - row[l];
    } else if (a.labels == Labels::matrix) {
        if (unary)
            for (std::int64_t l = 0; l < L; ++l) out[l] = unary[l];
        else
            for (std::int64_t l = 0; l < L; ++l) out[l] = 0;
        for (std::int64_t s = 0; s < L; ++s) {
            const T* __restrict m = a.matrix + s * L;
            const T value = row[s];
            for (std::int64_t l = 0; l < L; ++l) out[l] += value * m[l];
        }
    } else {
        if (unary)
            for (std::int64_t l = 0; l < L; ++l) out[l] = unary[l] + row[l];
        else
            for (std::int64_t l = 0; l < L; ++l) out[l] = row[l];
    }
    return all - all == 0;
}

template <typename T, int NV, bool uniform>
static bool narrow(const EdgeArgs<T>& a, Range range, std::int64_t safe, T* row) {
    constexpr int W = kLanes<T>;
    bool finite = true;
    std::int64_t at[NV];
    for (int k = 0; k < NV; ++k) at[k] = k * W;
    if (a.channels >= W) at[NV - 1] = a.channels - W;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
        gather<T, NV, uniform>(a, i, at, safe, row);
        finite &= finish(a, i, row);
    }
    return finite;
}

template <typename T, bool uniform> static bool wide(const EdgeArgs<T>& a, Range range, T* row) {
    constexpr int W = kLanes<T>;
    bool finite = true;
    for (std::int64_t i = range.begin; i < range.end; ++i) {
        for (std::int64_t block = 0; block < a.channels; block += kAtOnce * W) {
            const std::int64_t begin = block + kAtOnce * W <= a.channels ? block : a.channels - kAtOnce * W;
            gather<T, kAtOnce, uniform>(a, i, {begin, begin + W, begin + 2 * W, begin + 3 * W}, a.graph.n, row);
        }
        finite &= finish(a, i, row);
    }
    return finite;
}

template <typename T, bool uniform> static bool sum_nodes(const EdgeArgs<T>& a, Range range, T* row) {
    constexpr int W = kLanes<T>;
    // Nodes whose row can be read as whole vectors.
    const std::int64_t past = a.channels < W ? (W + a.channels - 1) / a.channels - 1 : 0;
    const std::int64_t safe = a.graph.n > past ? a.graph.n - past : 0;
    switch ((a.channels + W - 1) / W) {
    case 1: return narrow<T, 1, uniform>(a, range, safe, row);
    case 2: return narrow<T, 2, uniform>(a, range, safe, row);
    case 3: return narrow<T, 3, uniform>(a, range, safe, row);
    case 4: return narrow<T, 4, uniform>(a, range, safe, row);
    default: return wide<T, uniform>(a, range, row);
    }
}

template <typename T> bool edge_sum(const EdgeArgs<T>& a) {
    thread_local Scratch scratch;
    const std::int64_t each = (a.channels + kAtOnce * kLanes<T> + 63) / 64 * 64;
    T* const memory = scratch.get<T>(a.threads * each);
    Any infinite;
    for_each(a.threads, a.threads, [&](std::int64_t part) {
        const Range range = nodes(a.graph, static_cast<int>(part), a.threads);
        T* const row = memory + part * each;
        const bool finite =
            a.uniform && a.turned == T(1) ? sum_nodes<T, true>(a, range, row) : sum_nodes<T, false>(a, range, row);
        infinite |= !finite;
    });
    return !infinite;
}

template <typename T> bool table_sum(const TableArgs<T>& a) {
    thread_local Scratch scratch;
    const Adjacency& g = a.graph;
    const std::int64_t L = a.channels, each = (L + 63) / 64 * 64;
    T* const memory = scratch.get<T>(a.threads * each);
    Any infinite;
    for_each(a.threads, a.threads, [&](std::int64_t part) {
        const Range range = nodes(g, static_cast<int>(part), a.threads);
        T* __restrict row = memory + part * each;
        bool finite = true;
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            for (std::int64_t l = 0; l < L; ++l) row[l] = 0;
            for (std::int64_t e = g.first[i]; e < g.first[i + 1]; ++e) {
                const T* __restrict x = a.x + g.neighbor[e] * L;
                const T* __restrict table = a.tables + (g.slot[e] >> 1) * L * L;
                if (g.slot[e] & 1) {
                    for (std::int64_t s = 0; s < L; ++s) {
                        const T value = x[s];
                        if (value == T(0)) continue;  // most labels of most nodes, near the end of a solver's run
                        for (std::int64_t t = 0; t < L; ++t) row[t] += value * table[s * L + t];
                    }
                } else {
                    for (std::int64_t s = 0; s < L; ++s) row[s] += dot(table + s * L, x, L);
                }
            }
            const T all = total<T>(row, L);
            finite &= all - all == 0;
            T* __restrict out = a.out + i * L;
            if (a.unary)
                for (std::int64_t l = 0; l < L; ++l) out[l] = a.unary[i * L + l] + row[l];
            else
                for (std::int64_t l = 0; l < L; ++l) out[l] = row[l];
        }
        infinite |= !finite;
    });
    return !infinite;
}

template <typename T> void edge_inner(const PairArgs<T>& a) {
    const std::int64_t L = a.channels;
    for_each(a.threads, a.edges, [&](std::int64_t e) {
        const std::int64_t i = a.ends[2 * e] * L, j = a.ends[2 * e + 1] * L;
        a.out[e] = dot(a.a + i, a.b + j, L) + a.turned * dot(a.a + j, a.b + i, L);
    });
}

template <typename T> void edge_outer(const PairArgs<T>& a) {
    const std::int64_t L = a.channels;
    for_each(a.threads, a.edges, [&](std::int64_t e) {
        const std::int64_t i = a.ends[2 * e] * L, j = a.ends[2 * e + 1] * L;
        T* __restrict out = a.out + e * L * L;
        const T* __restrict ai = a.a + i, * __restrict bi = a.b + i;
        const T* __restrict aj = a.a + j, * __restrict bj = a.b + j;
        for (std::int64_t s = 0; s < L; ++s)
            for (std::int64_t t = 0; t < L; ++t) out[s * L + t] = ai[s] * bj[t] + bi[s] * aj[t];
    });
}

FWCRF_INSTANTIATE(edge_sum)
FWCRF_INSTANTIATE(table_sum)
FWCRF_INSTANTIATE(edge_inner)
FWCRF_INSTANTIATE(edge_outer)

}  // namespace fwcrf::FWCRF_ISA
