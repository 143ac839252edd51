// A lattice beside the Gaussian that it stands for, on a sample of the points.
#pragma once

#include "kernels.hpp"

namespace fwcrf {

// Of some points, the first ones as rows and the others as columns: the sum of each row over the columns, by the kernel and by
// the lattice, whose weights are placed as in PlaceArgs.
template <typename T> struct SampleArgs {
    const T* features;               // (batch, n, d)
    std::int64_t batch, n;
    int d;
    const std::int64_t* points;      // (count), the same for all images
    std::int64_t count, rows;
    FilterArgs<T> lattice;           // of batch * n points, of single values; its x, out and slice are not looked at
    double exponent;
    T* exact;                        // (batch, rows)
    T* own;                          // (batch, rows)
};

template <typename T> void sample(const SampleArgs<T>& args);

}  // namespace fwcrf
