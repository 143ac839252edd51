// The better parts of two labellings.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

// Nodes whose labels differ form connected parts, whose changes of energy do not depend on each other. `labels` (n)
// takes the labels of `other` (n) in all parts where that lowers the energy. Returns the change of energy, 0 or less.
double take_better_parts(const GraphModel& model, const std::int64_t* other, std::int64_t* labels);

}  // namespace fwcrf
