#include "maps/features.hpp"

#include "runtime/parallel.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace fwcrf {

namespace {

// Features of the pixels [begin, end) of a line along the last axis. A and C are the numbers of axes and channels if
// they are known at compile time, else 0.
template <int A, int C, typename T, typename V>
bool line(const GridFeatures<T>& f, const V* values, std::int64_t line, std::int64_t begin, std::int64_t end, T* out) {
    const int axes = A ? A : f.axes, channels = C ? C : f.pixels.channels, width = axes + channels;
    const std::int64_t length = f.sizes[axes - 1];
    std::int64_t lines = 1;  // per image
    for (int a = 0; a + 1 < axes; ++a) lines *= f.sizes[a];
    const std::int64_t image = line / lines;
    std::int64_t rest = line - image * lines;
    const V* const value = values + image * f.pixels.image + rest * length * f.pixels.pixel;
    for (int a = axes - 2; a >= 0; --a) {
        const T place = static_cast<T>(rest % f.sizes[a]) * f.inverse[a] + (f.corner ? f.corner[a] : T(0));
        for (std::int64_t i = begin; i < end; ++i) out[(i - begin) * width + a] = place;
        rest /= f.sizes[a];
    }
    const T corner = f.corner ? f.corner[axes - 1] : T(0);
    bool finite = true;
    for (std::int64_t i = begin; i < end; ++i) {
        T* const row = out + (i - begin) * width;
        row[axes - 1] = static_cast<T>(i) * f.inverse[axes - 1] + corner;
        for (int c = 0; c < channels; ++c) {
            const auto v = static_cast<T>(value[i * f.pixels.pixel + c * f.pixels.channel]);
            row[axes + c] = v * f.inverse[axes + c];
            finite &= std::abs(v) <= std::numeric_limits<T>::max();
        }
    }
    return finite;
}

template <typename T, typename V>
bool rows_of(const GridFeatures<T>& f, const V* values, std::int64_t first, std::int64_t count, T* out) {
    const auto make = f.axes == 2 && f.pixels.channels == 3 ? line<2, 3, T, V> : line<0, 0, T, V>;
    const std::int64_t length = f.sizes[f.axes - 1], past = first + count;
    bool finite = true;
    for (std::int64_t at = first; at < past;) {
        const std::int64_t number = at / length, begin = at - number * length;
        const std::int64_t end = std::min(length, begin + past - at);
        finite &= make(f, values, number, begin, end, out + (at - first) * f.width());
        at += end - begin;
    }
    return finite;
}

// The least and the largest value of each channel.
template <typename T> struct Extremes {
    std::vector<T> least, most;
    bool finite = true;
};

template <typename T, typename V> Extremes<T> extremes(const GridFeatures<T>& f, const V* values, int threads) {
    const Pixels<T>& p = f.pixels;
    const int channels = p.channels;
    Extremes<T> all{std::vector<T>(channels, std::numeric_limits<T>::infinity()),
                    std::vector<T>(channels, -std::numeric_limits<T>::infinity())};
    const std::int64_t n = f.count();
    in_parallel(threads, [&](Team team) {
        const Range mine = share(n, team.thread, team.threads);
        Extremes<T> own = all;
        for (std::int64_t b = 0; b < p.images; ++b)
            for (int c = 0; c < channels; ++c) {
                const V* const from = values + b * p.image + c * p.channel;
                V least = mine.begin < mine.end ? from[mine.begin * p.pixel] : V(0), most = least;
                bool finite = true;
                const auto see = [&](V v) {
                    least = v < least ? v : least;
                    most = v > most ? v : most;
                    if constexpr (sizeof(V) > 1) finite &= std::abs(v) <= std::numeric_limits<T>::max();
                };
                // A loop of its own for planes, in vectors.
                if (p.pixel == 1)
                    for (std::int64_t i = mine.begin; i < mine.end; ++i) see(from[i]);
                else
                    for (std::int64_t i = mine.begin; i < mine.end; ++i) see(from[i * p.pixel]);
                if (mine.begin == mine.end) continue;
                own.least[c] = std::min(own.least[c], static_cast<T>(least));
                own.most[c] = std::max(own.most[c], static_cast<T>(most));
                own.finite &= finite;
            }
        const Alone alone;
        for (int c = 0; c < channels; ++c) {
            all.least[c] = std::min(all.least[c], own.least[c]);
            all.most[c] = std::max(all.most[c], own.most[c]);
        }
        all.finite &= own.finite;
    });
    return all;
}

}  // namespace

template <typename T> std::int64_t GridFeatures<T>::count() const {
    std::int64_t n = 1;
    for (int a = 0; a < axes; ++a) n *= sizes[a];
    return n;
}

template <typename T> bool GridFeatures<T>::rows(std::int64_t first, std::int64_t count, T* out) const {
    return pixels.bytes ? rows_of(*this, pixels.bytes, first, count, out)
                        : rows_of(*this, pixels.values, first, count, out);
}

template <typename T> bool GridFeatures<T>::bounds(double* low, double* high, int threads) const {
    const Extremes<T> found =
        pixels.bytes ? extremes(*this, pixels.bytes, threads) : extremes(*this, pixels.values, threads);
    bool finite = found.finite;
    for (int k = 0; k < width(); ++k) {
        T least = 0, most = 0;
        if (k < axes) {
            const T first = corner ? corner[k] : T(0);
            least = T(0) * inverse[k] + first, most = static_cast<T>(sizes[k] - 1) * inverse[k] + first;
        } else {
            least = found.least[k - axes] * inverse[k], most = found.most[k - axes] * inverse[k];
        }
        finite = finite && std::abs(least) <= std::numeric_limits<T>::max() &&
                 std::abs(most) <= std::numeric_limits<T>::max();
        low[k] = least;
        high[k] = most;
    }
    return finite;
}

template <typename T> bool bilateral_features(const GridFeatures<T>& features, T* out, int threads) {
    const std::int64_t length = features.sizes[features.axes - 1], lines = features.count() / length;
    Any bad;
    for_each(threads, features.pixels.images * lines, [&](std::int64_t line) {
        bad |= !features.rows(line * length, length, out + line * length * features.width());
    });
    return !bad;
}

template struct GridFeatures<float>;
template struct GridFeatures<double>;
template bool bilateral_features(const GridFeatures<float>&, float*, int);
template bool bilateral_features(const GridFeatures<double>&, double*, int);

}  // namespace fwcrf
