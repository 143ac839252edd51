#include "lattice/sample.hpp"

#include "bind/dispatch.hpp"

#include <algorithm>
#include <vector>

namespace fwcrf {
namespace {

// The rows of sample points [begin, end) of each image, `width` entries each.
template <typename V>
std::vector<V> picked(const V* all, std::int64_t width, std::int64_t batch, std::int64_t n, const std::int64_t* points,
                      std::int64_t begin, std::int64_t end) {
    std::vector<V> some(batch * (end - begin) * width);
    V* to = some.data();
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = begin; i < end; ++i, to += width)
            std::copy_n(all + (b * n + points[i]) * width, width, to);
    return some;
}

}  // namespace

template <typename T> void sample(const SampleArgs<T>& a) {
    const std::int64_t batch = a.all.batch;
    const auto pick = [&](const auto* all, std::int64_t width, std::int64_t begin, std::int64_t end) {
        return picked(all, width, batch, a.all.n, a.points, begin, end);
    };
    const std::int64_t columns = a.count - a.rows, d = a.all.d;
    std::vector<T> row(batch * a.rows * d), column(batch * columns * d);
    for (std::int64_t b = 0; b < batch; ++b)
        for (std::int64_t i = 0; i < a.count; ++i) {
            T* const to = i < a.rows ? &row[(b * a.rows + i) * d] : &column[(b * columns + i - a.rows) * d];
            const T* const from = a.all.rows(b * a.all.n + a.points[i], 1, to);
            if (from != to) std::copy_n(from, d, to);
        }
    const auto index = pick(a.lattice.index, a.lattice.corners, 0, a.count);
    auto weight = pick(a.lattice.splat, a.lattice.corners, 0, a.count);
    const std::vector<T> factor(batch, T(1));
    std::vector<T> ones(batch * a.count), sums(batch * a.count);
    for (std::int64_t i = 0; i < batch * a.count; ++i) ones[i] = i % a.count >= a.rows;
    FilterArgs<T> filter = a.lattice;
    filter.threads = 1;  // more threads would take longer to wake up
    filter.x = ones.data();
    filter.out = sums.data();
    filter.n = batch * a.count;
    filter.channels = 1;
    filter.index = index.data();
    filter.splat = filter.slice = weight.data();
    native<T>().gaussian_sums({row.data(), column.data(), a.exact, batch, a.rows, columns, a.all.d, a.lattice.threads});
    native<T>().place_weights({weight.data(), factor.data(), weight.data(), batch, a.count, filter.corners,
                               static_cast<T>(a.exponent), filter.threads});
    native<T>().filter(filter);
    for (std::int64_t b = 0; b < batch; ++b) std::copy_n(sums.data() + b * a.count, a.rows, a.own + b * a.rows);
}

template void sample(const SampleArgs<float>&);
template void sample(const SampleArgs<double>&);

}  // namespace fwcrf
