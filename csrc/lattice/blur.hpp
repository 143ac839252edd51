// Splat, blur and slice on a built lattice, done together by the threads of one parallel region.
//
// A row of the lattice holds a panel of channels, in groups of whole vectors.
#pragma once

#include "lattice/arguments.hpp"
#include "runtime/barrier.hpp"
#include "simd/vectors.hpp"

#include <cstring>
#include <type_traits>

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
                const T* const row = a.x + i * a.channels + channel(group);
                // The processor does not prefetch it, because rows of the lattice are read between.
                prefetch(row + kBlock * a.channels, kGroup);
                read(row, i < safe, v);
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
// stays in the second-level cache between two axes. In one order whole rows are blurred instead, if `lines` is given:
// line by line in place, so that each row is read and written once per axis, and a row without neighbours not at all;
// or in a stream, if all neighbours are near: axis after axis behind each other over the vertices, so that each row is
// read and written once for all axes.
template <typename T> struct BlurredLattice {
    static constexpr int W = kLanes<T>, kPlanes = 3;
    static constexpr int kMostStreamed = kStreamed / kTile + 1;  // axes

    T* base;                                  // memory for as many values as `plan` returns
    std::int64_t stride, size, plane, rings;  // `rings`: values of a thread's rings
    int splatters;                            // threads that splat, each into its own lattice, unless there are borders
    const Borders* borders;                   // or null
    bool far;                                 // larger than kCached
    int front = 0;  // which of the first two lattices holds the result; the other is splatted into
    Barrier barrier;

    static bool whole_rows(const FilterArgs<T>& a) {
        return a.lines && a.order != BlurOrder::symmetric && a.identity == T(0);
    }

    // Returns the number of values needed, for rows of `width` values.
    std::int64_t plan(const FilterArgs<T>& a, std::int64_t width) {
        stride = width;
        borders = a.borders;
        // The row behind the vertices stays zero: the absent neighbour. Behind it are the own rows of threads.
        size = (a.vertices + 1 + (borders ? own_rows(*borders) : 0)) * stride;
        far = size * static_cast<std::int64_t>(sizeof(T)) > kCached;
        plane = (a.vertices + 1) * W;
        splatters = borders ? 1 : lattices_that_pay(a.n, a.vertices, a.threads);
        if (!whole_rows(a)) return (1 + splatters) * size + kPlanes * plane;
        rings = 0;
        for (int j = 0; j + 1 < a.corners && !a.lines[0].member; ++j) rings += (ring_rows(a, j) + 1) * kMostRow;
        return (1 + splatters) * size + a.threads * rings;
    }

    const T* result() const { return base + front * size; }
    T* own(int thread) const { return base + (thread ? 1 + thread : 1 - front) * size; }
    T* work(int number) const { return base + (1 + splatters) * size + number * plane; }

    // The runtime may give fewer threads than requested.
    int active(int threads) const { return splatters < threads ? splatters : threads; }

    // True if every thread splats its own points.
    bool by_all(int threads) const { return borders || splatters >= threads; }
    // The corners of points, as rows of the lattice that a thread splats into.
    const std::int32_t* rows_of(const FilterArgs<T>& a) const { return borders ? borders->index : a.index; }

    // The lattice that this thread splats into; null if this thread does not splat.
    T* cleared(Team team) const {
        if (borders) return own_rows_cleared(team);
        if (team.thread >= active(team.threads)) return nullptr;
        std::memset(own(team.thread), 0, size * sizeof(T));
        return own(team.thread);
    }

    template <typename P> bool fill(const P& pass, Team team) {
        if (T* mine = cleared(team)) pass.splat(share(pass.a.n, team.thread, active(team.threads)), mine);
        return blur(pass.a, team);
    }

    // False if `checked` and this thread found a value that is not finite. The lattice is checked, which is smaller
    // than the image.
    bool blur(const FilterArgs<T>& a, Team team, bool checked = true) {
        if (whole_rows(a)) return blur_rows(a, team, checked);
        const Range mine = share(a.vertices, team.thread, team.threads);
        for (int number = 0; number < kPlanes && team.thread == 0; ++number)
            std::memset(work(number) + a.vertices * W, 0, W * sizeof(T));
        barrier.wait(team.threads);
        const int lattices = active(team.threads);
        if (borders) add_borders(mine);
        const bool finite = (!checked && lattices == 1) || add_up(mine, lattices);
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

    // Clears the rows that a thread's points touch, and the row of zeros.
    T* own_rows_cleared(Team team) const {
        T *const to = own(0), *const behind = to + size - own_rows(*borders) * stride;
        const auto clear = [](T* from, T* end) { std::memset(from, 0, (end - from) * sizeof(T)); };
        const Range parts = share(borders->threads, team.thread, team.threads);
        clear(to + borders->first[parts.begin] * stride, to + borders->first[parts.end] * stride);
        clear(behind + borders->begin[parts.begin] * stride, behind + borders->begin[parts.end] * stride);
        if (team.thread == 0) clear(behind - stride, behind);
        return to;
    }

    // Adds the own rows of all threads to their vertices, in a range of vertices.
    void add_borders(Range vertices) const {
        T* const to = own(0);
        const T* const behind = to + size - own_rows(*borders) * stride;
        for (int part = 0; part < borders->threads; ++part) {
            std::int64_t row = borders->begin[part], end = borders->begin[part + 1];
            while (row < end) {
                const std::int64_t middle = row + (end - row) / 2;
                if (borders->vertex[middle] < vertices.begin) row = middle + 1;
                else end = middle;
            }
            for (end = borders->begin[part + 1]; row < end && borders->vertex[row] < vertices.end; ++row) {
                T* const sum = to + borders->vertex[row] * stride;
                for (std::int64_t i = 0; i < stride; i += W)
                    store(sum + i, load(sum + i) + load(behind + row * stride + i));
            }
        }
    }

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

    bool blur_rows(const FilterArgs<T>& a, Team team, bool checked) {
        barrier.wait(team.threads);
        const int lattices = active(team.threads);
        const Range mine = share(a.vertices, team.thread, team.threads);
        if (borders) add_borders(mine);
        const bool finite = (!checked && lattices == 1) || add_up(mine, lattices);
        barrier.wait(team.threads);
        const std::int64_t vectors = stride / W;
        const auto groups = [&](auto&& act) {  // of as many vectors as registers hold three rows of
            for (std::int64_t at = 0; at < stride;) {
                if (vectors % 3 == 0) act(std::integral_constant<int, 3>{}, at), at += 3 * W;
                else if (vectors % 4 == 0) act(std::integral_constant<int, 4>{}, at), at += 4 * W;
                else if (vectors % 2 == 0) act(std::integral_constant<int, 2>{}, at), at += 2 * W;
                else act(std::integral_constant<int, 1>{}, at), at += W;
            }
        };
        if (!a.lines[0].member) {
            // In place for one thread. Several threads read rows near the borders of their shares, which others write.
            const bool in_place = team.threads == 1;
            T *const from = own(0), *const to = in_place ? from : base + front * size;
            groups([&](auto count, std::int64_t at) { stream<decltype(count)::value>(a, team, from + at, to + at); });
            barrier.wait(team.threads);
            if (in_place) front = 1 - front;
            return finite;
        }
        for (int j = 0; j < a.corners; ++j) {
            const Lines& lines = a.lines[axis(a, j, way(a))];
            const Range part = share(lines.count, team.thread, team.threads);
            const Range whole{next_line(lines, part.begin), next_line(lines, part.end)};
            groups([&](auto count, std::int64_t at) {
                blur_lines<decltype(count)::value>(lines, whole, a.tap, own(0) + at);
            });
            barrier.wait(team.threads);
        }
        if (team.thread == 0) front = 1 - front;
        barrier.wait(team.threads);
        return finite;
    }

    // Results of all axes but the last are kept in rings of rows. Axis j follows lag(j) vertices behind the first axis.
    static constexpr std::int64_t kMostRow = 4 * W;
    static int way(const FilterArgs<T>& a) { return a.order == BlurOrder::forward ? 1 : -1; }
    static std::int64_t reach(const FilterArgs<T>& a, int j) { return a.lines[axis(a, j, way(a))].reach; }
    static std::int64_t lag(const FilterArgs<T>& a, int j) {
        std::int64_t sum = 0;
        for (int i = 1; i <= j; ++i) sum += reach(a, i);
        // In place, the last axis writes no row that the first axis still reads.
        return j + 1 == a.corners && sum < reach(a, 0) ? reach(a, 0) : sum;
    }
    // A power of two: from the rows that the next axis reads behind its tile to the tile of this axis.
    static std::int64_t ring_rows(const FilterArgs<T>& a, int j) {
        const std::int64_t needed = kTile + lag(a, j + 1) - lag(a, j) + reach(a, j + 1);
        std::int64_t rows = kTile;
        while (rows < needed) rows *= 2;
        return rows;
    }

    // Rows of vertices: of a lattice, or of a ring, where `mask` is its number of rows less 1.
    struct Rows {
        T* values;
        std::int64_t apart, mask;
        const T* zero;  // of an absent neighbour
        inline T* at(std::int64_t v) const { return values + (v & mask) * apart; }
        inline const T* near(std::int64_t v, std::int64_t vertices) const { return v == vertices ? zero : at(v); }
    };

    template <int NV> void stream(const FilterArgs<T>& a, Team team, T* from, T* to) {
        const Range mine = share(a.vertices, team.thread, team.threads);
        const int last = a.corners - 1;
        const std::int64_t behind = lag(a, last);
        T* memory = base + (1 + splatters) * size + team.thread * rings;
        Rows rows[kMostStreamed + 1];
        std::int64_t lags[kMostStreamed];
        rows[0] = {from, stride, -1, from + a.vertices * stride};
        for (int j = 0; j < last; ++j) {
            const std::int64_t count = ring_rows(a, j);
            std::memset(memory + count * NV * W, 0, NV * W * sizeof(T));
            rows[j + 1] = {memory, NV * W, count - 1, memory + count * NV * W};
            memory += (count + 1) * kMostRow;
        }
        rows[last + 1] = {to, stride, -1, nullptr};
        for (int j = 0; j <= last; ++j) lags[j] = lag(a, j);
        for (std::int64_t front = mine.begin - behind; front - behind < mine.end; front += kTile)
            for (int j = 0; j <= last; ++j) {
                const std::int64_t ahead = behind - lags[j];
                Range tile{front - lags[j], front - lags[j] + kTile};
                const Range of_axis{mine.begin - ahead, mine.end + ahead};
                if (tile.begin < of_axis.begin) tile.begin = of_axis.begin;
                if (tile.begin < 0) tile.begin = 0;
                if (tile.end > of_axis.end) tile.end = of_axis.end;
                if (tile.end > a.vertices) tile.end = a.vertices;
                blur_tile<NV>(a, axis(a, j, way(a)), tile, rows[j], rows[j + 1]);
            }
    }
    template <int NV>
    static void blur_tile(const FilterArgs<T>& a, int axis, Range tile, const Rows& source, const Rows& target) {
        const std::int32_t* const pairs = a.neighbors + axis * a.vertices * 2;
        for (std::int64_t v = tile.begin; v < tile.end; ++v) {
            const T *const here = source.at(v), *const down = source.near(pairs[2 * v], a.vertices),
                           *const up = source.near(pairs[2 * v + 1], a.vertices);
            Vec<T> sum[NV];
            for (int k = 0; k < NV; ++k) sum[k] = load(here + k * W) + a.tap * (load(down + k * W) + load(up + k * W));
            T* const to = target.at(v);
            for (int k = 0; k < NV; ++k) store(to + k * W, sum[k]);
        }
    }

    // The first line that begins at `from` or later.
    static std::int64_t next_line(const Lines& lines, std::int64_t from) {
        while (from > 0 && from < lines.count && lines.member[from - 1] >= 0) ++from;
        return from;
    }

    // The row of a member of a line.
    inline T* row(const Lines& lines, std::int64_t i, T* values) const {
        const std::int32_t v = lines.member[i];
        return values + static_cast<std::int64_t>(v ^ v >> 31) * stride;
    }

    // The rows of whole lines, NV vectors of each. A row is overwritten when the next row has been read.
    template <int NV> void blur_lines(const Lines& lines, Range range, T tap, T* values) const {
        if (far) return blur_far_lines<NV>(lines, range, tap, values);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            T* at = row(lines, i, values);
            Vec<T> before[NV] = {}, here[NV];
            for (int k = 0; k < NV; ++k) here[k] = load(at + k * W);
            do {
                T* const next = row(lines, ++i, values);
                for (int k = 0; k < NV; ++k) {
                    const Vec<T> there = load(next + k * W);
                    store(at + k * W, here[k] + tap * (before[k] + there));
                    before[k] = here[k];
                    here[k] = there;
                }
                at = next;
            } while (lines.member[i] >= 0);
            for (int k = 0; k < NV; ++k) store(at + k * W, here[k] + tap * before[k]);
        }
    }
    // The same where rows come from memory: a branch at the end of a short line would be mispredicted, and the loads
    // behind it would wait. So the next row may be of another line, and is then masked.
    template <int NV> void blur_far_lines(const Lines& lines, Range range, T tap, T* values) const {
        if (range.begin == range.end) return;
        T* at = row(lines, range.begin, values);
        Vec<T> before[NV] = {}, here[NV];
        for (int k = 0; k < NV; ++k) here[k] = load(at + k * W);
        for (std::int64_t i = range.begin; i < range.end; ++i) {
            T* const next = row(lines, i + 1 < range.end ? i + 1 : i, values);
            prefetch(row(lines, i + kAhead, values), NV * W);
            const Int<T> joined = Int<T>{} + ~(lines.member[i] >> 31);
            for (int k = 0; k < NV; ++k) {
                const Vec<T> there = load(next + k * W);
                store(at + k * W, here[k] + tap * (before[k] + masked<T>(there, joined)));
                before[k] = masked<T>(here[k], joined);
                here[k] = there;
            }
            at = next;
        }
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
