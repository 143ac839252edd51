// The order of the nodes in levels, whose nodes can be visited at the same time.
#pragma once

#include "graph/arguments.hpp"

namespace fwcrf {

// level[i] is one more than the largest level of a neighbour of smaller number, and 0 if there is none. Nodes of a
// level have no edges among them. Returns the number of levels. level: (n).
std::int64_t levels_of(const Adjacency& graph, std::int64_t* level);

}  // namespace fwcrf
