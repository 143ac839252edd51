// Where inference begins: a network's logits, label after label, as energies and probabilities, pixel after pixel.
#include "kernels.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"

namespace fwcrf::FWCRF_ISA {

// Some pixels at a time, in vectors that do not wait for one another.
template <typename T> struct Pixels {
    static constexpr int W = kLanes<T>, kVectors = 8;
    static constexpr std::int64_t kEach = kVectors * W;

    const StartArgs<T>& a;
    T* const room;     // (labels, kEach), as what follows
    T* const chances;  // not yet divided by their sums

    // Sums that are not a number where a value is not finite.
    Vec<T> start(const T* logits, std::int64_t count, T* unary, T* to) const {
        std::int64_t step = a.n;
        if (count < kEach) {
            for (std::int64_t s = 0; s < a.labels; ++s) {
                std::memset(room + s * kEach, 0, kEach * sizeof(T));
                std::memcpy(room + s * kEach, logits + s * a.n, count * sizeof(T));
            }
            logits = room;
            step = kEach;
        }
        Vec<T> nothing[kVectors] = {}, top[kVectors], sum[kVectors] = {};
        for (Vec<T>& v : top) v = fill(-static_cast<T>(__builtin_inf()));
        for (std::int64_t s = 0; s < a.labels; ++s)
            for (int k = 0; k < kVectors; ++k) {
                const T* const at = logits + s * step + k * W;
                // The processor foresees no more than a few lines, and there are as many as labels.
                __builtin_prefetch(at + kEach);
                const Vec<T> v = load(at);
                top[k] = larger<T>(v, top[k]);
                nothing[k] += v * T(0);
            }
        for (std::int64_t s = 0; s < a.labels; ++s)
            for (int k = 0; k < kVectors; ++k) {
                const Vec<T> e = exp<T>(load(logits + s * step + k * W) - top[k]);
                store(chances + s * kEach + k * W, e);
                sum[k] += e;
            }
        for (int k = 0; k < kVectors && k * W < count; ++k) {
            const Vec<T> part = T(1) / sum[k];
            const std::int64_t i = k * W, rows = count - i;
            turn(logits + i, step, rows, unary + i * a.labels, [](Vec<T> v) { return -v; });
            turn(chances + i, kEach, rows, to + i * a.labels, [=](Vec<T> v) { return v * part; });
        }
        for (int k = 1; k < kVectors; ++k) nothing[0] += nothing[k];
        return nothing[0];
    }

    // Rows of at most W pixels, of which so many follow. Short ones are written past their end where the next ones are
    // written afterwards.
    template <typename F> void turn(const T* from, std::int64_t step, std::int64_t rows, T* to, F&& act) const {
        const std::int64_t labels = a.labels;
        const bool whole = labels < W ? rows >= 2 * W : rows >= W;
        for (std::int64_t s = 0; s < labels; s += W) {
            const std::int64_t first = s + W <= labels || labels < W ? s : labels - W;
            Vec<T> square[W];
            for (int k = 0; k < W; ++k)
                square[k] = act(load(from + (first + k < labels ? first + k : labels - 1) * step));
            transpose<T>(square);
            if (whole) {
                for (int r = 0; r < W; ++r) store(to + r * labels + first, square[r]);
                continue;
            }
            alignas(64) T copy[W * W];
            for (int r = 0; r < W; ++r) store(copy + r * W, square[r]);
            for (std::int64_t r = 0; r < W && r < rows; ++r)
                std::memcpy(to + r * labels + first, copy + r * W, (labels < W ? labels : W) * sizeof(T));
        }
    }
};

// False if a value is not finite.
template <typename T> static bool start(const StartArgs<T>& a) {
    using Block = Pixels<T>;
    constexpr std::int64_t kEach = Block::kEach;
    const std::int64_t groups = (a.n + kEach - 1) / kEach, each = a.labels * kEach;
    thread_local Scratch scratch;
    T* const memory = scratch.get<T>(2 * each * a.threads);
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel for schedule(static) num_threads(a.threads) reduction(|| : bad)
#endif
    for (int part = 0; part < a.threads; ++part) {
        const Range range = share(a.batch * groups, part, a.threads);
        const Block block{a, memory + 2 * part * each, memory + (2 * part + 1) * each};
        Vec<T> nothing{};
        for (std::int64_t g = range.begin; g < range.end; ++g) {
            const std::int64_t image = g / groups * a.n * a.labels, i = g % groups * kEach, row = image + i * a.labels;
            const std::int64_t count = a.n - i < kEach ? a.n - i : kEach;
            nothing += block.start(a.logits + image + i, count, a.unary + row, a.start + row);
        }
        for (int l = 0; l < Block::W; ++l) bad = bad || nothing[l] != T(0);
    }
    scratch.trim();
    return !bad;
}

bool start_f32(const StartArgs<float>& a) { return start(a); }
bool start_f64(const StartArgs<double>& a) { return start(a); }

}  // namespace fwcrf::FWCRF_ISA
