// The axes of a lattice, for a blur of whole rows: see Lines.
#pragma once

#include "lattice/arguments.hpp"

#include <vector>

namespace fwcrf {

struct LatticeLines {
    std::vector<Lines> axes;  // (corners)
    std::vector<std::vector<std::int32_t>> members;
};

// `neighbors` is (corners, vertices, 2).
LatticeLines lattice_lines(int corners, std::int64_t vertices, const std::int32_t* neighbors, int threads);

}  // namespace fwcrf
