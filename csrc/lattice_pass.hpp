// Splat, blur and slice on a built lattice, as steps that the threads of one parallel region take together.
//
// Rows of the lattice hold a panel of channels in groups of whole vectors.
#pragma once

#include "kernels.hpp"
#include "scratch.hpp"
#include "vectors.hpp"

#include <sched.h>

#include <cstring>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace fwcrf::FWCRF_ISA {

// A panel of channels of the filter, seen by the threads of one region: `groups` groups of NV vectors.
// A single group may be narrower than its vectors; of several, the last starts early enough to end
// with the last channel, so that some channels are done twice but no row is touched in parts.
// C is the number of corners and G that of groups where they are known to the compiler, 0 otherwise.
template <typename T, int NV, int C, int G> struct Pass {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kGroup = NV * W;

    const FilterArgs<T>& a;
    std::int64_t first;  // first channel of the panel
    std::int64_t width;  // channels in a single group
    std::int64_t several;

    inline std::int64_t groups() const { return G ? G : several; }
    inline std::int64_t stride() const { return groups() * kGroup; }
    inline std::int64_t channel(std::int64_t group) const {
        const std::int64_t at = first + group * kGroup, last = a.channels - kGroup;
        return G == 1 || at < last ? at : last;
    }
    // How many following rows a whole vector at the end of a row may touch.
    inline std::int64_t overhang() const {
        return kGroup > width ? 1 + (kGroup - width) / a.channels : 0;
    }

    // A row may be read and written past its end where the next row follows and is dealt with later
    // by the same thread; `whole` says so.
    inline void read(const T* row, bool whole, Vec<T> (&v)[NV]) const {
        for (int k = 0; k + 1 < NV; ++k) v[k] = load(row + k * W);
        v[NV - 1] = whole ? load(row + (NV - 1) * W)
                          : load_part(row + (NV - 1) * W, width - (NV - 1) * W);
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
                for (int c = 0; c < corners; ++c) {
                    T* row = values + index[c] * stride() + group * kGroup;
                    const T w = weight[c];
                    for (int k = 0; k < NV; ++k) store(row + k * W, load(row + k * W) + w * v[k]);
                }
            }
        }
    }

    // One vector at `at` of the row of v, blurred along the axis of `pair`.
    inline Vec<T> blurred(const T* source, std::int64_t v, const std::int32_t* pair,
                          std::int64_t at) const {
        const T* column = source + at;
        return load(column + v * stride()) +
               a.tap * (load(column + pair[0] * stride()) + load(column + pair[1] * stride()));
    }

    void blur(Range range, int axis, const T* __restrict source, T* __restrict target) const {
        const std::int32_t* pairs = a.neighbors + axis * a.vertices * 2;
        for (std::int64_t v = range.begin; v < range.end; ++v)
            for (std::int64_t group = 0; group < stride(); group += kGroup)
                for (int k = 0; k < kGroup; k += W)
                    store(target + v * stride() + group + k, blurred(source, v, pairs + 2 * v, group + k));
    }

    // The last axis of both orders, their mean, and the share of the unblurred values.
    void blur_last(Range range, const T* __restrict forward, const T* __restrict reverse,
                   const T* __restrict splatted, T* __restrict target) const {
        const std::int32_t* last = a.neighbors + (a.corners - 1) * a.vertices * 2;
        for (std::int64_t v = range.begin; v < range.end; ++v)
            for (std::int64_t group = 0; group < stride(); group += kGroup)
                for (int k = 0; k < kGroup; k += W) {
                    const Vec<T> sum = blurred(forward, v, last + 2 * v, group + k) +
                                       blurred(reverse, v, a.neighbors + 2 * v, group + k);
                    const std::int64_t at = v * stride() + group + k;
                    store(target + at, T(0.5) * sum + a.identity * load(splatted + at));
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

// The steps between barriers take microseconds, and going to sleep in OpenMP's own takes tens of
// them: wait actively for a while, then give way.
struct Barrier {
    int arrived = 0, round = 0;

    void wait(int threads) {
        if (threads == 1) return;
        const int now = __atomic_load_n(&round, __ATOMIC_RELAXED);
        if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == threads) {
            __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&round, now + 1, __ATOMIC_RELEASE);
            return;
        }
        for (int spins = 0; __atomic_load_n(&round, __ATOMIC_ACQUIRE) == now; ++spins)
            if (spins >= 4096) sched_yield();
    }
};

struct Team {
    int thread, threads;
};
static inline Team this_team() {
#ifdef _OPENMP
    return {omp_get_thread_num(), omp_get_num_threads()};
#else
    return {0, 1};
#endif
}

// The blurred values of a lattice: every thread of a region calls `fill`, or `splat` and then `blur`.
template <typename T> struct Blurred {
    T* base;  // as many values as `plan` says
    std::int64_t stride, size;
    int splatters;  // threads that splat, each into a lattice of its own
    Barrier barrier;

    // How many values are needed, for rows of `width` values.
    std::int64_t plan(const FilterArgs<T>& a, std::int64_t width) {
        stride = width;
        size = (a.vertices + 1) * stride;  // the last row stays zero: the absent neighbour
        // Private lattices pay while they are small beside the image.
        const std::int64_t fit = a.n / (a.vertices + 1) + 1;
        splatters = static_cast<int>(fit < a.threads ? fit : a.threads);
        return (4 + splatters) * size;
    }

    T* work(int buffer) const { return base + buffer * size; }
    T* own(int thread) const { return base + (4 + thread) * size; }
    const T* result(const FilterArgs<T>& a) const {
        if (a.order == BlurOrder::symmetric || a.identity == T(0)) return work((a.corners - 1) & 1);
        return work(2);
    }

    // Another runtime setting may give fewer threads than asked for.
    int active(int threads) const { return splatters < threads ? splatters : threads; }

    // To splat into; null where this thread has no part in it.
    T* cleared(Team team) const {
        if (team.thread >= active(team.threads)) return nullptr;
        std::memset(own(team.thread), 0, size * sizeof(T));
        return own(team.thread);
    }

    template <typename P> bool fill(const P& pass, Team team) {
        if (T* mine = cleared(team)) pass.splat(share(pass.a.n, team.thread, active(team.threads)), mine);
        return blur(pass, team);
    }

    // False if this thread met a value that was not finite: it shows in the lattice, which is smaller
    // than the image.
    template <typename P> bool blur(const P& pass, Team team) {
        const FilterArgs<T>& a = pass.a;
        const auto [thread, threads] = team;
        T* const splatted = own(0);
        const Range vertices = share(a.vertices, thread, threads);
        barrier.wait(threads);
        Vec<T> nothing{};  // 0 * v is not a number unless v is finite
        for (std::int64_t i = vertices.begin * stride; i < vertices.end * stride; i += P::W) {
            Vec<T> sum = load(splatted + i);
            if (active(threads) > 1) {
                for (int t = 1; t < active(threads); ++t) sum += load(own(t) + i);
                store(splatted + i, sum);
            }
            nothing += sum * T(0);
        }
        bool finite = true;
        for (int l = 0; l < P::W; ++l) finite = finite && nothing[l] == T(0);
        if (thread == 0) {
            for (int buffer = 0; buffer < 4; ++buffer)
                std::memset(work(buffer) + a.vertices * stride, 0, stride * sizeof(T));
        }
        barrier.wait(threads);
        if (a.order == BlurOrder::symmetric) {
            const T* forward = splatted;
            const T* reverse = splatted;
            for (int j = 0; j + 1 < a.corners; ++j) {
                T* f = work(j & 1);
                T* r = work(2 + (j & 1));
                pass.blur(vertices, j, forward, f);
                pass.blur(vertices, a.corners - 1 - j, reverse, r);
                barrier.wait(threads);
                forward = f;
                reverse = r;
            }
            pass.blur_last(vertices, forward, reverse, splatted, work((a.corners - 1) & 1));
        } else {
            const T* source = splatted;
            for (int j = 0; j < a.corners; ++j) {
                const int axis = a.order == BlurOrder::forward ? j : a.corners - 1 - j;
                pass.blur(vertices, axis, source, work(j & 1));
                barrier.wait(threads);
                source = work(j & 1);
            }
            if (a.identity != T(0)) {
                for (std::int64_t i = vertices.begin * stride; i < vertices.end * stride; i += P::W)
                    store(work(2) + i, load(source + i) + a.identity * load(splatted + i));
            }
        }
        barrier.wait(threads);
        return finite;
    }
};

}  // namespace fwcrf::FWCRF_ISA
