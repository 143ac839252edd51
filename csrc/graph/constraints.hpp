// Forbidden pairs of labels: labels that no labelling without such a pair can have, and labels without such a pair.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

// The pairs of labels that each edge forbids, rows by the label of its first node.
struct ForbiddenPairs {
    const Adjacency& graph;
    std::int64_t labels;
    const std::uint8_t* pairs;  // (edges, labels, labels), or (labels, labels) if uniform; 1 if forbidden
    bool uniform;

    // `slot` is an end of an edge, with label s there and t at the other end.
    bool at(std::int32_t slot, std::int64_t s, std::int64_t t) const {
        const std::uint8_t* table = pairs + (uniform ? 0 : (slot >> 1) * labels * labels);
        return table[slot & 1 ? t * labels + s : s * labels + t] != 0;
    }
};

// Takes labels away until every label of every node has an allowed partner at each neighbour (arc consistency).
// allowed: (n, labels), 1 for labels that are left. False if a node has no label left: every labelling is forbidden.
bool propagate(const ForbiddenPairs& forbidden, std::uint8_t* allowed);

struct RepairArgs {
    const GraphModel& model;
    const ForbiddenPairs& forbidden;
    std::int64_t moves;  // at most
    std::uint64_t seed;
    std::int64_t* labels;  // (n), of which every node's own is allowed; changed in place
};

// Changes labels at edges with forbidden pairs, one node at a time, where each edge weighs more the longer it had such
// a pair. Returns the number of edges with forbidden pairs, the least number seen: labels are those with this number.
std::int64_t repair(const RepairArgs& args, Deadline& deadline);

}  // namespace fwcrf
