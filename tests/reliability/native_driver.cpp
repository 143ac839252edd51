// Random calls of the native core without Python, for sanitizers: driver CASES [SEED].
//
// Arrays live on the heap and are exactly as long as they have to be, so that a step beyond one is seen. Finite
// input must give finite output. The last line is a JSON record.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "features.hpp"
#include "kernels.hpp"
#include "lattice.hpp"
#include "layout.hpp"
#include "memory.hpp"

namespace {

using namespace fwcrf;

struct Random {
    std::uint64_t state;
    std::uint64_t next() {
        std::uint64_t z = (state += 0x9e3779b97f4a7c15ull);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }
    int integer(int low, int high) { return low + static_cast<int>(next() % static_cast<std::uint64_t>(high - low + 1)); }
    double unit() { return static_cast<double>(next() >> 11) * 0x1p-53; }
    double normal() { return unit() + unit() + unit() + unit() - 2; }
};

// An array without any slack behind it.
template <typename T> struct Array {
    explicit Array(std::int64_t size) : size(size), data(new T[static_cast<std::size_t>(size)]) {}
    T* get() { return data.get(); }
    T& operator[](std::int64_t i) { return data[static_cast<std::size_t>(i)]; }
    bool finite() {
        for (std::int64_t i = 0; i < size; ++i)
            if (!std::isfinite(static_cast<double>((*this)[i]))) return false;
        return true;
    }
    std::int64_t size;
    std::unique_ptr<T[]> data;
};

template <typename T> Array<T> numbers(Random& random, std::int64_t size, double largest) {
    Array<T> values(size);
    const int kind = random.integer(0, 4);
    const double fixed = random.normal() * std::pow(10.0, random.integer(-20, 20));
    for (std::int64_t i = 0; i < size; ++i) {
        double v = random.normal();
        if (kind == 1) v *= 255;
        if (kind == 2) v = fixed;
        if (kind == 3) v = random.integer(-2, 2);
        if (kind == 4) v *= std::pow(10.0, random.integer(-30, 30));
        values[i] = static_cast<T>(std::clamp(v, -largest, largest));
    }
    return values;
}

[[noreturn]] void found(const char* what, std::uint64_t number) {
    std::fprintf(stderr, "case %llu: %s\n", static_cast<unsigned long long>(number), what);
    std::abort();
}

template <typename T> constexpr bool is_float = sizeof(T) == 4;

template <typename T> void simplex(Random& random, std::uint64_t number) {
    const std::int64_t n = random.integer(0, 20), length = random.integer(1, random.integer(0, 9) ? 24 : 300);
    auto v = numbers<T>(random, n * length, 1e15);
    if (random.integer(0, 3) == 0)
        for (std::int64_t i = 0; i < n * length; ++i)
            if (random.integer(0, 4) == 0 && i % length) v[i] = -std::numeric_limits<T>::infinity();
    Array<T> p(n * length), d(n * length);
    const auto scale = static_cast<T>(random.integer(0, 1) ? 1.0 : random.normal() * 10);
    const T used = std::abs(scale);  // with a negative one, -inf would be the largest
    const int threads = random.integer(1, 2);
    const bool soft = random.integer(0, 1);
    const SimplexArgs<T> map{v.get(), nullptr, p.get(), n, length, used, threads};
    auto g = numbers<T>(random, n * length, 1e6);
    const SimplexArgs<T> derivative{g.get(), p.get(), d.get(), n, length, used, threads};
    if constexpr (is_float<T>) {
        (soft ? kernels().softmax_f32 : kernels().project_f32)(map);
        (soft ? kernels().softmax_derivative_f32 : kernels().project_derivative_f32)(derivative);
    } else {
        (soft ? kernels().softmax_f64 : kernels().project_f64)(map);
        (soft ? kernels().softmax_derivative_f64 : kernels().project_derivative_f64)(derivative);
    }
    if (used == 0) return;
    if (!p.finite() || !d.finite()) found("a map onto the simplex is not finite", number);
    for (std::int64_t row = 0; row < n; ++row) {
        double sum = 0;
        for (std::int64_t i = 0; i < length; ++i) sum += p[row * length + i];
        if (std::abs(sum - 1) > 1e-3) found("a row does not sum to 1", number);
    }
}

template <typename T> void lattice(Random& random, std::uint64_t number) {
    const int d = random.integer(1, kMaxDim), corners = d + 1, threads = random.integer(1, 2);
    const std::int64_t batch = random.integer(1, 2), n = random.integer(1, random.integer(0, 5) ? 20 : 150);
    auto features = numbers<T>(random, batch * n * d, 1e6);
    std::vector<double> scale(static_cast<std::size_t>(d)), low(scale), high(scale);
    for (int i = 0; i < d; ++i) scale[static_cast<std::size_t>(i)] = std::sqrt(2.0 / 3) * corners / std::sqrt((i + 1.0) * (i + 2.0));
    double least[kMaxDim], most[kMaxDim];
    const bool finite = is_float<T> ? kernels().bounds_f32(reinterpret_cast<float*>(features.get()), batch * n, d, least, most)
                                    : kernels().bounds_f64(reinterpret_cast<double*>(features.get()), batch * n, d, least, most);
    if (!finite) found("finite features are not seen as such", number);
    Array<std::int64_t> lows(d), highs(d);
    for (int j = 0; j < d; ++j) {
        double l = 0, h = 0;
        for (int i = j; i < d; ++i) {
            l += least[i] * scale[static_cast<std::size_t>(i)];
            h += most[i] * scale[static_cast<std::size_t>(i)];
        }
        if (j) {
            l -= j * most[j - 1] * scale[static_cast<std::size_t>(j - 1)];
            h -= j * least[j - 1] * scale[static_cast<std::size_t>(j - 1)];
        }
        lows[j] = static_cast<std::int64_t>(std::floor(l / corners)) - 2;
        highs[j] = static_cast<std::int64_t>(std::ceil(h / corners)) + 2;
    }
    Array<std::int32_t> index(batch * n * corners);
    Array<T> weight(batch * n * corners);
    Array<std::int64_t> order(batch * n * order_words(corners));
    const Points<T> points{features.get(), batch, n, d, false};
    const Graph graph = build(points, scale.data(), lows.get(), highs.get(), index.get(), weight.get(), order.get(), threads);
    if (!weight.finite()) found("weights are not finite", number);
    for (std::int64_t i = 0; i < index.size; ++i)
        if (index[i] < 0 || index[i] >= graph.vertices) found("a vertex that is none", number);
    for (const std::int32_t v : graph.neighbors)
        if (v < 0 || v > graph.vertices) found("a neighbour that is none", number);
    Array<std::int32_t> neighbors(static_cast<std::int64_t>(graph.neighbors.size()));
    std::copy(graph.neighbors.begin(), graph.neighbors.end(), neighbors.get());

    const std::int64_t channels = random.integer(1, random.integer(0, 5) ? 24 : 130), rows = batch * n;
    auto x = numbers<T>(random, rows * channels, 1e6), shift = numbers<T>(random, rows, 1e3);
    const bool spoilt = random.integer(0, 7) == 0;
    if (spoilt) x[random.integer(0, static_cast<int>(x.size) - 1)] = std::numeric_limits<T>::quiet_NaN();
    Array<T> out(rows * channels), diagonal_out(rows);
    const FilterArgs<T> args{x.get(), out.get(), rows, channels, corners, index.get(), weight.get(), weight.get(),
                             random.integer(0, 1) ? shift.get() : nullptr, graph.vertices, neighbors.get(), T(0.5), T(-0.1),
                             static_cast<BlurOrder>(random.integer(0, 2)), threads};
    bool seen;
    if constexpr (is_float<T>) seen = kernels().filter_f32(args);
    else seen = kernels().filter_f64(args);
    if (seen == spoilt) found("whether x is finite was not seen", number);
    if (!spoilt && !out.finite()) found("a filter is not finite", number);
    diagonal(rows, d, index.get(), weight.get(), order.get(), graph.vertices, neighbors.get(), 0.5, -0.1, diagonal_out.get(), threads);
    if (!diagonal_out.finite()) found("a diagonal is not finite", number);
}

template <typename T> void grid(Random& random, std::uint64_t number) {
    const std::int64_t outer = random.integer(0, 4), length = random.integer(0, 30), inner = random.integer(0, 30);
    const std::int64_t radius = random.integer(0, 40);
    auto x = numbers<T>(random, outer * length * inner, 1e6), taps = numbers<T>(random, radius + 1, 1e3);
    Array<T> out(x.size), turned(x.size);
    const int threads = random.integer(1, 2);
    const AxisArgs<T> args{x.get(), out.get(), outer, length, inner, taps.get(), radius, threads};
    if constexpr (is_float<T>) kernels().axis_f32(args);
    else kernels().axis_f64(args);
    if (!out.finite()) found("a filter along an axis is not finite", number);
    transpose(x.get(), outer, length, inner, turned.get(), threads);
    for (std::int64_t b = 0; b < outer; ++b)
        for (std::int64_t i = 0; i < length; ++i)
            for (std::int64_t j = 0; j < inner; ++j)
                if (turned[(b * inner + j) * length + i] != x[(b * length + i) * inner + j]) found("not transposed", number);
    const int axes = random.integer(1, 3), channels = random.integer(0, 4);
    std::int64_t sizes[3], n = 1;
    for (int a = 0; a < axes; ++a) n *= sizes[a] = random.integer(1, 6);
    const std::int64_t images = random.integer(0, 2);
    auto values = numbers<T>(random, images * n * channels, 1e6), inverse = numbers<T>(random, axes + channels, 1e3);
    Array<T> features(images * n * (axes + channels));
    bilateral_features(values.get(), images, channels, sizes, axes, inverse.get(), features.get(), threads);
    if (!features.finite()) found("features are not finite", number);
}

void blocks(Random& random, std::uint64_t) {
    std::vector<std::pair<char*, std::size_t>> held;
    for (int i = random.integer(1, 12); i > 0; --i) {
        if (!held.empty() && random.integer(0, 1)) {
            const auto place = static_cast<std::size_t>(random.integer(0, static_cast<int>(held.size()) - 1));
            give_block(held[place].first);
            held.erase(held.begin() + static_cast<std::ptrdiff_t>(place));
        } else {
            const auto size = static_cast<std::size_t>(random.integer(1, 3 << 20));
            char* block = static_cast<char*>(take_block(size));
            block[0] = block[size - 1] = 1;
            held.emplace_back(block, size);
        }
    }
    for (const auto& [block, size] : held) give_block(block);
}

}  // namespace

int main(int count, char** arguments) {
    const std::uint64_t cases = count > 1 ? std::strtoull(arguments[1], nullptr, 10) : 10000;
    const std::uint64_t seed = count > 2 ? std::strtoull(arguments[2], nullptr, 10) : 0;
    using Case = void (*)(Random&, std::uint64_t);
    const Case kinds[] = {simplex<float>, simplex<double>, lattice<float>, lattice<double>, grid<float>, grid<double>, blocks};
    std::uint64_t done[std::size(kinds)] = {};
    const auto start = std::chrono::steady_clock::now();
    for (std::uint64_t number = 0; number < cases; ++number) {
        Random random{seed * 0x2545f4914f6cdd1dull + number};
        const std::uint64_t kind = random.next() % std::size(kinds);
        kinds[kind](random, number);
        ++done[kind];
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    std::printf("{\"target\": \"driver\", \"isa\": \"%s\", \"cases\": %llu, \"simplex\": %llu, \"lattice\": %llu, "
                "\"grid\": %llu, \"memory\": %llu, \"seconds\": %.1f}\n",
                kernels().isa, static_cast<unsigned long long>(cases), static_cast<unsigned long long>(done[0] + done[1]),
                static_cast<unsigned long long>(done[2] + done[3]), static_cast<unsigned long long>(done[4] + done[5]),
                static_cast<unsigned long long>(done[6]), seconds);
    return 0;
}
