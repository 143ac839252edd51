// Splat, blur and slice on a built lattice, done together by the threads of one parallel region.
//
// A row of the lattice holds a panel of channels, in groups of whole vectors.
#pragma once

#include "lattice/arguments.hpp"
#include "runtime/team.hpp"
#include "simd/vectors.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// A row of the lattice += w v. The whole row is read before it is written: a load waits for earlier stores whose
// address the processor does not know yet.
template <typename T, int NV> static inline void add_row(T* row, T w, const Vec<T> (&v)[NV]) {
    constexpr int W = kLanes<T>;
    Vec<T> sum[NV];
    for (int k = 0; k < NV; ++k) sum[k] = load(row + k * W) + w * v[k];
    for (int k = 0; k < NV; ++k) store(row + k * W, sum[k]);
}

// Splat and slice for a panel of channels: `groups` groups of NV vectors.
// A single group may be narrower than its vectors. Of several groups the last one ends with the last channel: some
// channels are computed twice, but no row is read or written in parts. C and G are the numbers of corners and of groups
// if they are known at compile time, else 0.
template <typename T, int NV, int C, int G> struct Pass {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kGroup = NV * W;

    const FilterArgs<T>& a;
    std::int64_t first;    // first channel of the panel
    std::int64_t width;    // channels of a single group
    std::int64_t several;  // groups

    inline std::int64_t groups() const { return G ? G : several; }
    inline std::int64_t stride() const { return groups() * kGroup; }
    inline std::int64_t channel(std::int64_t group) const {
        const std::int64_t at = first + group * kGroup, last = a.channels - kGroup;
        return G == 1 || at < last ? at : last;
    }
    // The number of following rows that a whole vector at the end of a row may touch.
    inline std::int64_t overhang() const { return kGroup > width ? 1 + (kGroup - width) / a.channels : 0; }

    // `whole`: the row may be read and written past its end, because the same thread writes the next row later.
    inline void read(const T* row, bool whole, Vec<T> (&v)[NV]) const {
        for (int k = 0; k + 1 < NV; ++k) v[k] = load(row + k * W);
        v[NV - 1] = whole ? load(row + (NV - 1) * W) : load_part(row + (NV - 1) * W, width - (NV - 1) * W);
    }
    inline void write(T* row, bool whole, const Vec<T> (&v)[NV]) const {
        for (int k = 0; k + 1 < NV; ++k) store(row + k * W, v[k]);
        if (whole) store(row + (NV - 1) * W, v[NV - 1]);
        else store_part(row + (NV - 1) * W, v[NV - 1], width - (NV - 1) * W);
    }

    void splat(Range range, T* __restrict values) const {
        const int corners = C ? C : a.corners;
        const std::int64_t safe = a.n - overhang();
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            const std::int32_t* index = a.index + i * corners;
            const T* weight = a.splat + i * corners;
            for (std::int64_t group = 0; group < groups(); ++group) {
                Vec<T> v[NV];
                read(a.x + i * a.channels + channel(group), i < safe, v);
                for (int c = 0; c < corners; ++c)
                    add_row<T, NV>(values + index[c] * stride() + group * kGroup, weight[c], v);
            }
        }
    }

    void slice(Range range, const T* __restrict values) const {
        const int corners = C ? C : a.corners;
        const std::int64_t safe = range.end - overhang(), safe_read = a.n - overhang();
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            const std::int32_t* index = a.index + i * corners;
            const T* weight = a.slice + i * corners;
            for (std::int64_t group = 0; group < groups(); ++group) {
                Vec<T> v[NV] = {};
                const std::int64_t at = i * a.channels + channel(group);
                if (a.shift) {
                    read(a.x + at, i < safe_read, v);
                    for (int k = 0; k < NV; ++k) v[k] *= a.shift[i];
                }
                for (int c = 0; c < corners; ++c) {
                    const T* row = values + index[c] * stride() + group * kGroup;
                    const T w = weight[c];
                    for (int k = 0; k < NV; ++k) v[k] += w * load(row + k * W);
                }
                write(a.out + at, i < safe, v);
            }
        }
    }
};

// The blurred values of a lattice. Every thread of a region calls `fill`, or splats into `cleared` and then calls
// `blur`.
//
// One vector of each row is blurred along all axes before the next vector, in planes of one vector per vertex: a plane
// stays in the second-level cache between two axes.
template <typename T> struct BlurredLattice {
    static constexpr int W = kLanes<T>, kPlanes = 3;

    T* base;  // memory for as many values as `plan` returns
    std::int64_t stride, size, plane;
    int splatters;  // threads that splat, each into its own lattice
    Barrier barrier;

    // Returns the number of values needed, for rows of `width` values.
    std::int64_t plan(const FilterArgs<T>& a, std::int64_t width) {
        stride = width;
        size = (a.vertices + 1) * stride;  // the last row stays zero: the absent neighbour
        plane = (a.vertices + 1) * W;
        // A lattice per thread pays if lattices are small compared to the image.
        const std::int64_t fit = a.n / (a.vertices + 1) + 1;
        splatters = static_cast<int>(fit < a.threads ? fit : a.threads);
        return (1 + splatters) * size + kPlanes * plane;
    }

    const T* result() const { return base; }
    T* own(int thread) const { return base + (1 + thread) * size; }
    T* work(int number) const { return base + (1 + splatters) * size + number * plane; }

    // The runtime may give fewer threads than requested.
    int active(int threads) const { return splatters < threads ? splatters : threads; }

    // The lattice that this thread splats into; null if this thread does not splat.
    T* cleared(Team team) const {
        if (team.thread >= active(team.threads)) return nullptr;
        std::memset(own(team.thread), 0, size * sizeof(T));
        return own(team.thread);
    }

    template <typename P> bool fill(const P& pass, Team team) {
        if (T* mine = cleared(team)) pass.splat(share(pass.a.n, team.thread, active(team.threads)), mine);
        return blur(pass.a, team);
    }

    // False if this thread found a value that is not finite. The lattice is checked, which is smaller than the image.
    bool blur(const FilterArgs<T>& a, Team team) {
        const Range mine = share(a.vertices, team.thread, team.threads);
        for (int number = 0; number < kPlanes && team.thread == 0; ++number)
            std::memset(work(number) + a.vertices * W, 0, W * sizeof(T));
        barrier.wait(team.threads);
        const bool finite = add_up(mine, active(team.threads));
        barrier.wait(team.threads);
        const int free = a.corners % 2 ? 0 : 1;  // the plane that does not hold the result of `forward`
        for (std::int64_t at = 0; at < stride; at += W) {
            const Column splatted{own(0) + at, stride}, target{base + at, stride};
            if (a.order == BlurOrder::symmetric) {
                const Column forward = all_but_last(a, mine, team, splatted, 1, 0, 1);
                const Column reverse = all_but_last(a, mine, team, splatted, -1, 2, free);
                both_last(a, mine, forward, reverse, splatted, target);
            } else {
                const int way = a.order == BlurOrder::forward ? 1 : -1;
                last(a, mine, all_but_last(a, mine, team, splatted, way, 0, 1), way, splatted, target);
            }
            if (at + W < stride) barrier.wait(team.threads);  // the next vector uses the same planes
        }
        barrier.wait(team.threads);
        return finite;
    }

  private:
    // A vector of each vertex.
    struct Column {
        T* values;
        std::int64_t apart;
        inline T* at(std::int64_t v) const { return values + v * apart; }
    };

    // The sum of the lattices of all threads.
    bool add_up(Range vertices, int threads) const {
        Vec<T> nothing[2] = {};  // 0 * v is NaN unless v is finite
        T* const splatted = own(0);
        for (std::int64_t i = vertices.begin * stride, k = 0; i < vertices.end * stride; i += W, k ^= 1) {
            Vec<T> sum = load(splatted + i);
            for (int t = 1; t < threads; ++t) sum += load(own(t) + i);
            if (threads > 1) store(splatted + i, sum);
            nothing[k] += sum * T(0);
        }
        return all_zero<T>(nothing[0] + nothing[1]);
    }

    static int axis(const FilterArgs<T>& a, int number, int way) { return way > 0 ? number : a.corners - 1 - number; }
    static inline Vec<T> blurred(const FilterArgs<T>& a, int axis, Column source, std::int64_t v) {
        const std::int32_t* const pair = a.neighbors + (axis * a.vertices + v) * 2;
        return load(source.at(v)) + a.tap * (load(source.at(pair[0])) + load(source.at(pair[1])));
    }

    // Blur along all axes but the last, in the given direction, with two planes in turn.
    Column all_but_last(const FilterArgs<T>& a, Range vertices, Team team, Column source, int way, int one, int other) {
        for (int j = 0; j + 1 < a.corners; ++j) {
            const Column target{work(j % 2 ? other : one), W};
            const int along = axis(a, j, way);
            for (std::int64_t v = vertices.begin; v < vertices.end; ++v)
                store(target.at(v), blurred(a, along, source, v));
            barrier.wait(team.threads);
            source = target;
        }
        return source;
    }

    // The last axis of both directions, their mean, and identity times the unblurred values.
    static void both_last(const FilterArgs<T>& a, Range vertices, Column forward, Column reverse, Column splatted,
                          Column target) {
        for (std::int64_t v = vertices.begin; v < vertices.end; ++v) {
            const Vec<T> sum = blurred(a, a.corners - 1, forward, v) + blurred(a, 0, reverse, v);
            store(target.at(v), T(0.5) * sum + a.identity * load(splatted.at(v)));
        }
    }
    static void last(const FilterArgs<T>& a, Range vertices, Column source, int way, Column splatted, Column target) {
        const int along = axis(a, a.corners - 1, way);
        for (std::int64_t v = vertices.begin; v < vertices.end; ++v)
            store(target.at(v), blurred(a, along, source, v) + a.identity * load(splatted.at(v)));
    }
};

}  // namespace fwcrf::FWCRF_ISA
