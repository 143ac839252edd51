// Position beside colour: the features of the bilateral kernel.
#pragma once

#include <cstdint>

namespace fwcrf {

// out (images * n, axes + channels) from values (images * n, channels), where n is the product of the
// grid's `axes` sizes. `inverse` holds one over each bandwidth, axes first.
template <typename T>
void bilateral_features(const T* values, std::int64_t images, int channels, const std::int64_t* sizes,
                        int axes, const T* inverse, T* out, int threads);

}  // namespace fwcrf
