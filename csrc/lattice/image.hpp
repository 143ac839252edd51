// The lattice of images, from their pixels to normalised weights: no array but the result is written.
#pragma once

#include "lattice/build.hpp"

namespace fwcrf {

// A kernel over the pixels of images: weights as in PlaceArgs, times the root of the factor that fits its row sums on a
// sample of pixels to the Gaussian's sums, with ones on the diagonal, normalised as in NormalizeArgs.
template <typename T> struct ImageLatticeArgs {
    GridFeatures<T> features;    // of up to kTabled - 1 features per pixel
    const double* scale;         // (d), as of `build`
    const std::int64_t* points;  // (count) pixels of the sample, the same for all images; the first are rows
    std::int64_t count, rows;    // no rows: the factor is `constant`
    double exponent, tap, identity;
    double constant, least, most;  // see `factor`
    std::int32_t* index;           // (images, n, d + 1)
    T* weight;                     // (images, n, d + 1)
    T* shift;                      // (images, n): completes the kernel
    T* minus;                      // (images, n): removes the self-edges
    int threads;
};

// The factor by which `own` sums fit `exact` sums best, within `most` of `constant`; the constant if sums are at most
// `least`: then no pair of the sample is near.
template <typename T>
T fitted_factor(const T* exact, const T* own, std::int64_t rows, double constant, double least, double most);

// Fills the arrays. False, and no graph, if a feature is not finite.
template <typename T> bool image_lattice(const ImageLatticeArgs<T>& args, Graph& graph);

}  // namespace fwcrf
