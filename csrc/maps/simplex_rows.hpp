// Rows to their simplices: Euclidean projection, softmax, and the derivatives of both.
//
// W rows are mapped at a time, W the lanes of a vector. Results per row (maximum, sums, threshold) are in one vector
// with a lane per row; operations per entry go along the rows. The last vector of a row ends with the row, so that all
// accesses stay inside the arrays. The result of a row depends on that row alone: not on its place, nor on the number
// of threads.
//
// In an unnamed namespace: simplex.cpp is compiled without floating-point contraction, and the linker must not give it
// the code of another file.
#pragma once

#include "simd/math.hpp"
#include "simd/rows.hpp"

namespace fwcrf::FWCRF_ISA {
namespace {

// max(x - t, 0) with the t that makes the sum 1. For any set of entries, t is at least (sum of the entries
// - 1) / (number of entries), with equality for the set of entries above t. For most rows the largest of these bounds
// over the few largest entries is t, and the next largest entry tells whether it is. If not, Newton's method continues:
// the sum of the positive parts is convex in t, so its steps never pass the solution, and fewer and fewer entries are
// above t. Labels that no row keeps are dropped.
template <typename T> struct Project {
    static constexpr int W = kLanes<T>;
    static constexpr int kLargest = 5;
    static constexpr std::int64_t kRun = 256;  // entries of a row that are added up one by one

    static std::int64_t scratch(std::int64_t length) { return length * W; }

    static void apply(const T* x, const T*, T* out, std::int64_t length, T scale, T* block) {
        apply(x, out, length, length, scale, block);
    }
    // For rows of which only the first `entries` are more than minus infinity.
    static inline void apply(const T* x, T* out, std::int64_t length, std::int64_t entries, T scale, T* block) {
        const Row<T> row{length};
        for (std::int64_t at = 0; at < length; at += W) {
            const std::int64_t place = row.place(at);
            Vec<T> v[W];
            for (int r = 0; r < W; ++r) v[r] = scale * load(x + r * length + place);
            transpose<T>(v);
            for (int c = 0; c < W; ++c) store(block + (place + c) * W, v[c]);
        }
        Vec<T> largest[kLargest + 1];
        find_largest(block, entries, largest);
        // t is relative to the largest entry, for precision.
        const Vec<T> top = largest[0];
        Vec<T> t = fill(T(-1)), sum = t;
        for (int j = 1; j < kLargest; ++j) {
            sum += largest[j] - top;
            t = max<T>(sum * (T(1) / static_cast<T>(j + 1)), t);
        }
        const Mask<T> done = ~(largest[kLargest] - top > t);
        if (any(~done)) t = newton(block, entries, top, t, done);
        alignas(64) T tops[W], ts[W];
        store(tops, top);
        store(ts, t);
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> rest = (scale * load(x + place) - tops[r]) - ts[r];
                store(out + place, max<T>(Vec<T>{}, rest));  // keeps NaN
            }
    }

  private:
    // In descending order. Six entries at a time are sorted, then merged with the largest so far.
    static inline void find_largest(const T* block, std::int64_t entries, Vec<T> (&largest)[kLargest + 1]) {
        static_assert(kLargest + 1 == 6, "the order of comparisons is for six");
        std::int64_t i = 0;
        if (entries >= 6) sorted_six(block, largest), i = 6;
        else
            for (Vec<T>& entry : largest) entry = fill(-kInfinity<T>);
        for (; i + 6 <= entries; i += 6) {
            Vec<T> v[6];
            sorted_six(block + i * W, v);
            for (int j = 0; j < 6; ++j) largest[j] = max<T>(v[5 - j], largest[j]);
            constexpr int merge[][2] = {{0, 4}, {0, 5}, {1, 5}, {2, 4}, {3, 5}, {2, 3}, {4, 5}};
            for (const auto& pair : merge) exchange(largest[pair[0]], largest[pair[1]]);
        }
        for (; i < entries; ++i) {
            Vec<T> v = load(block + i * W);
            for (Vec<T>& entry : largest) exchange(entry, v);
        }
    }
    static inline void sorted_six(const T* block, Vec<T> (&v)[6]) {
        for (int j = 0; j < 6; ++j) v[j] = load(block + j * W);
        constexpr int sort[][2] = {{0, 5}, {1, 3}, {2, 4}, {1, 2}, {3, 4}, {0, 3},
                                   {2, 5}, {0, 1}, {2, 3}, {4, 5}, {1, 2}, {3, 4}};
        for (const auto& pair : sort) exchange(v[pair[0]], v[pair[1]]);
    }
    static inline void exchange(Vec<T>& high, Vec<T>& low) {
        const Vec<T> most = max<T>(low, high);
        low = min<T>(low, high);
        high = most;
    }

    // The sum and the number of the entries [first, last) above top + t, which are moved to the front.
    static inline void add_up(T* block, std::int64_t first, std::int64_t last, Vec<T> top, Vec<T> t, std::int64_t& kept,
                              Vec<T>& sum, Vec<T>& count) {
        for (std::int64_t i = first; i < last; ++i) {
            const Vec<T> v = load(block + i * W), rest = (v - top) - t;
            const Mask<T> positive = rest > T(0);
            sum += select(positive, rest, Vec<T>{});
            count += select(positive, fill(T(1)), Vec<T>{});
            store(block + kept * W, v);
            kept += any(positive);
        }
    }
    static Vec<T> newton(T* block, std::int64_t length, Vec<T> top, Vec<T> t, Mask<T> done) {
        if (length > kRun) return newton_long(block, length, top, t, done);
        Vec<T> before = fill(static_cast<T>(length + 1));
        while (any(~done)) {
            Vec<T> sum{}, count{};
            std::int64_t kept = 0;
            add_up(block, 0, length, top, t, kept, sum, count);
            length = kept;
            // A row that is done does not change while the other rows go on.
            t = select(done, t, t + (sum - T(1)) / count);
            done |= ~(count < before);
            before = count;
        }
        return t;
    }
    // The rounding errors of a long sum could carry t past the solution. Steps are that much shorter until the sum is
    // near 1. Only after a whole step, an unchanged number of positive entries means the solution.
    static Vec<T> newton_long(T* block, std::int64_t length, Vec<T> top, Vec<T> t, Mask<T> done) {
        Vec<T> before = fill(static_cast<T>(length + 1));
        Mask<T> was_whole{};
        const T error = kEpsilon<T> * static_cast<T>(kRun + length / kRun);
        while (any(~done)) {
            Vec<T> sum{}, count{};
            std::int64_t kept = 0;
            for (std::int64_t first = 0; first < length; first += kRun) {
                Vec<T> part{};
                add_up(block, first, length - first < kRun ? length : first + kRun, top, t, kept, part, count);
                sum += part;
            }
            length = kept;
            const Mask<T> more = (count < before) | ~was_whole, whole = ~(sum > T(2));
            t = select(done, t, t + (sum - T(1) - select(whole, Vec<T>{}, error * sum)) / count);
            done |= ~more;
            was_whole = whole;
            before = count;
        }
        return t;
    }
};

// d minus its mean over the support of p, and 0 elsewhere.
template <typename T> struct ProjectDerivative {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* d, const T* p, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> sum[W] = {}, count[W] = {};
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                Mask<T> support = load(p + place) > T(0);
                if (at + W >= length) support &= fresh;
                sum[r] += select(support, scale * load(d + place), Vec<T>{});
                count[r] += select(support, fill(T(1)), Vec<T>{});
            }
        alignas(64) T mean[W];
        store(mean, sums<T>(sum) / sums<T>(count));
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> rest = scale * load(d + place) - mean[r];
                store(out + place, select(load(p + place) > T(0), rest, Vec<T>{}));
            }
    }
};

template <typename T> struct Softmax {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* x, const T*, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> top[W], sum[W] = {};
        for (int r = 0; r < W; ++r) {
            top[r] = fill(-kInfinity<T>);
            for (std::int64_t at = 0; at < length; at += W)
                top[r] = max<T>(scale * load(x + r * length + row.place(at)), top[r]);
        }
        alignas(64) T lanes[W];
        transpose<T>(top);
        for (int c = 1; c < W; ++c) top[0] = max<T>(top[0], top[c]);
        store(lanes, top[0]);
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> e = exp<T>(scale * load(x + place) - lanes[r]);
                store(out + place, e);
                sum[r] += at + W >= length ? select(fresh, e, Vec<T>{}) : e;
            }
        store(lanes, T(1) / sums<T>(sum));
        for (int r = 0; r < W; ++r) {
            T* const to = out + r * length;
            // Loaded before the overlapping vector is changed.
            const Vec<T> last = load(to + length - W);
            for (std::int64_t at = 0; at + W < length; at += W) store(to + at, load(to + at) * lanes[r]);
            store(to + length - W, last * lanes[r]);
        }
    }
};

// W rows of x from `first` on; if x is null, of softmax(-unary), computed in `room`.
template <typename T>
static inline const T* rows_or_softmax(const T* x, const T* unary, std::int64_t first, std::int64_t length, T* room) {
    if (x) return x + first * length;
    Softmax<T>::apply(unary + first * length, nullptr, room, length, T(-1), nullptr);
    return room;
}

// p (d - <d, p>)
template <typename T> struct SoftmaxDerivative {
    static constexpr int W = kLanes<T>;

    static std::int64_t scratch(std::int64_t) { return 0; }

    static void apply(const T* d, const T* p, T* out, std::int64_t length, T scale, T*) {
        const Row<T> row{length};
        const Mask<T> fresh = row.fresh();
        Vec<T> sum[W] = {};
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                const Vec<T> product = scale * load(d + place) * load(p + place);
                sum[r] += at + W >= length ? select(fresh, product, Vec<T>{}) : product;
            }
        alignas(64) T inner[W];
        store(inner, sums<T>(sum));
        for (int r = 0; r < W; ++r)
            for (std::int64_t at = 0; at < length; at += W) {
                const std::int64_t place = r * length + row.place(at);
                store(out + place, load(p + place) * (scale * load(d + place) - inner[r]));
            }
    }
};

}  // namespace
}  // namespace fwcrf::FWCRF_ISA
