#include "graph/balls.hpp"

#include "graph/elimination.hpp"
#include "graph/random.hpp"

#include <algorithm>

namespace fwcrf {

double exact_balls(const BallArgs& args, Deadline& deadline) {
    const Adjacency& g = args.model.graph;
    Random random(args.seed);
    Elimination elimination(args.model);
    std::vector<std::int32_t> region, before;
    std::vector<std::int64_t> seen(g.n, -1);
    double gained = 0;
    const auto local = [&](const std::vector<std::int32_t>& nodes) {
        double sum = 0;
        for (const std::int32_t i : nodes) {
            sum += args.model.unary[i * args.model.labels + args.labels[i]];
            for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
                // An edge inside the region is summed at its first node.
                const bool inside = seen[g.neighbor[k]] == -2;
                if (!inside || !(g.slot[k] & 1))
                    sum += args.model.cost_at(g.slot[k], args.labels[i], args.labels[g.neighbor[k]]);
            }
        }
        return sum;
    };
    for (std::int64_t ball = 0; ball < args.balls && !deadline.over(); ++ball) {
        // A connected region, grown at random.
        region.assign(1, static_cast<std::int32_t>(random.below(g.n)));
        seen[region[0]] = -2;
        std::size_t open = 0;
        while (open < region.size() && static_cast<std::int64_t>(region.size()) < args.nodes) {
            // One of the earliest nodes: regions stay round.
            const std::size_t span = std::min<std::size_t>(region.size() - open, 8);
            std::swap(region[open], region[open + random.below(static_cast<std::int64_t>(span))]);
            const std::int64_t i = region[open++];
            for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k)
                if (seen[g.neighbor[k]] != -2 && static_cast<std::int64_t>(region.size()) < args.nodes) {
                    seen[g.neighbor[k]] = -2;
                    region.push_back(g.neighbor[k]);
                }
        }
        elimination.plan(region, args.entries, kInfinity, true);
        before.resize(region.size());
        for (std::size_t k = 0; k < region.size(); ++k) before[k] = static_cast<std::int32_t>(args.labels[region[k]]);
        const double was = local(region);
        const double value = elimination.run(args.labels, deadline);
        const double is = value == value ? local(region) : was;
        if (is < was) gained += is - was;
        else
            for (std::size_t k = 0; k < region.size(); ++k) args.labels[region[k]] = before[k];
        for (const std::int32_t i : region) seen[i] = -1;
    }
    return gained;
}

}  // namespace fwcrf
