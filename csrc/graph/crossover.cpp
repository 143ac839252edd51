#include "graph/crossover.hpp"

#include <vector>

namespace fwcrf {

double take_better_parts(const GraphModel& model, const std::int64_t* other, std::int64_t* labels) {
    const Adjacency& g = model.graph;
    const std::int64_t K = model.labels;
    std::vector<std::uint8_t> seen(g.n, 0);
    std::vector<std::int32_t> part;
    double gained = 0;
    for (std::int64_t root = 0; root < g.n; ++root) {
        if (seen[root] || labels[root] == other[root]) continue;
        part.assign(1, static_cast<std::int32_t>(root));
        seen[root] = 1;
        double change = 0;
        for (std::size_t at = 0; at < part.size(); ++at) {
            const std::int64_t i = part[at];
            change += model.unary[i * K + other[i]] - model.unary[i * K + labels[i]];
            for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
                const std::int64_t j = g.neighbor[k];
                const bool differs = labels[j] != other[j];
                // An edge inside the part is counted at its first node.
                if (!differs || !(g.slot[k] & 1))
                    change +=
                        model.cost_at(g.slot[k], other[i], other[j]) - model.cost_at(g.slot[k], labels[i], labels[j]);
                if (differs && !seen[j]) {
                    seen[j] = 1;
                    part.push_back(static_cast<std::int32_t>(j));
                }
            }
        }
        if (!(change < 0)) continue;
        gained += change;
        for (const std::int32_t i : part) labels[i] = other[i];
    }
    return gained;
}

}  // namespace fwcrf
