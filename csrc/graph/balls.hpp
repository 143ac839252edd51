// Exact minimisation over random regions of a graph, one after the other.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

struct BallArgs {
    const GraphModel& model;
    std::int64_t balls;
    std::int64_t nodes;  // of a region, at most
    double entries;      // of a table, at most
    std::uint64_t seed;
    std::int64_t* labels;  // (n), changed in place
};

// Returns the energy that was gained, 0 or less.
double exact_balls(const BallArgs& args, Deadline& deadline);

}  // namespace fwcrf
