// Entries of the inverse of a sparse symmetric matrix, given its factors.
#pragma once

#include <cstdint>

namespace fwcrf {

// A = L D L', L with ones on its diagonal.
struct InverseArgs {
    std::int64_t n;
    const std::int64_t* first;  // (n + 1): column j of L is first[j] to first[j + 1], without the diagonal
    const std::int32_t* row;    // the rows of a column, rising, all above j; closed like the pattern of a factor
    const double* factor;       // L
    const double* pivot;        // (n): D, not 0
    double* inverse;            // of A at the places of L
    double* diagonal;           // (n): of the inverse
};

void selected_inverse(const InverseArgs& args);

}  // namespace fwcrf
