// The lattice filter: splat, blur, slice.
//
// The work is split into contiguous ranges, one per thread: the result depends on the number of threads, never on their
// timing.
#include "bind/functions.hpp"
#include "lattice/blur.hpp"
#include "lattice/single.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

// False if a value is not finite. The lattice is checked, which is smaller than the image.
template <typename T, int NV, int C, int G>
static bool filter_panel(const FilterArgs<T>& a, std::int64_t first, std::int64_t width, std::int64_t groups,
                         Scratch& scratch) {
    const Pass<T, NV, C, G> pass{a, first, width, groups};
    BlurredLattice<T> lattice{};
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
        lattice.template splat<C>(
            a.index, a.splat, points, [x](std::int64_t i) { return x[i]; }, lattice.cleared(team));
        bad = !lattice.blur(team);
        for (std::int64_t i = points.begin; i < points.end; ++i)
            a.out[i] = lattice.template slice<C>(a.index, a.slice, i) + (a.shift ? a.shift[i] * x[i] : T(0));
    }
    return !bad;
}

template <typename T, int C> static bool filter_any(const FilterArgs<T>& a, Scratch& scratch) {
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
    // Position and colour, or position and grey, are unrolled.
    const bool finite = a.corners == 6   ? filter_any<T, 6>(a, scratch)
                        : a.corners == 4 ? filter_any<T, 4>(a, scratch)
                                         : filter_any<T, 0>(a, scratch);
    scratch.trim();
    return finite;
}

// dots_ic += <left_i, value at corner c of point i>, for one group of channels.
template <typename T, int NV, int C>
static void corner_panel(const FilterArgs<T>& a, const T* left, T* dots, Scratch& scratch) {
    const Pass<T, NV, C, 1> pass{a, 0, a.channels, 1};
    BlurredLattice<T> lattice{};
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
                dots[i * corners + c] += total<T>(sum);
            }
        }
    }
}

template <typename T, int C>
static void corner_dots_any(const FilterArgs<T>& a, const T* left, T* dots, Scratch& scratch) {
    switch ((a.channels + kLanes<T> - 1) / kLanes<T>) {
    case 1: return corner_panel<T, 1, C>(a, left, dots, scratch);
    case 2: return corner_panel<T, 2, C>(a, left, dots, scratch);
    case 3: return corner_panel<T, 3, C>(a, left, dots, scratch);
    default: return corner_panel<T, 4, C>(a, left, dots, scratch);
    }
}
template <typename T> void corner_dots(const FilterArgs<T>& a, const T* left, T* dots) {
    thread_local Scratch scratch;
    a.corners == 6 ? corner_dots_any<T, 6>(a, left, dots, scratch) : corner_dots_any<T, 0>(a, left, dots, scratch);
    scratch.trim();
}
FWCRF_INSTANTIATE(filter)
FWCRF_INSTANTIATE(corner_dots)

}  // namespace fwcrf::FWCRF_ISA
