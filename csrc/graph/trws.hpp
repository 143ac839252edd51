// Sequential tree-reweighted message passing (TRW-S): a lower bound on the energy that never falls, and labels.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

struct TrwsArgs {
    const GraphModel& model;
    // (edges, labels): after a forward pass the messages to the edges' nodes of larger number, after a backward pass
    // those to nodes of smaller number. Any finite numbers are a valid start; the run ends after a backward pass.
    double* messages;
    std::int64_t iterations;
    double seconds;
    double tolerance;      // the run ends if the gap, or the rise of the bound over ten iterations, is not above it
    std::int64_t* labels;  // (n): the best labels, of the start and of all passes
    double* bounds;        // (iterations): the bound after each
    Stop* stop = nullptr;
    double* forward = nullptr;  // (edges, labels), or null: the messages after the last forward pass
    int threads = 1;  // at most; fewer if a level of the graph has fewer than `share` entries of messages each
    std::int64_t share = 2048;  // from which on threads gain more than they wait for each other
};

struct TrwsResult {
    std::int64_t iterations;
    double energy;    // of the labels, as summed here
    double bound;     // after the last iteration, rounding errors subtracted
    bool stationary;  // the bound has stopped to rise, or the gap is closed
};

TrwsResult trws(const TrwsArgs& args);

}  // namespace fwcrf
