// Probabilities of the labels at some pixels: the best label of each, and the share of each label.
#include "bind/functions.hpp"
#include "runtime/parallel.hpp"
#include "runtime/scratch.hpp"
#include "simd/math.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T> struct Shares {
    static constexpr std::int64_t W = kLanes<T>;

    const ShareArgs<T>& a;
    const std::int64_t total;  // pixels of the sample
    T* const block;            // (labels) vectors: exponentials of W pixels
    T* const totals;           // (labels) vectors: sums of probabilities
    std::uint8_t* const wins;  // (labels)

    // W pixels of an image from number `first` of the sample on; lanes past its end repeat the last pixel.
    void group(std::int64_t image, std::int64_t first) const {
        const std::int64_t count = total - first < W ? total - first : W;
        const T* row[W];
        for (std::int64_t l = 0; l < W; ++l)
            row[l] = a.unary + (image * a.n + a.pixels.pixel(first + (l < count ? l : count - 1))) * a.labels;
        Vec<T> most = fill(-kInfinity<T>), where{}, sum{};
        for (std::int64_t s = 0; s < a.labels; ++s) {
            const Vec<T> v = -lanes_of<Vec<T>>([&](int l) { return row[l][s]; });
            const auto more = v > most;
            most = select(more, v, most);
            where = select(more, fill(static_cast<T>(s)), where);
            store(block + s * W, v);
        }
        for (std::int64_t s = 0; s < a.labels; ++s) {
            const Vec<T> e = exp<T>(load(block + s * W) - most);
            sum += e;
            store(block + s * W, e);
        }
        const Vec<T> best = T(1) / sum;
        const std::int64_t at = image * total + first;
        for (std::int64_t l = 0; l < count; ++l) {
            const auto label = static_cast<std::int64_t>(lane(where, static_cast<int>(l)));
            if (a.best) a.best[at + l] = lane(best, static_cast<int>(l)), a.where[at + l] = label;
            wins[label] = 1;
        }
        const Vec<T> counted = lanes_of<Vec<T>>([&](int l) { return l < count ? T(1) : T(0); }) * best;
        for (std::int64_t s = 0; s < a.labels; ++s)
            store(totals + s * W, load(totals + s * W) + load(block + s * W) * counted);
    }
};

template <typename T> void label_shares(const ShareArgs<T>& a) {
    constexpr std::int64_t W = kLanes<T>;
    const std::int64_t total = a.pixels.total(), groups = (total + W - 1) / W;
    const std::int64_t values = 2 * a.labels * W, each = values + (a.labels + W - 1) / W * W;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(each * a.threads);
    for (std::int64_t image = 0; image < a.batch; ++image) {
        for_each(a.threads, a.threads, [&](std::int64_t part) {
            T* const own = memory + part * each;
            for (std::int64_t i = 0; i < each; ++i) own[i] = T(0);
            const Shares<T> shares{a, total, own, own + a.labels * W, reinterpret_cast<std::uint8_t*>(own + values)};
            const Range range = share(groups, static_cast<int>(part), a.threads);
            for (std::int64_t g = range.begin; g < range.end; ++g) shares.group(image, g * W);
        });
        for (std::int64_t s = 0; s < a.labels && a.sums; ++s) {
            double sum = 0;
            bool won = false;
            for (int part = 0; part < a.threads; ++part) {
                const T* const own = memory + part * each;
                for (std::int64_t l = 0; l < W; ++l) sum += own[(a.labels + s) * W + l];
                won = won || reinterpret_cast<const std::uint8_t*>(own + values)[s];
            }
            a.sums[image * a.labels + s] = sum;
            a.wins[image * a.labels + s] = won;
        }
    }
    scratch.trim();
}

FWCRF_INSTANTIATE(label_shares)

}  // namespace fwcrf::FWCRF_ISA
