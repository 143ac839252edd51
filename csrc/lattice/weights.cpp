#include "lattice/weights.hpp"

#include "bind/dispatch.hpp"
#include "runtime/parallel.hpp"

#include <cmath>
#include <vector>

namespace fwcrf {

template <typename T> void normalized_weights(const WeightsArgs<T>& a) {
    const std::int64_t n = a.lattice.n, corners = a.lattice.corners;
    std::vector<T> sums(n, T(1));
    if (a.normalization != Normalization::none) {
        const std::vector<T> ones(n, T(1));
        FilterArgs<T> filter = a.lattice;
        filter.x = ones.data();
        filter.out = sums.data();
        filter.channels = 1;
        filter.slice = filter.splat;
        filter.shift = nullptr;
        native<T>().filter(filter);
    }
    const bool before = a.normalization == Normalization::before, after = a.normalization == Normalization::after;
    for_each(a.lattice.threads, n, [&](std::int64_t i) {
        T left = 1, right = 1;
        if (a.normalization != Normalization::none) {
            const T sum = a.gain * sums[i] + a.least;
            const T factor = before || after ? T(1) / sum : T(1) / std::sqrt(sum);
            if (!before) left = factor;
            if (!after) right = factor;
        }
        left *= a.weight;
        for (std::int64_t m = i * corners; m < (i + 1) * corners; ++m) {
            const T weight = a.lattice.splat[m];
            a.splat[m] = weight * right;
            a.slice[m] = weight * left;
        }
    });
}

template void normalized_weights(const WeightsArgs<float>&);

}  // namespace fwcrf
