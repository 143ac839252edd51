// Row sums of a lattice and of its exact Gaussian, on a sample of the points.
#pragma once

#include "lattice/arguments.hpp"
#include "lattice/build.hpp"

namespace fwcrf {

// The first points of the sample are rows, the rest are columns: each row's sum over the columns, by the exact kernel
// and by the lattice with weights as in PlaceArgs.
template <typename T> struct SampleArgs {
    Points<T> all;
    const std::int64_t* points;  // (count), the same for all images
    std::int64_t count, rows;
    FilterArgs<T> lattice;  // of batch * n points, one channel; x, out and slice are not used
    double exponent;
    T* exact;  // (batch, rows)
    T* own;    // (batch, rows)
};

template <typename T> void sample(const SampleArgs<T>& args);

}  // namespace fwcrf
