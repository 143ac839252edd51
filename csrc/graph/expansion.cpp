#include "graph/expansion.hpp"

#include "graph/maxflow.hpp"

namespace fwcrf {
namespace {

// One expansion of label `alpha`: the sink's side takes it. False if the deadline is over.
bool cut(const GraphModel& model, std::int64_t alpha, const std::int64_t* labels, MaxFlow& flow, std::int64_t* moved,
         Deadline& deadline) {
    const Adjacency& g = model.graph;
    flow.clear();
    double most = 1;  // more than an expansion can save
    for (std::int64_t i = 0; i < g.n; ++i) {
        const double now = model.unary[i * model.labels + labels[i]], then = model.unary[i * model.labels + alpha];
        if (then < kInfinity && now > then) most += now - then;
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
            if (g.slot[k] & 1) continue;
            const std::int64_t e = g.slot[k] >> 1, a = labels[i], b = labels[g.neighbor[k]];
            const double stay = model.cost(e, a, b);
            double low = model.cost(e, alpha, alpha);
            if (model.cost(e, a, alpha) < low) low = model.cost(e, a, alpha);
            if (model.cost(e, alpha, b) < low) low = model.cost(e, alpha, b);
            if (stay > low) most += stay - low;
        }
    }
    for (std::int64_t i = 0; i < g.n; ++i) {
        const double now = model.unary[i * model.labels + labels[i]], then = model.unary[i * model.labels + alpha];
        if (labels[i] != alpha) flow.terminal(i, now, then < kInfinity ? then : now + most);
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
            if (g.slot[k] & 1) continue;
            const std::int64_t e = g.slot[k] >> 1, j = g.neighbor[k], a = labels[i], b = labels[j];
            if (a == alpha && b == alpha) continue;
            if (a == alpha) {
                flow.terminal(j, model.cost(e, alpha, b), model.cost(e, alpha, alpha));
                continue;
            }
            if (b == alpha) {
                flow.terminal(i, model.cost(e, a, alpha), model.cost(e, alpha, alpha));
                continue;
            }
            const double both = model.cost(e, a, b), second = model.cost(e, a, alpha), first = model.cost(e, alpha, b),
                         none = model.cost(e, alpha, alpha);
            flow.terminal(i, both, first);
            flow.terminal(j, 0.0, none - first);
            const double across = second + first - both - none;
            if (across > 0) flow.add(k, across);
        }
    }
    const double value = flow.run(deadline);
    if (value != value) return false;
    for (std::int64_t i = 0; i < g.n; ++i) moved[i] = labels[i] != alpha && flow.on_sink_side(i) ? alpha : labels[i];
    return true;
}

}  // namespace

std::int64_t expand(const GraphModel& model, std::int64_t cycles, std::int64_t* labels, Deadline& deadline) {
    MaxFlow flow(model.graph);
    std::vector<std::int64_t> moved(model.graph.n);
    double energy = energy_of(model, labels);
    std::int64_t changes = 0, idle = 0;
    for (std::int64_t step = 0; step < cycles * model.labels && idle < model.labels; ++step) {
        if (!cut(model, step % model.labels, labels, flow, moved.data(), deadline)) break;
        const double after = energy_of(model, moved.data());
        ++idle;
        if (!(after < energy)) continue;
        energy = after;
        idle = 0;
        ++changes;
        for (std::int64_t i = 0; i < model.graph.n; ++i) labels[i] = moved[i];
    }
    return changes;
}

}  // namespace fwcrf
