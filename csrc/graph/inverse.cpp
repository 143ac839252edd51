// Takahashi's equations. Z = inverse of A fulfils Z = inverse(L') inverse(D) inverse(L), so that for i >= j
//     Z(i, j) = [i = j] / D(j) - sum over the rows k of column j of Z(i, k) L(k, j).
// From the last column to the first, all entries on the right are known: if i and k are rows of column j, then the
// larger one is a row of the smaller one's column.
#include "graph/inverse.hpp"

#include <vector>

namespace fwcrf {

void selected_inverse(const InverseArgs& a) {
    std::vector<std::int64_t> place(a.n, -1);  // of a row in column j
    for (std::int64_t j = a.n - 1; j >= 0; --j) {
        const std::int64_t begin = a.first[j], end = a.first[j + 1];
        for (std::int64_t e = begin; e < end; ++e) {
            place[a.row[e]] = e;
            a.inverse[e] = 0;
        }
        for (std::int64_t e = begin; e < end; ++e) {
            const std::int64_t k = a.row[e];
            const double factor = a.factor[e];
            double own = a.diagonal[k] * factor;
            for (std::int64_t f = a.first[k]; f < a.first[k + 1]; ++f) {
                const std::int64_t other = place[a.row[f]];
                if (other < 0) continue;
                own += a.inverse[f] * a.factor[other];
                a.inverse[other] -= a.inverse[f] * factor;
            }
            a.inverse[e] -= own;
        }
        double rest = 1.0 / a.pivot[j];
        for (std::int64_t e = begin; e < end; ++e) {
            rest -= a.inverse[e] * a.factor[e];
            place[a.row[e]] = -1;
        }
        a.diagonal[j] = rest;
    }
}

}  // namespace fwcrf
