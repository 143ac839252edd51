#include "graph/maxflow.hpp"

#include <cmath>

namespace fwcrf {

MaxFlow::MaxFlow(const Adjacency& graph) : g_(graph), nodes_(graph.n), arcs_(2 * graph.edges) {
    std::vector<std::int32_t> place(2 * graph.edges);
    for (std::int64_t k = 0; k < 2 * graph.edges; ++k) place[graph.slot[k]] = static_cast<std::int32_t>(k);
    for (std::int64_t k = 0; k < 2 * graph.edges; ++k) {
        arcs_[k].head = graph.neighbor[k];
        arcs_[k].sister = place[graph.slot[k] ^ 1];
    }
}

void MaxFlow::clear() {
    for (Node& node : nodes_) node.rest = 0;
    for (Arc& arc : arcs_) arc.rest = 0;
    flow_ = 0;
}

void MaxFlow::activate(std::int32_t i) {
    if (nodes_[i].next != kNone) return;
    if (tail_[1] == kNone) head_[1] = i;
    else nodes_[tail_[1]].next = i;
    tail_[1] = i;
    nodes_[i].next = i;
}

// The first active node, which stays in no queue. There are two queues: one is emptied while the other one is filled.
std::int32_t MaxFlow::next_active() {
    for (;;) {
        if (head_[0] == kNone) {
            head_[0] = head_[1];
            tail_[0] = tail_[1];
            head_[1] = tail_[1] = kNone;
            if (head_[0] == kNone) return kNone;
        }
        const std::int32_t i = head_[0];
        if (nodes_[i].next == i) head_[0] = tail_[0] = kNone;
        else head_[0] = nodes_[i].next;
        nodes_[i].next = kNone;
        if (nodes_[i].parent != kNone) return i;
    }
}

double MaxFlow::run(Deadline& deadline) {
    head_[0] = head_[1] = tail_[0] = tail_[1] = kNone;
    time_ = 0;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(g_.n); ++i) {
        Node& node = nodes_[i];
        node.next = kNone;
        node.stamp = 0;
        node.distance = 1;
        node.of_sink = node.rest < 0;
        node.parent = node.rest == 0 ? kNone : kTerminal;
        if (node.rest < 0) flow_ += node.rest;  // the lesser cost is the sink side's
    }
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(g_.n); ++i)
        if (nodes_[i].parent != kNone) activate(i);
    std::int32_t current = kNone;
    for (std::int64_t count = 0;; ++count) {
        if (count % 4096 == 0 && deadline.over()) return __builtin_nan("");
        std::int32_t i = current;
        if (i == kNone || nodes_[i].parent == kNone) i = next_active();
        if (i == kNone) break;
        const bool of_sink = nodes_[i].of_sink;
        std::int32_t middle = kNone;
        for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
            const double rest = of_sink ? arcs_[arcs_[k].sister].rest : arcs_[k].rest;
            if (!(rest > 0)) continue;
            const std::int32_t j = arcs_[k].head;
            Node& node = nodes_[j];
            if (node.parent == kNone) {
                node.of_sink = of_sink;
                node.parent = arcs_[k].sister;
                node.stamp = nodes_[i].stamp;
                node.distance = nodes_[i].distance + 1;
                activate(j);
            } else if (node.of_sink != of_sink) {
                middle = static_cast<std::int32_t>(of_sink ? arcs_[k].sister : k);
                break;
            } else if (node.stamp <= nodes_[i].stamp && node.distance > nodes_[i].distance) {
                node.parent = arcs_[k].sister;  // nearer to the terminal
                node.stamp = nodes_[i].stamp;
                node.distance = nodes_[i].distance + 1;
            }
        }
        ++time_;
        if (middle == kNone) {
            current = kNone;
            continue;
        }
        current = i;  // more paths may begin here
        augment(middle);
        while (!orphans_.empty()) {
            const std::int32_t lost = orphans_.back();
            orphans_.pop_back();
            adopt(lost);
        }
    }
    return flow_;
}

// Fills the path through `middle`, an arc from the source's tree to the sink's tree.
void MaxFlow::augment(std::int32_t middle) {
    const std::int32_t from = arcs_[arcs_[middle].sister].head, to = arcs_[middle].head;
    double least = arcs_[middle].rest;
    std::int32_t i = from;
    for (; nodes_[i].parent != kTerminal; i = arcs_[nodes_[i].parent].head) {
        const double rest = arcs_[arcs_[nodes_[i].parent].sister].rest;
        if (rest < least) least = rest;
    }
    if (nodes_[i].rest < least) least = nodes_[i].rest;
    for (i = to; nodes_[i].parent != kTerminal; i = arcs_[nodes_[i].parent].head) {
        const double rest = arcs_[nodes_[i].parent].rest;
        if (rest < least) least = rest;
    }
    if (-nodes_[i].rest < least) least = -nodes_[i].rest;

    arcs_[arcs_[middle].sister].rest += least;
    arcs_[middle].rest -= least;
    for (i = from; nodes_[i].parent != kTerminal;) {
        Arc& up = arcs_[nodes_[i].parent];
        Arc& down = arcs_[up.sister];
        up.rest += least;
        down.rest -= least;
        const std::int32_t parent = up.head;
        if (!(down.rest > 0)) orphan(i);
        i = parent;
    }
    nodes_[i].rest -= least;
    if (!(nodes_[i].rest > 0)) orphan(i);
    for (i = to; nodes_[i].parent != kTerminal;) {
        Arc& up = arcs_[nodes_[i].parent];
        arcs_[up.sister].rest += least;
        up.rest -= least;
        const std::int32_t parent = up.head;
        if (!(up.rest > 0)) orphan(i);
        i = parent;
    }
    nodes_[i].rest += least;
    if (!(nodes_[i].rest < 0)) orphan(i);
    flow_ += least;
}

void MaxFlow::orphan(std::int32_t i) {
    nodes_[i].parent = kOrphan;
    orphans_.push_back(i);
}

// Finds the nearest parent whose path leads to the terminal, or makes the node free and its children orphans.
void MaxFlow::adopt(std::int32_t i) {
    constexpr std::int32_t kFar = 0x7fffffff;
    const bool of_sink = nodes_[i].of_sink;
    std::int32_t best = kNone, nearest = kFar;
    for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
        const double rest = of_sink ? arcs_[k].rest : arcs_[arcs_[k].sister].rest;
        const std::int32_t neighbour = arcs_[k].head;
        if (!(rest > 0) || nodes_[neighbour].of_sink != of_sink || nodes_[neighbour].parent == kNone) continue;
        std::int32_t distance = 0, j = neighbour;
        for (;;) {
            const Node& node = nodes_[j];
            if (node.stamp == time_ && node.parent != kOrphan) {
                distance += node.distance;
                break;
            }
            ++distance;
            if (node.parent == kTerminal) {
                nodes_[j].stamp = time_;
                nodes_[j].distance = 1;
                break;
            }
            if (node.parent == kOrphan) {
                distance = kFar;
                break;
            }
            j = arcs_[node.parent].head;
        }
        if (distance == kFar) continue;
        if (distance < nearest) {
            best = static_cast<std::int32_t>(k);
            nearest = distance;
        }
        for (j = neighbour; nodes_[j].stamp != time_; j = arcs_[nodes_[j].parent].head) {
            nodes_[j].stamp = time_;
            nodes_[j].distance = distance--;
        }
    }
    if (best != kNone) {
        nodes_[i].parent = best;
        nodes_[i].stamp = time_;
        nodes_[i].distance = nearest + 1;
        return;
    }
    for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
        const std::int32_t j = arcs_[k].head;
        if (nodes_[j].of_sink != of_sink || nodes_[j].parent == kNone) continue;
        const double rest = of_sink ? arcs_[k].rest : arcs_[arcs_[k].sister].rest;
        if (rest > 0) activate(j);
        if (nodes_[j].parent >= 0 && arcs_[nodes_[j].parent].head == i) orphan(j);
    }
    nodes_[i].parent = kNone;
}

bool submodular_flips(const GraphModel& model, std::uint8_t* flipped) {
    const Adjacency& g = model.graph;
    // The cost of equal labels less the cost of different labels; 0 if that is rounding error.
    const auto equal = [&](std::int64_t e) {
        const double a = model.cost(e, 0, 0), b = model.cost(e, 1, 1), c = model.cost(e, 0, 1), d = model.cost(e, 1, 0);
        const double size = std::fabs(a) + std::fabs(b) + std::fabs(c) + std::fabs(d), sum = a + b - c - d;
        return std::fabs(sum) <= 4e-16 * size ? 0.0 : sum;
    };
    std::vector<std::uint8_t> seen(g.n, 0);
    std::vector<std::int32_t> queue;
    for (std::int64_t root = 0; root < g.n; ++root) {
        if (seen[root]) continue;
        seen[root] = 1;
        flipped[root] = 0;
        queue.assign(1, static_cast<std::int32_t>(root));
        for (std::size_t at = 0; at < queue.size(); ++at) {
            const std::int64_t i = queue[at];
            for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
                const double sum = equal(g.slot[k] >> 1);
                if (sum == 0) continue;
                const std::int32_t j = g.neighbor[k];
                const std::uint8_t wanted = flipped[i] ^ (sum > 0);
                if (seen[j] && flipped[j] != wanted) return false;
                if (seen[j]) continue;
                seen[j] = 1;
                flipped[j] = wanted;
                queue.push_back(j);
            }
        }
    }
    return true;
}

double binary_cut(const GraphModel& model, const std::uint8_t* flipped, std::int64_t* labels, Deadline& deadline) {
    const Adjacency& g = model.graph;
    MaxFlow flow(g);
    // The source's side has label 0, or 1 where flipped. A forbidden label costs more than all else can save.
    double most = 1;
    for (std::int64_t i = 0; i < g.n; ++i) {
        const double a = model.unary[2 * i], b = model.unary[2 * i + 1];
        if (a < kInfinity && b < kInfinity) most += a > b ? a - b : b - a;
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
            if (g.slot[k] & 1) continue;
            double low = kInfinity, high = -kInfinity;
            for (int s = 0; s < 2; ++s)
                for (int t = 0; t < 2; ++t) {
                    const double cost = model.cost(g.slot[k] >> 1, s, t);
                    if (cost < low) low = cost;
                    if (cost > high) high = cost;
                }
            most += high - low;
        }
    }
    for (std::int64_t i = 0; i < g.n; ++i) {
        double cost[2] = {model.unary[2 * i], model.unary[2 * i + 1]};
        for (int s = 0; s < 2; ++s)
            if (!(cost[s] < kInfinity)) cost[s] = cost[1 - s] + most;
        flow.terminal(i, cost[flipped[i]], cost[1 - flipped[i]]);
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
            if (g.slot[k] & 1) continue;
            const std::int64_t e = g.slot[k] >> 1, j = g.neighbor[k];
            const int a = flipped[i], b = flipped[j];
            const double both = model.cost(e, a, b), second = model.cost(e, a, 1 - b), first = model.cost(e, 1 - a, b),
                         none = model.cost(e, 1 - a, 1 - b);
            // (0 0) both, (0 1) second, (1 0) first, (1 1) none: both + (first - both) [x_i = 1] +
            // (none - first) [x_j = 1] + (second + first - both - none) [x_i = 0, x_j = 1].
            flow.terminal(i, both, first);
            flow.terminal(j, 0.0, none - first);
            const double across = second + first - both - none;
            flow.add(k, across > 0 ? across : 0.0);
        }
    }
    const double value = flow.run(deadline);
    if (value != value) return value;
    for (std::int64_t i = 0; i < g.n; ++i) labels[i] = flow.on_sink_side(i) ? 1 - flipped[i] : flipped[i];
    return value;
}

}  // namespace fwcrf
