// Exact minimisation by elimination of one node after the other, where the tables stay small.
#pragma once

#include "graph/model.hpp"

#include <vector>

namespace fwcrf {

// A part of a model: some nodes, whose neighbours outside keep their labels. Reused from call to call for its memory.
class Elimination {
  public:
    explicit Elimination(const GraphModel& model);

    // The order of elimination for `nodes`, least degree first. False if a table would have more than `most` entries,
    // or all tables more than `total`; with `drop`, nodes that would need such a table are left out instead and keep
    // their labels.
    bool plan(const std::vector<std::int32_t>& nodes, double most, double total, bool drop);
    // Gives the planned nodes their best labels. Returns the least value of the terms that contain a planned node;
    // NaN if the deadline is over, with labels as they were.
    double run(std::int64_t* labels, Deadline& deadline);

  private:
    struct Step {
        std::int32_t node;
        std::int64_t scope, scope_end;  // in scope_: the nodes that the table is over, the next one to go first
        std::int64_t table, size;       // in tables_
        std::int32_t parent;            // the step of the first node in scope, or -1
    };

    void add_table(const Step& step, const Step& child, std::int64_t child_label, double* sums) const;
    double from_child(const Step& child, const std::int64_t* labels) const;

    const GraphModel& m_;
    const Adjacency& g_;
    std::vector<std::int32_t> local_;                    // (n): place among the nodes of the plan, or -1
    std::vector<std::vector<std::int32_t>> neighbours_;  // by place; grows with the fill
    std::vector<std::int32_t> nodes_, rank_;             // by place
    std::vector<std::uint8_t> gone_;
    std::vector<Step> steps_;
    std::vector<std::int32_t> scope_;  // places
    std::vector<std::vector<std::int32_t>> children_;
    std::vector<std::int64_t> allowed_, first_allowed_;  // labels of each place that are not forbidden
    std::vector<double> tables_, sums_, outside_;
    std::vector<std::int64_t> first_outside_;
    std::int64_t total_ = 0;
};

}  // namespace fwcrf
