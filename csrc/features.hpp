// Position beside colour: the features of the bilateral kernel.
#pragma once

#include <cstdint>

namespace fwcrf {

// Values of pixels, so far apart along each axis.
template <typename T> struct Pixels {
    const T* values;
    std::int64_t images, image, pixel, channel;  // how many, and how far apart
    int channels;
};

// out (images * n, axes + channels), where n is the product of the grid's `axes` sizes. `inverse` holds one over each
// bandwidth, axes first. False if a value is not finite.
template <typename T>
bool bilateral_features(const Pixels<T>& pixels, const std::int64_t* sizes, int axes, const T* inverse, T* out, int threads);

}  // namespace fwcrf
