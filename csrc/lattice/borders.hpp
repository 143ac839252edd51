// The division of a lattice among threads that splat into it: see Borders.
#pragma once

#include "lattice/arguments.hpp"

#include <vector>

#include "runtime/block_allocator.hpp"

namespace fwcrf {

struct LatticeBorders {
    template <typename V> using Vector = std::vector<V, BlockAllocator<V>>;

    Borders found;  // of the arrays below
    std::vector<std::int64_t> first, begin;
    Vector<std::int32_t> index, vertex;

    // False if own rows are so many that the division does not pay.
    explicit operator bool() const { return !index.empty(); }
};

// For as many parts as threads, each of whole rows of `per_row` points; `index` is (rows, per_row, corners).
void find_borders(std::int64_t rows, std::int64_t per_row, int corners, const std::int32_t* index,
                  std::int64_t vertices, int threads, LatticeBorders& borders);

}  // namespace fwcrf
