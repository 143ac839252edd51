#include "maps/features.hpp"

#include "runtime/parallel.hpp"

#include <cmath>
#include <limits>
#include <vector>

namespace fwcrf {

namespace {

// A and C are the numbers of axes and channels if they are known at compile time, else 0.
template <int A, int C, typename T>
bool fill(const Pixels<T>& pixels, const std::int64_t* sizes, int some_axes, const T* inverse, T* out, int threads) {
    const int axes = A ? A : some_axes, channels = C ? C : pixels.channels;
    const std::int64_t length = sizes[axes - 1];
    const int width = axes + channels;
    std::int64_t lines = 1;  // per image
    for (int a = 0; a + 1 < axes; ++a) lines *= sizes[a];
    std::vector<T> along(length);
    for (std::int64_t i = 0; i < length; ++i) along[i] = static_cast<T>(i) * inverse[axes - 1];
    Any bad;
    for_each(threads, pixels.images * lines, [&](std::int64_t line) {
        const std::int64_t image = line / lines;
        const T* __restrict value =
            pixels.values + image * pixels.image + (line - image * lines) * length * pixels.pixel;
        T* __restrict row = out + line * length * width;
        std::int64_t rest = line;
        for (int a = axes - 2; a >= 0; --a) {
            const T place = static_cast<T>(rest % sizes[a]) * inverse[a];
            for (std::int64_t i = 0; i < length; ++i) row[i * width + a] = place;
            rest /= sizes[a];
        }
        bool finite = true;
        for (std::int64_t i = 0; i < length; ++i) {
            row[i * width + axes - 1] = along[i];
            for (int c = 0; c < channels; ++c) {
                const T v = value[i * pixels.pixel + c * pixels.channel];
                row[i * width + axes + c] = v * inverse[axes + c];
                finite &= std::abs(v) <= std::numeric_limits<T>::max();
            }
        }
        bad |= !finite;
    });
    return !bad;
}

}  // namespace

template <typename T>
bool bilateral_features(const Pixels<T>& pixels, const std::int64_t* sizes, int axes, const T* inverse, T* out,
                        int threads) {
    const auto make = axes == 2 && pixels.channels == 3 ? fill<2, 3, T> : fill<0, 0, T>;
    return make(pixels, sizes, axes, inverse, out, threads);
}

template bool bilateral_features(const Pixels<float>&, const std::int64_t*, int, const float*, float*, int);
template bool bilateral_features(const Pixels<double>&, const std::int64_t*, int, const double*, double*, int);

}  // namespace fwcrf
