// Unary energies of a network's scores, pixel after pixel, and the range of the scores.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "simd/math.hpp"
#include "simd/rows.hpp"

namespace fwcrf::FWCRF_ISA {

// The range of the scores that a thread has seen, one lane for each of the W pixels that are seen at a time.
template <typename T> struct Extents {
    Vec<T> least = fill(kInfinity<T>), most = -least, lowest = least, highest = most, nothing{};

    inline void see(Vec<T> v) {
        least = min<T>(v, least);
        most = max<T>(v, most);
        nothing += v * T(0);  // NaN unless v is finite
    }
    inline void see_sum(Vec<T> sum) {
        lowest = min<T>(sum, lowest);
        highest = max<T>(sum, highest);
    }
    void into(ScoreRange& all) const {
        for (int l = 0; l < kLanes<T>; ++l) {
            all.least = lane(least, l) < all.least ? lane(least, l) : all.least;
            all.most = lane(most, l) > all.most ? lane(most, l) : all.most;
            all.lowest_sum = lane(lowest, l) < all.lowest_sum ? lane(lowest, l) : all.lowest_sum;
            all.highest_sum = lane(highest, l) > all.highest_sum ? lane(highest, l) : all.highest_sum;
        }
        all.finite = all.finite && all_zero<T>(nothing);
    }
};

template <typename T> struct Energies {
    static constexpr std::int64_t W = kLanes<T>, kEach = 8 * W;  // pixels at a time

    const EnergyArgs<T>& a;

    inline Vec<T> score(Vec<T> v, std::int64_t label) const { return a.offset ? a.slope * v + a.offset[label] : v; }
    inline Vec<T> energy(Vec<T> v) const { return a.probabilities ? -log<T>(max<T>(v, fill(a.least))) : -v; }

    // Transposes `count` pixels of label after label, `step` values between two labels.
    void turn(const T* from, std::int64_t step, std::int64_t count, T* to, Extents<T>& extents) const {
        for (std::int64_t i = 0; i < count; i += W) {
            Vec<T> sum{};
            for (std::int64_t s = 0; s < a.labels; ++s) {
                // The processor prefetches only a few streams by itself, and there is one per label.
                __builtin_prefetch(from + s * step + i + kEach);
                const Vec<T> v = score(load(from + s * step + i), s);
                extents.see(v);
                sum += v;
            }
            extents.see_sum(sum);
            rows(from + i, step, count - i, to + i * a.labels);
        }
    }

    // At most W pixels, as rows. Short rows are written past their end if the next rows are written later.
    void rows(const T* from, std::int64_t step, std::int64_t count, T* to) const {
        const std::int64_t labels = a.labels;
        const bool whole = labels < W ? count >= 2 * W : count >= W;
        for (std::int64_t s = 0; s < labels; s += W) {
            const std::int64_t first = s + W <= labels || labels < W ? s : labels - W;
            Vec<T> square[W];
            for (int k = 0; k < W; ++k) {
                const std::int64_t label = first + k < labels ? first + k : labels - 1;
                square[k] = energy(score(load(from + label * step), label));
            }
            transpose<T>(square);
            if (whole) {
                for (int r = 0; r < W; ++r) store(to + r * labels + first, square[r]);
                continue;
            }
            alignas(64) T copy[W * W];
            for (int r = 0; r < W; ++r) store(copy + r * W, square[r]);
            for (std::int64_t r = 0; r < W && r < count; ++r)
                std::memcpy(to + r * labels + first, copy + r * W, (labels < W ? labels : W) * sizeof(T));
        }
    }

    // W pixels that are pixel after pixel already.
    void keep(const T* from, T* to, Extents<T>& extents) const {
        Vec<T> sum{};
        std::int64_t seen = 0;
        columns_of(from, a.labels, [&](int, std::int64_t column, Vec<T> v) {
            if (column < seen) return;
            seen = column + 1;
            extents.see(v);
            sum += v;
        });
        extents.see_sum(sum);
        for (std::int64_t at = 0; at < W * a.labels; at += W) store(to + at, energy(load(from + at)));
    }

    void part(Range pixels, std::int64_t image, T* room, Extents<T>& extents) const {
        const T* const from = a.x + image * a.n * a.labels;
        T* const to = a.out + image * a.n * a.labels;
        for (std::int64_t i = pixels.begin; i < pixels.end;) {
            const std::int64_t left = pixels.end - i;
            if (a.last && i / W < whole_groups<T>(a.n, a.labels) && left >= W) {
                keep(from + i * a.labels, to + i * a.labels, extents);
                i += W;
            } else if (a.last || left < kEach) {
                // In a copy that repeats the last pixel.
                const std::int64_t count = a.last ? 1 : left;
                for (std::int64_t s = 0; s < a.labels; ++s)
                    for (std::int64_t q = 0; q < kEach; ++q) {
                        const std::int64_t p = i + (q < count ? q : count - 1);
                        room[s * kEach + q] = from[a.last ? p * a.labels + s : s * a.n + p];
                    }
                turn(room, kEach, count, to + i * a.labels, extents);
                i += count;
            } else {
                turn(from + i, a.n, kEach, to + i * a.labels, extents);
                i += kEach;
            }
        }
    }
};

template <typename T> ScoreRange energies(const EnergyArgs<T>& a) {
    using Block = Energies<T>;
    constexpr double inf = __builtin_inf();
    const std::int64_t each = (a.labels + 1) * Block::kEach;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(each * a.threads);
    ScoreRange all{inf, -inf, inf, -inf, true};
    for_each(a.threads, a.threads, [&](std::int64_t part) {
        Extents<T> extents;
        // Whole groups of pixels, so that no thread writes into the rows of another thread.
        const std::int64_t groups = (a.n + Block::kEach - 1) / Block::kEach;
        for (std::int64_t image = 0; image < a.batch; ++image) {
            const Range range = share(groups, static_cast<int>(part), a.threads);
            const std::int64_t begin = range.begin * Block::kEach, end = range.end * Block::kEach;
            Block{a}.part({begin, end < a.n ? end : a.n}, image, memory + part * each, extents);
        }
        const Alone alone;
        extents.into(all);
    });
    scratch.trim();
    return all;
}

FWCRF_INSTANTIATE(energies)

}  // namespace fwcrf::FWCRF_ISA
