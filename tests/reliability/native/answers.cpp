// Answers of the native core to fixed questions, with every number of labels: answers [THREADS] [bits].
//
// A line has the dtype, the number of labels, and for every question that such labels allow the weighted sum of all
// values of the answer, divided by the sum of their magnitudes: so one tolerance serves all. With `bits` it has a hash
// of each answer instead.
#include <cstring>
#include <initializer_list>

#include "choices.hpp"
#include "lattices.hpp"

namespace {

using namespace fwcrf;

bool bits = false;
int threads = 1, digits;

// Multiples of 2^-16 in [-1, 1): the same on every machine.
template <typename T> Array<T> fixed(std::uint64_t seed, std::int64_t size) {
    Choices choices{seed};
    Array<T> values(size);
    for (std::int64_t i = 0; i < size; ++i) values[i] = static_cast<T>(choices.any(-65536, 65535) * 0x1p-16);
    return values;
}

template <typename V> void say(const V* values, std::int64_t size) {
    if (bits) {
        std::uint64_t hash = 14695981039346656037u;
        for (std::size_t i = 0; i < size * sizeof(V); ++i)
            hash = (hash ^ reinterpret_cast<const unsigned char*>(values)[i]) * 1099511628211u;
        std::printf(" %016llx", static_cast<unsigned long long>(hash));
        return;
    }
    const auto weights = fixed<double>(7, size);
    double sum = 0, all = 0;
    for (std::int64_t i = 0; i < size; ++i) {
        const double v = static_cast<double>(values[i]);
        sum += weights.data[static_cast<std::size_t>(i)] * v;
        all += std::abs(v);
    }
    std::printf(" %.*f", digits, all > 0 ? sum / all : 0.0);
}
template <typename T> void say(Array<T>& values) { say(values.get(), values.size); }

constexpr std::int64_t kHeight = 12, kWidth = 13, n = kHeight * kWidth;

// P: a lattice over position and colour, and a grid.
template <typename T> struct Model {
    Array<T> features = points();
    Built<T> lattice = lattice_of(Points<T>{features.get(), 1, n, 5, sizeof(T) == 4}, threads);
    Array<std::int32_t> first[2] = {rows(kHeight), rows(kWidth)};
    Array<T> weight[2] = {fixed<T>(11, 3 * kHeight), fixed<T>(12, 3 * kWidth)}, taps = fixed<T>(13, 4);
    Array<T> left = fixed<T>(14, kWidth), right = fixed<T>(15, kWidth), shift = fixed<T>(16, n), matrix{0};
    Term<T> terms[2]{};

    static Array<T> points() {
        auto values = fixed<T>(1, 5 * n);
        for (std::int64_t i = 0; i < n; ++i) {
            values[5 * i] = static_cast<T>(i / kWidth) * T(0.125);
            values[5 * i + 1] = static_cast<T>(i % kWidth) * T(0.125);
        }
        return values;
    }
    // Row j of a band has the entries j - 1, j and j + 1, as far as they exist.
    static Array<std::int32_t> rows(std::int64_t size) {
        Array<std::int32_t> values(size);
        for (std::int64_t j = 0; j < size; ++j)
            values[j] = static_cast<std::int32_t>(std::clamp<std::int64_t>(j - 1, 0, size - 3));
        return values;
    }

    explicit Model(std::int64_t labels) : matrix(fixed<T>(17, labels * labels)) {
        FilterArgs<T>& k = terms[0].lattice;
        k = filter(nullptr, 0, nullptr);
        Grid<T>& grid = terms[1].grid;
        grid.axes = 2;
        const std::int64_t sizes[] = {kHeight, kWidth};
        for (int a = 0; a < 2; ++a) {
            const Band<T> band{sizes[a], sizes[a], 3, first[a].get(), weight[a].get()};
            grid.down[a] = grid.up[a] = band;
        }
        grid.taps = taps.get();
        grid.left = left.get();
        grid.right = right.get();
        grid.radius = 3;
        terms[0].potts = T(0.75);
        terms[1].potts = T(0.25);
        terms[0].shift = shift.get();
    }
    FilterArgs<T> filter(const T* x, std::int64_t channels, T* out) {
        return {x,
                out,
                n,
                channels,
                lattice.corners,
                lattice.index.get(),
                lattice.weight.get(),
                lattice.weight.get(),
                nullptr,
                lattice.vertices,
                lattice.neighbors.get(),
                T(0.5),
                T(-0.1),
                BlurOrder::symmetric,
                threads};
    }
    void with_matrices() { terms[0].matrix = terms[1].matrix = matrix.get(); }
};

// Three steps of inference.
template <typename T> void steps(Model<T>& model, Map map, T step, std::int64_t labels, Dual dual = Dual::none) {
    auto unary = fixed<T>(21, n * labels);
    for (std::int64_t i = 0; i < unary.size; ++i) unary[i] *= T(4);
    Array<T> x(n * labels), w(n * labels, T(0));
    const Update<T> update{map, T(-1), T(0), step, T(1), dual == Dual::none ? T(0) : T(0.5), dual};
    const Update<T> updates[] = {update, update, update};
    T* const out[] = {x.get(), x.get(), x.get()};
    const Start<T> start{Map::softmax, T(-1), nullptr, x.get()};
    StepArgs<T> args{unary.get(), unary.get(), n,       labels,  2,       model.terms, 3,
                     updates,     out,         nullptr, nullptr, nullptr, nullptr,     threads};
    if (dual != Dual::none) args.dual = w.get();
    args.start = &start;
    native<T>().run_steps(args);
    say(x);
    if (dual != Dual::none) say(w);
}

// Two steps back through a map, with the derivatives in the matrices.
template <typename T> void back(Model<T>& model, Map map, std::int64_t labels) {
    auto x = fixed<T>(22, n * labels), scores = fixed<T>(23, n * labels), w = fixed<T>(24, n * labels);
    Array<T> p(n * labels);
    const SimplexArgs<T> onto{scores.get(), nullptr, p.get(), n, labels, T(1), threads};
    (map == Map::softmax_derivative ? native<T>().softmax : native<T>().project)(onto);
    Array<T> out(n * labels), sum(n * labels, T(0));
    Array<double> slopes(2 * labels * labels, 0.0), rates(9, 0.0);
    const Update<T> update{map, T(1), T(0), T(0.5), T(0), T(0.25), Dual::gradient};
    const Update<T> updates[] = {update, update};
    T* const outs[] = {out.get(), out.get()};
    const T* const others[] = {p.get(), p.get()};
    StepArgs<T> args{x.get(), nullptr, n,      labels,    2,       model.terms,  2,
                     updates, outs,    others, sum.get(), w.get(), slopes.get(), threads};
    args.rates = rates.get();
    native<T>().run_steps(args);
    say(out);
    say(sum);
    say(w);
    say(slopes);
    say(rates.get() + 3, 6);
}

template <typename T> void maps(std::int64_t labels) {
    auto x = fixed<T>(31, n * labels), g = fixed<T>(32, n * labels);
    Array<T> p(n * labels), d(n * labels), turned(n * labels);
    const SimplexArgs<T> onto{x.get(), nullptr, p.get(), n, labels, T(3), threads};
    const SimplexArgs<T> derivative{g.get(), p.get(), d.get(), n, labels, T(1), threads};
    native<T>().project(onto);
    native<T>().project_derivative(derivative);
    say(p);
    say(d);
    native<T>().softmax(onto);
    native<T>().softmax_derivative(derivative);
    say(p);
    say(d);
    native<T>().energies({p.get(), turned.get(), 1, labels, n, true, true, T(1e-6), threads});
    say(turned);
    native<T>().transpose_log({p.get(), nullptr, turned.get(), 1, n, labels, T(0.75), T(0.25), threads});
    say(turned);
}

template <typename T> void kernels(Model<T>& model, std::int64_t labels) {
    auto x = fixed<T>(41, n * labels);
    Array<T> out(n * labels);
    FilterArgs<T> args = model.filter(x.get(), labels, out.get());
    native<T>().filter(args);
    say(out);
    const LatticeLines lines = lattice_lines(args.corners, args.vertices, args.neighbors, threads);
    args.lines = lines.axes.data();
    args.order = BlurOrder::forward;
    args.identity = 0;
    native<T>().filter(args);
    say(out);
    native<T>().filter_axis(
        {x.get(), out.get(), kHeight, kWidth, labels, model.taps.get(), model.taps.size - 1, threads});
    say(out);
    // Each node is tied to the next and to the node below.
    const std::int64_t edges = n - 1 + n - kWidth;
    Array<std::int64_t> first(n + 1);
    std::vector<std::int32_t> neighbor, slot;
    for (std::int64_t i = 0; i <= n; ++i) {
        first[i] = static_cast<std::int64_t>(slot.size());
        const auto end = [&](std::int64_t other, std::int64_t at) {
            if (i == n || other < 0 || other >= n) return;
            neighbor.push_back(static_cast<std::int32_t>(other));
            slot.push_back(static_cast<std::int32_t>(at));
        };
        end(i - kWidth, 2 * (n - 1 + i - kWidth) + 1);
        end(i - 1, 2 * (i - 1) + 1);
        end(i + 1, 2 * i);
        end(i + kWidth, 2 * (n - 1 + i));
    }
    auto weight = fixed<T>(42, edges);
    native<T>().edge_sum({{n, edges, first.get(), neighbor.data(), slot.data()},
                          x.get(),
                          nullptr,
                          out.get(),
                          labels,
                          weight.get(),
                          false,
                          T(1),
                          Labels::potts,
                          nullptr,
                          threads});
    say(out);
}

// A lattice with normalized weights, and sums of the exact kernel.
template <typename T> void weights(Model<T>& model) {
    Built<T>& l = model.lattice;
    Array<T> factor(1, T(1)), out(l.weight.size), shift(n), minus(n), sums(n);
    native<T>().normalize({1, n, l.vertices, l.corners, l.index.get(), l.weight.get(), l.order.get(), l.neighbors.get(),
                           factor.get(), -0.3, 0.5, -0.1, out.get(), shift.get(), minus.get(), threads});
    say(l.weight);
    say(out);
    say(shift);
    say(minus);
    native<T>().gaussian_sums({model.features.get(), model.features.get(), sums.get(), 1, n, n, 5, threads});
    say(sums);
}

template <typename T> void answer(std::int64_t labels) {
    std::printf("f%d %lld", static_cast<int>(8 * sizeof(T)), static_cast<long long>(labels));
    Model<T> model(labels);
    if (labels == 1) weights(model);
    maps<T>(labels);
    kernels(model, labels);
    for (const Map map : {Map::softmax, Map::project, Map::vertex})
        for (const T step : {T(1), T(0.5)}) steps(model, map, step, labels);
    if (labels <= kMostLabels<T>) {
        steps(model, Map::softmax, T(1), labels, Dual::logits);
        back(model, Map::project_derivative, labels);
        model.with_matrices();
        steps(model, Map::softmax, T(0.5), labels);
        back(model, Map::softmax_derivative, labels);
    }
    std::printf("\n");
}

template <typename T> void all() {
    digits = sizeof(T) == 4 ? 8 : 15;
    for (std::int64_t labels = 1; labels <= kMostLabels<T>; ++labels) answer<T>(labels);
    for (const std::int64_t labels : {65, 100, 131, 150})
        if (labels > kMostLabels<T>) answer<T>(labels);
}

}  // namespace

int main(int count, char** arguments) {
    if (count > 1) threads = std::atoi(arguments[1]);
    bits = count > 2 && !std::strcmp(arguments[2], "bits");
    all<float>();
    all<double>();
    return 0;
}
