// Entropic Frank-Wolfe on one node after the other (Gauss-Seidel): mean field, and its annealed forms.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

// Sweep k visits all nodes in order:
//     p = softmax(-(sum of T_ij x_j + unary_i) / weight_k),  x_i <- x_i + step_k (p - x_i).
struct SweepArgs {
    const GraphModel& model;
    std::int64_t sweeps;
    const double* weights;  // (sweeps), above 0
    const double* steps;    // (sweeps)
    double* x;              // (n, labels), changed in place
};

// False if the deadline is over before the last sweep.
bool sweep(const SweepArgs& args, Deadline& deadline);

}  // namespace fwcrf
