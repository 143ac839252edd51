#include "graph/model.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fwcrf {

double energy_of(const GraphModel& model, const std::int64_t* labels) {
    const Adjacency& g = model.graph;
    double total = 0;
    for (std::int64_t i = 0; i < g.n; ++i) {
        total += model.unary[i * model.labels + labels[i]];
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k)
            if (!(g.slot[k] & 1)) total += model.cost(g.slot[k] >> 1, labels[i], labels[g.neighbor[k]]);
    }
    return total;
}

double typical_cost(const GraphModel& model) {
    const std::int64_t count = model.labels * model.labels;
    const auto spread = [&](const double* costs) {
        double low = costs[0], high = costs[0];
        for (std::int64_t k = 1; k < count; ++k) {
            low = std::min(low, costs[k]);
            high = std::max(high, costs[k]);
        }
        return high - low;
    };
    const double shared = model.matrix ? spread(model.matrix) : 1;
    std::vector<double> spreads(model.graph.edges);
    for (std::int64_t e = 0; e < model.graph.edges; ++e)
        spreads[e] = model.tables ? spread(model.tables + e * count) : shared * std::fabs(model.weight_of(e));
    if (spreads.empty()) return 1;
    const auto middle = spreads.begin() + static_cast<std::ptrdiff_t>(spreads.size() / 2);
    std::nth_element(spreads.begin(), middle, spreads.end());
    return *middle > 0 ? *middle : 1;
}

}  // namespace fwcrf
