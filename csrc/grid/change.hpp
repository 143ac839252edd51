// A kernel on a grid while x changes at a few pixels: the filtered coarse grid is kept, and the change of single pixels
// goes through the kernel alone.
//
// K = up middle down along every axis, see CoarseGrid. A coarse line is one of the last axis, with the coarse points of
// all other axes in order. Its cells are in tiles, and a word per line has a bit for every tile that a change reaches.
#pragma once

#include "grid/coarse.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> struct GridChange {
    static constexpr int W = kLanes<T>;
    static constexpr std::int64_t kCell = NV * W;
    static constexpr std::int64_t kMostLines = 128,
                                  kMostCells = 1200;  // of one pixel: more would cost more than a step
    using Tiles = std::uint64_t;

    const Grid<T>* grid;
    const CoarseGrid<T, NV>* coarse;
    int last;                                        // the number of the last axis
    std::int64_t lines, cells, apart, length, size;  // coarse lines and their cells; `apart` values between cells
    std::int64_t tile, tiles;                        // cells of a tile; tiles of a line
    double touched;                                  // cells that a pixel is taken to, or read from, on average
    std::int64_t most[kMaxAxes];                     // coarse points that a pixel is taken to, along each axis
    std::int32_t* from[kMaxAxes];                    // (pixels): the first of them
    T* weight[kMaxAxes];                             // (pixels, most)
    T* across;                                       // (1): the largest sum of weights on the way up, along a line
    T* changes;                                      // (threads, size): changes of the coarse grid, 0 between two steps
    T* between[2];                                   // (size), after `middle` of some axes
    T* bounds;                                       // (lines, tiles): the change of F, largest minus smallest entry
    Tiles* marked;                                   // (threads + 3, lines): tiles of the arrays above, then of F
    T* taken;                                        // (threads, most_taken(), kCell): cells of the last pixels taken
    std::int64_t most_pixels;                        // of a call of `take`
    int threads;

    // False if one pixel has so many coarse points that whole steps are faster.
    bool plan(const Grid<T>& g, const CoarseGrid<T, NV>& whole, std::int64_t of_pixels, int of_threads) {
        grid = &g;
        most_pixels = of_pixels;
        coarse = &whole;
        threads = of_threads;
        last = g.axes - 1;
        lines = 1;
        std::int64_t taken = 1, read = 1;
        double all_taken = 1, all_read = 1;
        for (int a = 0; a <= last; ++a) {
            most[a] = 0;
            for (std::int64_t p = 0; p < pixels(a); ++p) {
                const Range some = taking(a, p);
                most[a] = some.end - some.begin > most[a] ? some.end - some.begin : most[a];
            }
            if (a < last) {
                lines *= g.up[a].columns;
                taken *= most[a];
                read *= g.up[a].width;
            }
            if (taken > kMostLines || read > kMostLines || g.middle[a].width > kMostLines ||
                taken * most[a] > kMostCells || read * g.up[a].width > kMostCells)
                return false;
            all_taken *= static_cast<double>(g.down[a].rows * g.down[a].width) / static_cast<double>(pixels(a));
            all_read *= static_cast<double>(g.up[a].width);
        }
        touched = all_taken > all_read ? all_taken : all_read;
        cells = g.up[last].columns;
        length = whole.length;
        apart = last ? kCell : length;  // a line of its own for each cell
        if (!last) length = cells * apart;
        size = lines * length;
        tile = 4;
        while ((cells + tile - 1) / tile > 64) tile *= 2;
        tiles = (cells + tile - 1) / tile;
        return true;
    }
    void layout(Parts& parts) {
        for (int a = 0; a <= last; ++a) {
            parts.take(from[a], pixels(a));
            parts.take(weight[a], pixels(a) * most[a]);
        }
        parts.take(across, 1);
        parts.take(changes, threads * size);
        for (T*& array : between) parts.take(array, size);
        parts.take(bounds, lines * tiles);
        parts.take(marked, (threads + 3) * lines);
        parts.take(taken, threads * most_taken() * kCell);
    }
    // Zeros that `take` reads on both sides of its pixels, and the most cells that it gives these pixels to.
    std::int64_t margin() const { return grid->down[last].width - 1; }
    std::int64_t most_taken() const { return most_pixels + 3 * grid->down[last].width; }
    // To be called once, by one thread.
    void begin() const {
        for (int a = 0; a <= last; ++a) {
            const Band<T>& down = grid->down[a];
            std::int64_t first = 0;
            for (std::int64_t p = 0; p < pixels(a); ++p) {
                while (first < down.rows && down.first[first] + down.width <= p) ++first;
                from[a][p] = static_cast<std::int32_t>(first);
                for (std::int64_t t = 0; t < most[a]; ++t) {
                    const std::int64_t j = first + t, k = j < down.rows ? p - down.first[j] : -1;
                    weight[a][p * most[a] + t] = k >= 0 && k < down.width ? down.weight[j * down.width + k] : T(0);
                }
            }
        }
        const Band<T>& up = grid->up[last];
        *across = 0;
        for (std::int64_t p = 0; p < pixels(last); ++p) {
            T sum = 0;
            for (std::int64_t t = 0; t < up.width; ++t) sum += size_of(up.weight[p * up.width + t]);
            *across = sum > *across ? sum : *across;
        }
        std::memset(changes, 0, threads * size * sizeof(T));
        std::memset(marked, 0, (threads + 3) * lines * sizeof(Tiles));
    }

    std::int64_t pixels(int axis) const { return grid->up[axis].rows; }
    std::int64_t line_of(std::int64_t pixel) const { return pixel / pixels(last); }
    // F, the filtered coarse grid: whole steps fill it, changes are added to it.
    T* filtered() const { return coarse->filtered; }

    // The coarse lines that a line of pixels is taken to, or read from.
    struct Lines {
        std::int64_t of = -1;  // number of the line of pixels
        int count = 0;
        std::int64_t line[kMostLines];
        T weight[kMostLines];
    };
    void find_taking(std::int64_t line, Lines& found) const {
        if (line == found.of) return;
        find(line, found, [this](int a, std::int64_t p, std::int64_t& begin, const T*& w) {
            begin = from[a][p];
            w = weight[a] + p * most[a];
            const std::int64_t left = grid->up[a].columns - begin;
            return left < most[a] ? left : most[a];
        });
    }
    void find_read(std::int64_t line, Lines& found) const {
        if (line == found.of) return;
        find(line, found, [this](int a, std::int64_t p, std::int64_t& begin, const T*& w) {
            const Band<T>& up = grid->up[a];
            begin = up.first[p];
            w = up.weight + p * up.width;
            return up.width;
        });
    }

    // changes += down of the changes of at most `most_pixels` pixels of one line, as cells between zeros: the line is
    // in `taking`, the places of the pixels there are [p, p + count).
    void take(const T* pixels, const Lines& taking, std::int64_t p, std::int64_t count, int thread) const {
        const Band<T>& down = grid->down[last];
        const std::int64_t begin = from[last][p];
        std::int64_t end = begin;
        while (end < down.rows && down.first[end] < p + count) ++end;
        if (end == begin) return;
        T* const cell = taken + thread * most_taken() * kCell;
        FWCRF_ISA::cells<T, NV>(down, {begin, end}, pixels - p * kCell, kCell, cell);
        const Tiles touched = tiles_of(begin, end);
        for (int e = 0; e < taking.count; ++e) {
            T* to = changes + thread * size + taking.line[e] * length + begin * apart;
            const T w = taking.weight[e];
            for (const T *v = cell, *stop = cell + (end - begin) * kCell; v < stop; v += kCell, to += apart)
                for (int k = 0; k < NV; ++k) store(to + k * W, load(to + k * W) + w * load(v + k * W));
            marked[thread * lines + taking.line[e]] |= touched;
        }
    }

    // F += middle of all changes. Every thread of a region calls this when all changes are taken; a barrier must
    // follow.
    void filter(Team team, Barrier& barrier) const {
        const Range mine = share(lines, team.thread, team.threads);
        if (team.threads > 1) {
            for (std::int64_t l = mine.begin; l < mine.end; ++l) add_up(l, team.threads);
            barrier.wait(team.threads);
        }
        int left = 0, turn = 0;
        for (int a = 0; a <= last; ++a) left += grid->middle[a].width > 0;
        Source source{changes, marked};
        if (left == 0) {
            for (std::int64_t l = mine.begin; l < mine.end; ++l) add_plain(l, source);
            barrier.wait(team.threads);
        }
        for (int a = last; a >= 0; --a) {
            if (!grid->middle[a].width) continue;
            const bool final = --left == 0;
            const Source target{between[turn], marked + (threads + turn) * lines};
            Tiles* const tiles_to = final ? marked + (threads + 2) * lines : target.marked;
            for (std::int64_t l = mine.begin; l < mine.end; ++l)
                if (a == last) along(l, source, target, tiles_to, final);
                else over(a, l, source, target, tiles_to, final);
            barrier.wait(team.threads);
            source = target;
            turn ^= 1;
        }
        for (std::int64_t l = mine.begin; l < mine.end; ++l) {
            for_tiles(marked[l], [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                std::memset(changes + l * length + begin * apart, 0, (end - begin) * apart * sizeof(T));
            });
            marked[l] = 0;
        }
    }

    // F = 0, for a thread's lines that `filter` has reached, or for all lines.
    void clear(Team team, bool all) const {
        const Range mine = share(lines, team.thread, team.threads);
        if (all) std::memset(filtered() + mine.begin * length, 0, (mine.end - mine.begin) * length * sizeof(T));
        for (std::int64_t l = mine.begin; l < mine.end && !all; ++l)
            for_tiles(marked[(threads + 2) * lines + l], [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                std::memset(filtered() + l * length + begin * apart, 0, (end - begin) * apart * sizeof(T));
            });
    }
    // <values, F> of a thread's lines, where `filter` has reached them.
    double product(const T* values, Team team) const {
        const Range mine = share(lines, team.thread, team.threads);
        double all = 0;
        for (std::int64_t l = mine.begin; l < mine.end; ++l) {
            Vec<T> sum{};
            for_tiles(marked[(threads + 2) * lines + l], [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                for (std::int64_t at = l * length + begin * apart; at < l * length + end * apart; at += W)
                    sum += load(values + at) * load(filtered() + at);
            });
            all += total<T>(sum);
        }
        return all;
    }

    // Clears the changes that a thread has taken.
    void forget(Team team) const {
        T* const mine = changes + team.thread * size;
        for (std::int64_t l = 0; l < lines; ++l) {
            Tiles& some = marked[team.thread * lines + l];
            for_tiles(some, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                std::memset(mine + l * length + begin * apart, 0, (end - begin) * apart * sizeof(T));
            });
            some = 0;
        }
    }

    // A bound on the change of the pixels [begin, end) of a line, see LatticeChange.
    T bound(const Lines& read, std::int64_t begin, std::int64_t end) const {
        const Band<T>& up = grid->up[last];
        const std::int64_t first = up.first[begin] / tile, stop = (up.first[end - 1] + up.width - 1) / tile + 1;
        const Tiles here = tiles_of(up.first[begin], up.first[end - 1] + up.width);
        const Tiles* const of_lines = marked + (threads + 2) * lines;
        T sum = 0;
        for (int e = 0; e < read.count; ++e) {
            if (!(of_lines[read.line[e]] & here)) continue;
            const T* const row = bounds + read.line[e] * tiles;
            T largest = 0;
            for (std::int64_t t = first; t < stop; ++t) largest = row[t] > largest ? row[t] : largest;
            sum += size_of(read.weight[e]) * largest;
        }
        return sum * *across;
    }

  private:
    static T size_of(T w) { return w < T(0) ? -w : w; }
    static inline void add_cell(T* cell, T w, const Vec<T> (&v)[NV]) {
        for (int k = 0; k < NV; ++k) store(cell + k * W, load(cell + k * W) + w * v[k]);
    }

    // The coarse points along an axis to which a pixel is taken: rows of `down` that have the pixel in their band.
    Range taking(int axis, std::int64_t pixel) const {
        const Band<T>& down = grid->down[axis];
        std::int64_t low = 0, high = down.rows;
        while (low < high) {
            const std::int64_t middle = (low + high) / 2;
            if (down.first[middle] + down.width <= pixel) low = middle + 1;
            else high = middle;
        }
        std::int64_t end = low;
        while (end < down.rows && down.first[end] <= pixel) ++end;
        return {low, end};
    }

    // Products over all axes but the last: `of_axis` sets the first coarse point of a pixel and the weights, and
    // returns their number.
    template <typename F> void find(std::int64_t line, Lines& found, F&& of_axis) const {
        found.of = line;
        found.count = 1;
        found.line[0] = 0;
        found.weight[0] = T(1);
        std::int64_t step = 1;
        for (int a = last - 1; a >= 0; --a) {
            const std::int64_t p = line % pixels(a);
            line /= pixels(a);
            std::int64_t begin = 0;
            const T* w = nullptr;
            const std::int64_t count = of_axis(a, p, begin, w);
            const int before = found.count;
            for (std::int64_t t = count - 1; t >= 0; --t)
                for (int e = 0; e < before; ++e) {
                    const std::int64_t to = t * before + e;
                    found.line[to] = found.line[e] + (begin + t) * step;
                    found.weight[to] = found.weight[e] * w[t];
                }
            found.count = static_cast<int>(count) * before;
            step *= grid->up[a].columns;
        }
    }

    static Tiles low_bits(std::int64_t count) { return count >= 64 ? ~Tiles{0} : (Tiles{1} << count) - 1; }
    // The tiles of the cells [begin, end).
    Tiles tiles_of(std::int64_t begin, std::int64_t end) const {
        return low_bits((end - 1) / tile + 1) & ~low_bits(begin / tile);
    }
    // Calls act(tile, first cell, end) for every marked tile.
    template <typename F> void for_tiles(Tiles some, F&& act) const {
        for (; some; some &= some - 1) {
            const std::int64_t t = __builtin_ctzll(some), end = (t + 1) * tile;
            act(t, t * tile, end < cells ? end : cells);
        }
    }

    struct Source {
        T* values;
        Tiles* marked;
    };

    // The changes of all threads, in those of the first.
    void add_up(std::int64_t l, int of_threads) const {
        for (int other = 1; other < of_threads; ++other) {
            Tiles& tiles_there = marked[other * lines + l];
            for_tiles(tiles_there, [&](std::int64_t, std::int64_t begin, std::int64_t end) {
                T *const to = changes + l * length + begin * apart, *const given = to + other * size;
                for (std::int64_t at = 0; at < (end - begin) * apart; at += W)
                    store(to + at, load(to + at) + load(given + at));
                std::memset(given, 0, (end - begin) * apart * sizeof(T));
            });
            marked[l] |= tiles_there;
            tiles_there = 0;
        }
    }

    // Adds the cells [begin, end) of a tile to F.
    void add_to_filtered(std::int64_t l, std::int64_t t, std::int64_t begin, std::int64_t end, const T* moved) const {
        Vec<T> high{}, low{};
        T* const row = filtered() + l * length + begin * apart;
        for (std::int64_t j = 0; j < end - begin; ++j)
            for (int k = 0; k < NV; ++k) {
                const Vec<T> v = load(moved + j * apart + k * W);
                high = max<T>(v, high);
                low = min<T>(v, low);
                T* const at = row + j * apart + k * W;
                store(at, load(at) + v);
            }
        T most_high = 0, most_low = 0;
        for (int i = 0; i < W; ++i) {
            most_high = lane(high, i) > most_high ? lane(high, i) : most_high;
            most_low = lane(low, i) < most_low ? lane(low, i) : most_low;
        }
        bounds[l * tiles + t] = most_high - most_low;
    }
    void clear_bounds(std::int64_t l) const { std::memset(bounds + l * tiles, 0, tiles * sizeof(T)); }

    void add_plain(std::int64_t l, Source source) const {
        clear_bounds(l);
        marked[(threads + 2) * lines + l] = source.marked[l];
        for_tiles(source.marked[l], [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
            add_to_filtered(l, t, begin, end, source.values + l * length + begin * apart);
        });
    }

    // `middle` of the last axis. Cells of `changes` that are not marked are 0.
    void along(std::int64_t l, Source source, Source target, Tiles* tiles_to, bool final) const {
        const Band<T>& b = grid->middle[last];
        if (final) clear_bounds(l);
        const Tiles given = source.marked[l];
        Tiles reached = given;
        const std::int64_t reach = b.width < b.rows ? (b.width + 1) / 2 : b.width;
        for (std::int64_t t = 0; t < reach && given; t += tile) reached |= reached << 1 | reached >> 1;
        reached &= low_bits(tiles);
        tiles_to[l] = reached;
        const T* const row = source.values + l * length;
        for_tiles(reached, [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
            T* const to = target.values + l * length + begin * apart;
            if (last) {
                FWCRF_ISA::cells<T, NV>(b, {begin, end}, row, kCell, to);
            } else {
                for (std::int64_t j = begin; j < end; ++j)
                    one_row<T, NV>(b.weight + j * b.width, b.width, {row + b.first[j] * apart, apart, nullptr, nullptr},
                                   to + (j - begin) * apart);
            }
            if (final) add_to_filtered(l, t, begin, end, to);
        });
    }

    // `middle` of another axis.
    void over(int axis, std::int64_t l, Source source, Source target, Tiles* tiles_to, bool final) const {
        const Band<T>& b = grid->middle[axis];
        if (final) clear_bounds(l);
        std::int64_t step = 1;
        for (int a = axis + 1; a < last; ++a) step *= grid->up[a].columns;
        const std::int64_t j = l / step % b.rows, first = l + (b.first[j] - j) * step;
        Tiles reached = 0;
        for (std::int64_t i = 0; i < b.width; ++i) reached |= source.marked[first + i * step];
        tiles_to[l] = reached;
        const T* const w = b.weight + j * b.width;
        for_tiles(reached, [&](std::int64_t t, std::int64_t begin, std::int64_t end) {
            // Lines that the tile of the result needs, and their weights.
            const T *from[kMostLines], *const values = source.values + begin * apart;
            T weight_of[kMostLines];
            int count = 0;
            for (std::int64_t i = 0; i < b.width; ++i) {
                if (!(source.marked[first + i * step] >> t & 1)) continue;
                from[count] = values + (first + i * step) * length;
                weight_of[count++] = w[i];
            }
            T* const to = target.values + l * length + begin * apart;
            const std::int64_t all = (end - begin) * apart;
            std::int64_t at = 0;
            for (; at + 4 * W <= all; at += 4 * W) {
                Vec<T> sum[4] = {};
                for (int i = 0; i < count; ++i)
                    for (int k = 0; k < 4; ++k) sum[k] += weight_of[i] * load(from[i] + at + k * W);
                for (int k = 0; k < 4; ++k) store(to + at + k * W, sum[k]);
            }
            for (; at < all; at += W) {
                Vec<T> sum{};
                for (int i = 0; i < count; ++i) sum += weight_of[i] * load(from[i] + at);
                store(to + at, sum);
            }
            if (final) add_to_filtered(l, t, begin, end, to);
        });
    }
};

}  // namespace fwcrf::FWCRF_ISA
