// The blurred values of a lattice, kept while x changes at a few points, and a bound on the change of its slices.
#pragma once

#include "lattice/arguments.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "simd/vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// V, the blurred lattice of x. The slice of a point is sum_c w_c V_c over its corners. When V changes by dV, slices for
// two labels change differently by at most sum_c w_c range(dV_c) <= max_v reach_v range(dV_v), where range is the
// largest minus the smallest entry of a row, and reach_v the largest sum of weights of a point that has v as a corner.
template <typename T> struct LatticeChange {
    static constexpr int W = kLanes<T>;

    const FilterArgs<T>* lattice;
    std::int64_t stride;
    T* values;  // (vertices + 1, stride): V
    T* reach;   // (threads, vertices); the first is of all threads after `merge`
    T* ranges;  // (vertices): range(dV)

    void plan(const FilterArgs<T>& l, std::int64_t width) {
        lattice = &l;
        stride = width;
    }
    void layout(Parts& parts, int threads) {
        parts.take(values, (lattice->vertices + 1) * stride);
        parts.take(reach, threads * padded());
        parts.take(ranges, padded());
    }
    // The last vector of vertices is read as a whole.
    std::int64_t padded() const { return (lattice->vertices + W - 1) / W * W; }

    // Every thread calls `keep` with the blurred lattice, and once before `add`, with a barrier in between, `weigh` for
    // its points and `merge`.
    void keep(const T* blurred, Team team) const {
        const Range mine = share(lattice->vertices, team.thread, team.threads);
        std::memcpy(values + mine.begin * stride, blurred + mine.begin * stride,
                    (mine.end - mine.begin) * stride * sizeof(T));
    }
    void weigh(Range points, Team team) const {
        const int corners = lattice->corners;
        T* const mine = reach + team.thread * padded();
        std::memset(mine, 0, padded() * sizeof(T));
        const std::int32_t* index = lattice->index + points.begin * corners;
        const T* weight = lattice->slice + points.begin * corners;
        for (std::int64_t i = points.begin; i < points.end; ++i, index += corners, weight += corners) {
            const T sum = weight_of(weight);
            for (int m = 0; m < corners; ++m) mine[index[m]] = sum > mine[index[m]] ? sum : mine[index[m]];
        }
    }
    T weight_of(const T* weight) const {
        T sum = 0;
        for (int m = 0; m < lattice->corners; ++m) sum += weight[m] < T(0) ? -weight[m] : weight[m];
        return sum;
    }
    void merge(Team team) const {
        const Range mine = share(padded() / W, team.thread, team.threads);
        for (std::int64_t v = mine.begin * W; v < mine.end * W; v += W) {
            Vec<T> most = load(reach + v);
            for (int t = 1; t < team.threads; ++t) most = max<T>(load(reach + t * padded() + v), most);
            store(reach + v, most);
        }
    }

    // V += change, for a thread's share of the vertices. Returns the bound for these vertices.
    T add(const T* change, Team team) const {
        const Range mine = share(padded() / W, team.thread, team.threads);
        Vec<T> bound{};
        for (std::int64_t v = mine.begin * W; v < mine.end * W; v += W) {
            Vec<T> high[W] = {}, low[W] = {};
            for (int r = 0; r < W && v + r < lattice->vertices; ++r)
                for (std::int64_t at = (v + r) * stride, end = at + stride; at < end; at += W) {
                    const Vec<T> moved = load(change + at);
                    high[r] = max<T>(moved, high[r]);
                    low[r] = min<T>(moved, low[r]);
                    store(values + at, load(values + at) + moved);
                }
            transpose<T>(high);
            transpose<T>(low);
            for (int c = 1; c < W; ++c) {
                high[0] = max<T>(high[c], high[0]);
                low[0] = min<T>(low[c], low[0]);
            }
            const Vec<T> range = high[0] - low[0];
            store(ranges + v, range);
            bound = max<T>(load(reach + v) * range, bound);
        }
        T most = 0;
        for (int l = 0; l < W; ++l) most = lane(bound, l) > most ? lane(bound, l) : most;
        return most;
    }
    // The bound for one point, when all threads have called `add`.
    T bound(std::int64_t i) const {
        const int corners = lattice->corners;
        const std::int32_t* const index = lattice->index + i * corners;
        const T* const weight = lattice->slice + i * corners;
        T sum = 0;
        for (int m = 0; m < corners; ++m) sum += (weight[m] < T(0) ? -weight[m] : weight[m]) * ranges[index[m]];
        return sum;
    }
};

}  // namespace fwcrf::FWCRF_ISA
