// The largest flow through a graph with a source and a sink, and the smallest cut.
#pragma once

#include "graph/model.hpp"

#include <vector>

namespace fwcrf {

// Two search trees grow from the source and from the sink. Where they meet, the path is filled; nodes that lose their
// parent look for another parent in the same tree, or become free. (Boykov and Kolmogorov 2004, with their time
// stamps.) Arcs are the entries of an Adjacency: two per edge, one for each direction.
class MaxFlow {
  public:
    explicit MaxFlow(const Adjacency& graph);

    // All capacities become 0.
    void clear();
    // Capacity of an arc, named by its place in the adjacency lists; at least 0.
    void add(std::int64_t arc, double capacity) { arcs_[arc].rest += capacity; }
    std::int64_t sister(std::int64_t arc) const { return arcs_[arc].sister; }
    // A cost of the source's side and of the sink's side, of any sign. The lesser cost is added to the flow.
    void terminal(std::int64_t node, double of_source_side, double of_sink_side) {
        nodes_[node].rest += of_sink_side - of_source_side;
        flow_ += of_source_side;
    }
    // The value of the smallest cut, with the costs of `terminal` that no cut avoids. NaN if the deadline is over.
    double run(Deadline& deadline);
    bool on_sink_side(std::int64_t node) const { return nodes_[node].parent == kNone || nodes_[node].of_sink; }

  private:
    static constexpr std::int32_t kNone = -1, kTerminal = -2, kOrphan = -3;
    struct Node {
        double rest = 0;              // capacity from the source if positive, to the sink if negative
        std::int32_t parent = kNone;  // the arc to the parent
        std::int32_t next = kNone;    // in the queue of active nodes; the last one points to itself
        std::int32_t stamp = 0, distance = 0;
        bool of_sink = false;
    };
    struct Arc {
        double rest = 0;
        std::int32_t head = 0, sister = 0;
    };

    void activate(std::int32_t i);
    std::int32_t next_active();
    void augment(std::int32_t middle);
    void orphan(std::int32_t i);
    void adopt(std::int32_t i);

    const Adjacency& g_;
    std::vector<Node> nodes_;
    std::vector<Arc> arcs_;
    std::vector<std::int32_t> orphans_;
    std::int32_t head_[2] = {kNone, kNone}, tail_[2] = {kNone, kNone};
    std::int32_t time_ = 0;
    double flow_ = 0;
};

// Exchanges the two labels of some nodes, so that every edge costs at most as much for equal labels as for different
// ones: T(0, 0) + T(1, 1) <= T(0, 1) + T(1, 0). False if no exchange does that for all edges. flipped: (n), 1 if
// exchanged.
bool submodular_flips(const GraphModel& model, std::uint8_t* flipped);

// The best labels of a model with two labels, given such an exchange. Returns the value of the cut, which is the least
// energy up to rounding, or NaN if the deadline is over, with labels as they were.
double binary_cut(const GraphModel& model, const std::uint8_t* flipped, std::int64_t* labels, Deadline& deadline);

}  // namespace fwcrf
