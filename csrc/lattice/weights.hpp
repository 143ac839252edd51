// Weights of a lattice normalised by the row sums of its kernel, without a fit to the Gaussian: pydensecrf's kernels.
#pragma once

#include "lattice/arguments.hpp"

namespace fwcrf {

enum class Normalization : int { none, before, after, symmetric };

// For K = S B S' with the weights S and the blur B, and D = gain K 1 + least: splat and slice of weight gain K, of
// weight gain K D^-1, weight gain D^-1 K, or weight gain D^-1/2 K D^-1/2.
template <typename T> struct WeightsArgs {
    FilterArgs<T> lattice;  // `splat` holds S; x, out, slice and shift are not used
    Normalization normalization;
    T gain, least, weight;  // `weight` includes the gain
    T* splat;               // (n, corners)
    T* slice;               // (n, corners)
};

template <typename T> void normalized_weights(const WeightsArgs<T>& args);

}  // namespace fwcrf
