// Features of the bilateral kernel: position and colour.
#pragma once

#include <cstdint>

namespace fwcrf {

// Colours of the pixels of several images, with any strides.
template <typename T> struct Pixels {
    const T* values;
    std::int64_t images, image, pixel, channel;  // number of images; strides of images, pixels and channels
    int channels;
};

// out (images * n, axes + channels), where n is the product of the grid's `axes` sizes. `inverse` holds 1 / bandwidth,
// of the axes first. False if a value is not finite.
template <typename T>
bool bilateral_features(const Pixels<T>& pixels, const std::int64_t* sizes, int axes, const T* inverse, T* out,
                        int threads);

}  // namespace fwcrf
