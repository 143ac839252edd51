// Splat, blur and slice on a built lattice, and convolution along one axis of a grid.
//
// Rows of the lattice hold a panel of channels in groups of whole vectors. Work is split into contiguous ranges, one per thread, so that the result depends
// on the number of threads but never on their timing.
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

// False if a value was not finite: it shows in the lattice, which is smaller than the image.
template <typename T, int NV, int C, int G>
static bool filter_panel(const FilterArgs<T>& a, std::int64_t first, std::int64_t width,
                         std::int64_t groups, Scratch& scratch) {
    bool bad = false;
    Barrier barrier;
    using P = Pass<T, NV, C, G>;
    const P pass{a, first, width, groups};
    const std::int64_t stride = pass.stride();
    const std::int64_t rows = a.vertices + 1;  // the last row stays zero: the absent neighbour
    const std::int64_t size = rows * stride;
    // Private lattices pay while they are small beside the image.
    std::int64_t fit = a.n / (a.vertices + 1) + 1;
    const int splatters = static_cast<int>(fit < a.threads ? fit : a.threads);
    const int buffers = splatters + 1 > 5 ? splatters + 1 : 5;
    T* const base = scratch.get<T>(buffers * size);
    T* const splatted = base;
    T* const work[4] = {base + size, base + 2 * size, base + 3 * size, base + 4 * size};

#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    {
#ifdef _OPENMP
        const int thread = omp_get_thread_num(), threads = omp_get_num_threads();
#else
        const int thread = 0, threads = 1;
#endif
        const Range vertices = share(a.vertices, thread, threads);
        // Another runtime setting may give fewer threads than asked for.
        const int active = splatters < threads ? splatters : threads;
        if (thread < active) {
            T* mine = base + thread * size;
            std::memset(mine, 0, size * sizeof(T));
            pass.splat(share(a.n, thread, active), mine);
        }
        barrier.wait(threads);
        Vec<T> nothing{};  // 0 * v is not a number unless v is finite
        for (std::int64_t i = vertices.begin * stride; i < vertices.end * stride; i += P::W) {
            Vec<T> sum = load(splatted + i);
            if (active > 1) {
                for (int t = 1; t < active; ++t) sum += load(base + t * size + i);
                store(splatted + i, sum);
            }
            nothing += sum * T(0);
        }
        for (int l = 0; l < P::W; ++l) bad = bad || nothing[l] != T(0);
        if (thread == 0) {
            for (T* buffer : work) std::memset(buffer + a.vertices * stride, 0, stride * sizeof(T));
        }
        barrier.wait(threads);
        const T* result;
        if (a.order == BlurOrder::symmetric) {
            const T* forward = splatted;
            const T* reverse = splatted;
            for (int j = 0; j + 1 < a.corners; ++j) {
                T* f = work[j & 1];
                T* r = work[2 + (j & 1)];
                pass.blur(vertices, j, forward, f);
                pass.blur(vertices, a.corners - 1 - j, reverse, r);
                barrier.wait(threads);
                forward = f;
                reverse = r;
            }
            T* target = work[(a.corners - 1) & 1];
            pass.blur_last(vertices, forward, reverse, splatted, target);
            result = target;
        } else {
            const T* source = splatted;
            for (int j = 0; j < a.corners; ++j) {
                const int axis = a.order == BlurOrder::forward ? j : a.corners - 1 - j;
                T* target = work[j & 1];
                pass.blur(vertices, axis, source, target);
                barrier.wait(threads);
                source = target;
            }
            if (a.identity != T(0)) {
                T* target = work[2];
                for (std::int64_t i = vertices.begin * stride; i < vertices.end * stride;
                     i += P::W)
                    store(target + i, load(source + i) + a.identity * load(splatted + i));
                source = target;
            }
            result = source;
        }
        barrier.wait(threads);
        pass.slice(share(a.n, thread, threads), result);
    }
    return !bad;
}

template <typename T, int C> static bool filter(const FilterArgs<T>& a, Scratch& scratch) {
    constexpr int W = kLanes<T>;
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

template <int C, typename T> static void diagonal_rows(const DiagonalArgs<T>& a, Range range) {
    using Real = Vec<double>;
    using Integer = Vec<std::int64_t>;
    constexpr int W = kLanes<double>;
    // An integer below 2^52 in the low bits of 2^52, read as a double.
    constexpr std::int64_t exponent = 0x4330000000000000;
    constexpr double base = 4503599627370496.0;
    double power[C + 1] = {1.0};
    for (int s = 1; s <= C; ++s) power[s] = power[s - 1] * a.tap;

    for (std::int64_t i = range.begin; i < range.end; i += W) {
        const int count = static_cast<int>(range.end - i < W ? range.end - i : W);
        Integer up[C] = {}, down[C] = {}, order{}, axis[C];
        Real w[C] = {};
        for (int l = 0; l < count; ++l) {
            order[l] = a.order[i + l];
            for (int k = 0; k < C; ++k) {
                const std::int64_t v = a.index[(i + l) * C + k];
                down[k][l] = static_cast<std::int64_t>(a.open[2 * v]);
                up[k][l] = static_cast<std::int64_t>(a.open[2 * v + 1]);
                w[k][l] = a.weight[(i + l) * C + k];
            }
        }
        for (int k = 0; k < C; ++k) axis[k] = 1 << ((order >> kOrderBits * k) & 31);
        Real sum{};
        for (int k = 0; k < C; ++k) {
            Real reached = (1.0 + a.identity) * w[k];
            Integer axes{};
            // s steps up the axes that follow corner k lead to corner k + s, and down again.
            for (int s = 1; s <= C; ++s) {
                const int to = (k + s) % C;
                axes |= axis[(k + s - 1) % C];
                const Integer ways = ((up[k] >> axes) & 1) + ((down[to] >> axes) & 1);
                reached += power[s] * (reinterpret_cast<Real>(ways | exponent) - base) * w[to];
            }
            sum += w[k] * reached;
        }
        for (int l = 0; l < count; ++l) a.out[i + l] = static_cast<T>(sum[l]);
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

// A tile of `width` columns with zeros above and below, so that the convolution along the axis is
// one contiguous sweep with taps `width` elements apart.
template <typename T>
static void axis_tile(const AxisArgs<T>& a, std::int64_t outer, Range columns, Scratch& scratch) {
    constexpr int W = kLanes<T>;
    constexpr int unroll = 4;
    const std::int64_t width = columns.end - columns.begin;
    const std::int64_t margin = a.radius * width, size = a.length * width;
    const std::int64_t padded = (size + unroll * W - 1) / (unroll * W) * (unroll * W);
    T* const source = scratch.get<T>(2 * margin + 2 * padded);
    T* const target = source + 2 * margin + padded;
    const T* x = a.x + outer * a.length * a.inner + columns.begin;
    T* out = a.out + outer * a.length * a.inner + columns.begin;

    std::memset(source, 0, margin * sizeof(T));
    std::memset(source + margin + size, 0, (margin + padded - size) * sizeof(T));
    for (std::int64_t i = 0; i < a.length; ++i)
        std::memcpy(source + margin + i * width, x + i * a.inner, width * sizeof(T));
    for (std::int64_t p = 0; p < size; p += unroll * W) {
        const T* centre = source + margin + p;
        Vec<T> sum[unroll];
        for (int k = 0; k < unroll; ++k) sum[k] = a.taps[0] * load(centre + k * W);
        for (std::int64_t t = 1; t <= a.radius; ++t) {
            const T tap = a.taps[t];
            const T* before = centre - t * width;
            const T* after = centre + t * width;
            for (int k = 0; k < unroll; ++k)
                sum[k] += tap * (load(before + k * W) + load(after + k * W));
        }
        for (int k = 0; k < unroll; ++k) store(target + p + k * W, sum[k]);
    }
    for (std::int64_t i = 0; i < a.length; ++i)
        std::memcpy(out + i * a.inner, target + i * width, width * sizeof(T));
}

template <typename T> static void axis(const AxisArgs<T>& a) {
    constexpr std::int64_t widest = 64;
    const std::int64_t strips = (a.inner + widest - 1) / widest;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        Scratch scratch;
#ifdef _OPENMP
#pragma omp for schedule(static)
#endif
        for (std::int64_t tile = 0; tile < a.outer * strips; ++tile) {
            axis_tile(a, tile / strips, share(a.inner, static_cast<int>(tile % strips),
                                              static_cast<int>(strips)), scratch);
        }
    }
}

void axis_f32(const AxisArgs<float>& a) { axis(a); }
void axis_f64(const AxisArgs<double>& a) { axis(a); }

bool filter_f32(const FilterArgs<float>& a) { return filter(a); }
bool filter_f64(const FilterArgs<double>& a) { return filter(a); }

}  // namespace fwcrf::FWCRF_ISA
