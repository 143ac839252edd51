// A lattice with a single value per vertex, as for row sums. It stays in the first-level cache; a lattice of vectors
// does not.
#pragma once

#include "lattice/arguments.hpp"
#include "runtime/barrier.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

// Every thread of a region splats into its own two lattices, calls `blur`, and slices the result.
template <typename T> struct SingleLattice {
    std::int64_t vertices = 0;
    int corners = 0;
    const std::int32_t* neighbors = nullptr;  // (corners, vertices, 2)
    T tap = 0, identity = 0;
    BlurOrder order = BlurOrder::symmetric;
    T* base = nullptr;  // memory for four lattices, and two more per thread
    Barrier barrier{};

    std::int64_t size() const { return vertices + 1; }  // the last value stays zero: absent neighbours
    std::int64_t room(int threads) const { return (4 + 2 * threads) * size(); }
    T* lattice(int number) const { return base + number * size(); }
    const T* result() const { return lattice((corners - 1) & 1); }

    // The two lattices of this thread, one after the other.
    T* cleared(Team team) const {
        T* const own = lattice(4 + 2 * team.thread);
        std::memset(own, 0, 2 * size() * sizeof(T));
        return own;
    }

    // Splats value(point), alternating between the two lattices of `own`: consecutive points share vertices, and their
    // sums would wait for each other in one lattice. C is the number of corners if it is known at compile time, else 0.
    template <int C, typename F>
    void splat(const std::int32_t* index, const T* weight, Range points, F&& value, T* own) const {
        const int count = C ? C : corners;
        const auto one = [&](std::int64_t p, T* to) {
            for (int m = 0; m < count; ++m) to[index[p * count + m]] += weight[p * count + m] * value(p);
        };
        std::int64_t p = points.begin;
        for (; p + 1 < points.end; p += 2) one(p, own), one(p + 1, own + size());
        if (p < points.end) one(p, own);
    }

    // The blurred values, interpolated at a point.
    template <int C> inline T slice(const std::int32_t* index, const T* weight, std::int64_t p) const {
        return slice<C>(index, weight, p, result());
    }
    template <int C> inline T slice(const std::int32_t* index, const T* weight, std::int64_t p, const T* values) const {
        const int count = C ? C : corners;
        T sum = 0;
        for (int m = 0; m < count; ++m) sum += weight[p * count + m] * values[index[p * count + m]];
        return sum;
    }

    // False if this thread found a value that is not finite.
    bool blur(Team team) {
        const int last = corners - 1;
        const Range own = share(vertices, team.thread, team.threads);
        for (int number = 0; number < 4 && team.thread == 0; ++number) lattice(number)[vertices] = T(0);
        barrier.wait(team.threads);
        T* const all = lattice(4);
        T nothing = 0;  // 0 * v is NaN unless v is finite
        for (std::int64_t v = own.begin; v < own.end; ++v) {
            for (int t = 1; t < 2 * team.threads; ++t) all[v] += lattice(4 + t)[v];
            nothing += all[v] * T(0);
        }
        barrier.wait(team.threads);
        if (order != BlurOrder::symmetric) {
            blur_one_way(own, all, team);
            return nothing == T(0);
        }
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
            done[v] = T(0.5) * (blurred(forward, last, v) + blurred(reverse, 0, v)) + identity * all[v];
        barrier.wait(team.threads);
        return nothing == T(0);
    }

  private:
    void blur_one_way(Range own, const T* all, Team team) {
        const T* source = all;
        for (int j = 0; j < corners; ++j) {
            T* const target = lattice(j & 1);
            const int axis = order == BlurOrder::forward ? j : corners - 1 - j;
            const T beta = j + 1 < corners ? T(0) : identity;
            for (std::int64_t v = own.begin; v < own.end; ++v) target[v] = blurred(source, axis, v);
            for (std::int64_t v = own.begin; v < own.end && beta != T(0); ++v) target[v] += beta * all[v];
            barrier.wait(team.threads);
            source = target;
        }
    }
    T blurred(const T* source, int axis, std::int64_t v) const {
        const std::int32_t* const pair = neighbors + (axis * vertices + v) * 2;
        return source[v] + tap * (source[pair[0]] + source[pair[1]]);
    }
};

}  // namespace fwcrf::FWCRF_ISA
