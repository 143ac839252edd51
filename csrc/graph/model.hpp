// A pairwise model on a sparse graph, in double: the argument of all MAP algorithms of this folder.
#pragma once

#include "graph/arguments.hpp"
#include "runtime/stop.hpp"

#include <chrono>

namespace fwcrf {

// The cost of an edge: weight [s != t], weight matrix(s, t), table(s, t), or weight matrix(s, t) where matrix is
// min(|s - t|, truncation) or min((s - t)^2, truncation) and all weights are at least 0.
enum class EdgeShape : int { potts = 0, matrix = 1, tables = 2, linear = 3, quadratic = 4 };

struct GraphModel {
    Adjacency graph;  // without an edge from a node to itself
    std::int64_t labels;
    const double* unary;  // (n, labels); infinite for a forbidden label, but not for all labels of a node
    EdgeShape shape;
    const double* weight;  // (edges), or (1) if uniform; null with tables
    bool uniform;
    const double* matrix;  // (labels, labels), finite; null for potts and tables
    const double* tables;  // (edges, labels, labels), finite, or null
    double truncation;     // of linear and quadratic

    double weight_of(std::int64_t edge) const { return weight[uniform ? 0 : edge]; }

    // The cost of an edge whose first node has label s and whose second node has label t.
    double cost(std::int64_t edge, std::int64_t s, std::int64_t t) const {
        if (shape == EdgeShape::potts) return s == t ? 0.0 : weight_of(edge);
        if (shape == EdgeShape::tables) return tables[(edge * labels + s) * labels + t];
        return weight_of(edge) * matrix[s * labels + t];
    }

    // The same from one node's side: `slot` is an end of the edge, with label s there and t at the other end.
    double cost_at(std::int32_t slot, std::int64_t s, std::int64_t t) const {
        return slot & 1 ? cost(slot >> 1, t, s) : cost(slot >> 1, s, t);
    }
};

double energy_of(const GraphModel& model, const std::int64_t* labels);

// The median over the edges of the largest minus the least cost; 1 without edges, or if it is 0.
double typical_cost(const GraphModel& model);

constexpr double kInfinity = __builtin_huge_val();

// When a run has to end: a number of seconds from now, or a signal.
class Deadline {
  public:
    Deadline(double seconds, Stop* stop) : stop_(stop), limited_(seconds < 1e9) {
        if (limited_) end_ = Clock::now() + std::chrono::nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    }
    bool over() {
        if (stop_ && stop_->asked(64 * count_++)) return true;
        return limited_ && Clock::now() >= end_;
    }

  private:
    using Clock = std::chrono::steady_clock;
    Stop* stop_;
    bool limited_;
    std::int64_t count_ = 0;
    Clock::time_point end_{};
};

}  // namespace fwcrf
