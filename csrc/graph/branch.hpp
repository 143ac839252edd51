// Branch and bound over a part of a model: exact where the tree of labels stays small.
#pragma once

#include "graph/model.hpp"

#include <vector>

namespace fwcrf {

struct BranchArgs {
    const GraphModel& model;
    const std::vector<std::int32_t>& nodes;  // the part; nodes outside keep their labels
    std::int64_t sweeps;                     // that tighten the bound before the search, at least 1
    std::int64_t visits;                     // of labels, at most
    double margin;                           // labels are searched that lower the energy by more than this
    std::int64_t* labels;                    // (n), changed in place where that lowers the energy
};

struct BranchResult {
    bool complete;  // no labels of the part lower the energy further by more than margin + error
    double gained;  // 0 or less
    double error;   // a limit of the rounding errors of the bounds
};

BranchResult branch(const BranchArgs& args, Deadline& deadline);

struct PatchArgs {
    const GraphModel& model;
    std::int64_t patches;
    std::int64_t nodes;   // of a patch, at most
    std::int64_t visits;  // of labels, for each patch
    std::uint64_t seed;
    std::int64_t* labels;  // (n), changed in place
};

// Branch and bound over random connected patches of 2 to `nodes` nodes. Returns the energy that was gained, 0 or less.
double exact_patches(const PatchArgs& args, Deadline& deadline);

}  // namespace fwcrf
