// A band along one axis of an array, the way to the coarse grid; and products there, for derivatives in the kernel.
#include "bind/functions.hpp"
#include "grid/bands.hpp"
#include "runtime/scratch.hpp"

#include <cstring>

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> static void lines_of(const BandArgs<T>& a) {
    constexpr std::int64_t kCell = NV * kLanes<T>;
    in_parallel(a.threads, [&](Team team) {
        Scratch scratch;
        T* const copy = scratch.get<T>(a.band.columns * kCell);
        const std::int64_t length = a.band.columns * a.inner;
        const Range mine = share(a.outer, team.thread, team.threads);
        for (std::int64_t o = mine.begin; o < mine.end; ++o) {
            const T* line = a.x + o * length;
            T* const to = a.out + o * a.band.rows * kCell;
            // Whole vectors reach past the labels of a pixel, and past the end of the array from its last line.
            if ((o + 1) * length + kCell <= a.outer * length || a.inner == kCell) {
                cells<T, NV>(a.band, {0, a.band.rows}, line, a.inner, to);
                continue;
            }
            std::memset(copy, 0, a.band.columns * kCell * sizeof(T));
            for (std::int64_t i = 0; i < a.band.columns; ++i)
                std::memcpy(copy + i * kCell, line + i * a.inner, a.inner * sizeof(T));
            cells<T, NV>(a.band, {0, a.band.rows}, copy, kCell, to);
        }
    });
}

template <typename T> void shrink_lines(const BandArgs<T>& a) {
    switch (a.cell / kLanes<T>) {
    case 1: return lines_of<T, 1>(a);
    case 2: return lines_of<T, 2>(a);
    case 3: return lines_of<T, 3>(a);
    default: return lines_of<T, 4>(a);
    }
}

template <typename T> void shrink_axis(const BandArgs<T>& a) {
    const std::int64_t groups = (a.band.rows + kTogether - 1) / kTogether;
    for_each(a.threads, a.outer * groups, [&](std::int64_t k) {
        const std::int64_t o = k / groups, j = k % groups * kTogether;
        const Range some{j, j + kTogether < a.band.rows ? j + kTogether : a.band.rows};
        band_rows<T>(a.band, some, {a.x + o * a.band.columns * a.inner, a.inner, a.band.columns}, a.inner,
                     a.out + (o * a.band.rows + j) * a.inner, a.inner);
    });
}

// Some cells of each row of an array, one after the other without the space past the labels, and zeros after them.
template <typename T>
static void pack(const BandProductArgs<T>& a, const T* from, Range cells, std::int64_t row, T* to) {
    const auto move = [&](const T* cell, T* target) {
        for (std::int64_t s = 0; s < a.labels; s += kLanes<T>) store(target + s, load_some(cell + s, a.labels - s));
    };
    // In the order of memory.
    const std::int64_t step = a.inner * a.cell;
    if (a.inner == 1) {
        for (std::int64_t k = cells.begin; k < cells.end; ++k, to += a.labels)
            for (std::int64_t i = 0; i < a.size; ++i) move(from + k * a.size * a.cell + i * step, to + i * row);
        return;
    }
    for (std::int64_t i = 0; i < a.size; ++i)
        for (std::int64_t k = cells.begin; k < cells.end;) {
            const std::int64_t outer = k / a.inner,
                               end = (outer + 1) * a.inner < cells.end ? (outer + 1) * a.inner : cells.end;
            const T* cell = from + ((outer * a.size + i) * a.inner + k - outer * a.inner) * a.cell;
            T* target = to + i * row + (k - cells.begin) * a.labels;
            for (; k < end; ++k, cell += a.cell, target += a.labels) move(cell, target);
        }
}

template <typename T> void band_products(const BandProductArgs<T>& a) {
    // As many products of rows at a time as a vector has lanes, so that all their sums are one vector.
    constexpr int W = kLanes<T>, kColumns = W < 16 ? 2 : 4, kRows = W / kColumns;
    constexpr std::int64_t kMost = 384;  // values of a row that are packed
    const std::int64_t all = a.outer * a.inner, some = kMost / a.labels, parts = (all + some - 1) / some;
    const std::int64_t row = (some * a.labels + 2 * W - 2) / W * W, rows = (a.size + W - 1) / W * W;
    const std::int64_t each = 2 * rows * row + a.size * a.size;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(a.threads * each);
    std::memset(memory, 0, a.threads * each * sizeof(T));
    in_parallel(a.threads, [&](Team team) {
        T *const left = memory + team.thread * each, *const right = left + rows * row, *const own = right + rows * row;
        const Range mine = share(parts, team.thread, team.threads);
        for (std::int64_t part = mine.begin; part < mine.end; ++part) {
            const Range cells{part * some, (part + 1) * some < all ? (part + 1) * some : all};
            if (cells.end == all) std::memset(left, 0, 2 * rows * row * sizeof(T));
            pack(a, a.left, cells, row, left);
            pack(a, a.right, cells, row, right);
            for (std::int64_t i = 0; i < a.size; i += kRows) {
                const std::int64_t begin = i < a.reach ? 0 : (i - a.reach) / kColumns * kColumns;
                for (std::int64_t j = begin; j < a.size && j < i + kRows + a.reach; j += kColumns) {
                    Vec<T> sum[W] = {};
                    for (std::int64_t e = 0; e < row; e += W) {
                        Vec<T> v[kRows], w[kColumns];
                        for (int r = 0; r < kRows; ++r) v[r] = load_once(left + (i + r) * row + e);
                        for (int c = 0; c < kColumns; ++c) w[c] = load_once(right + (j + c) * row + e);
                        for (int r = 0; r < kRows; ++r)
                            for (int c = 0; c < kColumns; ++c) sum[r * kColumns + c] += v[r] * w[c];
                    }
                    const Vec<T> found = sums<T>(sum);
                    for (int r = 0; r < kRows && i + r < a.size; ++r)
                        for (int c = 0; c < kColumns && j + c < a.size; ++c)
                            own[(i + r) * a.size + j + c] += found[r * kColumns + c];
                }
            }
        }
    });
    for (int t = 0; t < a.threads; ++t)
        for (std::int64_t k = 0; k < a.size * a.size; ++k) a.sums[k] += memory[t * each + 2 * rows * row + k];
    scratch.trim();
}

FWCRF_INSTANTIATE(shrink_lines)
FWCRF_INSTANTIATE(shrink_axis)
FWCRF_INSTANTIATE(band_products)

}  // namespace fwcrf::FWCRF_ISA
