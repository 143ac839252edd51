// Alpha-expansion: the best set of nodes that take one label at the same time, by a cut; all labels in turn.
#pragma once

#include "graph/model.hpp"

namespace fwcrf {

// Lowers the energy of labels (n). Returns the number of expansions that changed labels. A cycle over all labels
// without a change ends the run. Where an expansion is no cut (the costs are no metric), its cut is of costs raised to
// one, and the labels change only if the energy falls.
std::int64_t expand(const GraphModel& model, std::int64_t cycles, std::int64_t* labels, Deadline& deadline);

}  // namespace fwcrf
