// Features of the bilateral kernel: position and colour.
#pragma once

#include <cstdint>

namespace fwcrf {

// Colours of the pixels of several images, with any strides.
template <typename T> struct Pixels {
    const T* values;
    std::int64_t images, image, pixel, channel;  // number of images; strides of images, pixels and channels
    int channels;
    const std::uint8_t* bytes = nullptr;  // the values of images of bytes, in place of `values`
};

// Features of the pixels of images, made where they are read: `axes` coordinates, then colours, each times its
// 1 / bandwidth.
template <typename T> struct GridFeatures {
    Pixels<T> pixels;
    const std::int64_t* sizes;  // (axes) of the grid
    int axes;
    const T* inverse;           // (axes + channels) 1 / bandwidth
    const T* corner = nullptr;  // (axes) added to the coordinates, or null

    int width() const { return axes + pixels.channels; }
    std::int64_t count() const;  // pixels of one image

    // Writes the features of `count` pixels from number `first` on, counted over all images. False if a value is not
    // finite.
    bool rows(std::int64_t first, std::int64_t count, T* out) const;
    // The least and the largest of each feature, `width()` of each. False if a value or a feature is not finite.
    bool bounds(double* low, double* high, int threads) const;
};

// All features, (images * n, axes + channels). False if a value is not finite.
template <typename T> bool bilateral_features(const GridFeatures<T>& features, T* out, int threads);

}  // namespace fwcrf
