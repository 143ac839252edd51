// Repair is the breakout method (Morris 1993) with a short list of forbidden moves: the best change at a random edge in
// conflict is made if it lowers the weighted number of conflicts; otherwise all edges in conflict gain weight. Few
// changes are made at random.
#include "graph/constraints.hpp"

#include "graph/random.hpp"

#include <vector>

namespace fwcrf {

bool propagate(const ForbiddenPairs& forbidden, std::uint8_t* allowed) {
    const Adjacency& g = forbidden.graph;
    const std::int64_t K = forbidden.labels;
    std::vector<std::int32_t> queue(g.n);
    std::vector<std::uint8_t> queued(g.n, 1);
    for (std::int64_t i = 0; i < g.n; ++i) queue[i] = static_cast<std::int32_t>(i);
    while (!queue.empty()) {
        const std::int64_t i = queue.back();
        queue.pop_back();
        queued[i] = 0;
        for (std::int64_t k = g.first[i]; k < g.first[i + 1]; ++k) {
            const std::int64_t j = g.neighbor[k];
            bool fewer = false, any = false;
            for (std::int64_t t = 0; t < K; ++t) {
                if (!allowed[j * K + t]) continue;
                bool supported = false;
                for (std::int64_t s = 0; s < K && !supported; ++s)
                    supported = allowed[i * K + s] && !forbidden.at(g.slot[k], s, t);
                any |= supported;
                fewer |= !supported;
                allowed[j * K + t] = supported;
            }
            if (!any) return false;
            if (fewer && !queued[j]) {
                queued[j] = 1;
                queue.push_back(static_cast<std::int32_t>(j));
            }
        }
    }
    return true;
}

namespace {

class Repair {
  public:
    explicit Repair(const RepairArgs& args)
        : a_(args), m_(args.model), g_(m_.graph), K_(m_.labels), random_(args.seed), weight_(g_.edges, 1),
          ends_(2 * g_.edges), place_(g_.edges, -1), cost_(g_.n * K_, 0), free_(g_.n, 0) {
        for (std::int64_t i = 0; i < g_.n; ++i)
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                ends_[g_.slot[k]] = static_cast<std::int32_t>(i);
                const std::int64_t other = a_.labels[g_.neighbor[k]];
                for (std::int64_t s = 0; s < K_; ++s) cost_[i * K_ + s] += a_.forbidden.at(g_.slot[k], s, other);
                if (!(g_.slot[k] & 1) && a_.forbidden.at(g_.slot[k], a_.labels[i], other)) add(g_.slot[k] >> 1);
            }
    }

    std::int64_t run(Deadline& deadline) {
        std::vector<std::int64_t> best(a_.labels, a_.labels + g_.n);
        std::size_t fewest = conflicts_.size();
        for (std::int64_t move = 1; move <= a_.moves && !conflicts_.empty(); ++move) {
            if (move % 1024 == 0 && deadline.over()) break;
            const std::int32_t edge = conflicts_[random_.below(static_cast<std::int64_t>(conflicts_.size()))];
            std::int64_t node = -1, label = 0, least = 0;
            if (random_.below(64) == 0) {  // any change, against cycles
                node = ends_[2 * edge + random_.below(2)];
                label = random_.below(K_);
                if (!(m_.unary[node * K_ + label] < kInfinity) || label == a_.labels[node]) continue;
                least = -1;
            } else {
                double soft = kInfinity;
                for (int end = 0; end < 2; ++end) {
                    const std::int64_t i = ends_[2 * edge + end], now = cost_[i * K_ + a_.labels[i]];
                    if (free_[i] > move) continue;
                    for (std::int64_t s = 0; s < K_; ++s) {
                        if (s == a_.labels[i] || !(m_.unary[i * K_ + s] < kInfinity)) continue;
                        const std::int64_t change = cost_[i * K_ + s] - now;
                        if (node >= 0 && change > least) continue;
                        const double own = m_.unary[i * K_ + s] - m_.unary[i * K_ + a_.labels[i]];
                        if (node >= 0 && change == least && own >= soft) continue;
                        node = i;
                        label = s;
                        least = change;
                        soft = own;
                    }
                }
            }
            if (node >= 0 && least < 0) {
                change(node, label);
                free_[node] = move + 2 + random_.below(8);
                if (conflicts_.size() < fewest) {
                    fewest = conflicts_.size();
                    best.assign(a_.labels, a_.labels + g_.n);
                }
            } else {
                for (const std::int32_t e : conflicts_) gain(e);
            }
        }
        for (std::int64_t i = 0; i < g_.n; ++i) a_.labels[i] = best[i];
        return static_cast<std::int64_t>(fewest);
    }

  private:
    void add(std::int64_t edge) {
        place_[edge] = static_cast<std::int32_t>(conflicts_.size());
        conflicts_.push_back(static_cast<std::int32_t>(edge));
    }

    void remove(std::int64_t edge) {
        const std::int32_t last = conflicts_.back();
        conflicts_[place_[edge]] = last;
        place_[last] = place_[edge];
        place_[edge] = -1;
        conflicts_.pop_back();
    }

    void gain(std::int64_t edge) {
        ++weight_[edge];
        for (int end = 0; end < 2; ++end) {
            const std::int64_t i = ends_[2 * edge + end], other = a_.labels[ends_[2 * edge + 1 - end]];
            const auto slot = static_cast<std::int32_t>(2 * edge + end);
            for (std::int64_t s = 0; s < K_; ++s) cost_[i * K_ + s] += a_.forbidden.at(slot, s, other);
        }
    }

    void change(std::int64_t i, std::int64_t label) {
        const std::int64_t before = a_.labels[i];
        a_.labels[i] = label;
        for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
            const std::int64_t j = g_.neighbor[k], edge = g_.slot[k] >> 1, weight = weight_[edge];
            const std::int32_t theirs = g_.slot[k] ^ 1;
            for (std::int64_t t = 0; t < K_; ++t)
                cost_[j * K_ + t] += weight * (static_cast<int>(a_.forbidden.at(theirs, t, label)) -
                                               static_cast<int>(a_.forbidden.at(theirs, t, before)));
            const bool conflict = a_.forbidden.at(g_.slot[k], label, a_.labels[j]);
            if (conflict && place_[edge] < 0) add(edge);
            if (!conflict && place_[edge] >= 0) remove(edge);
        }
    }

    const RepairArgs& a_;
    const GraphModel& m_;
    const Adjacency& g_;
    const std::int64_t K_;
    Random random_;
    std::vector<std::int64_t> weight_;  // of each edge
    std::vector<std::int32_t> ends_;    // the node of each slot
    std::vector<std::int32_t> conflicts_, place_;
    std::vector<std::int64_t> cost_;  // (n, labels): the weight of the edges in conflict, with this label
    std::vector<std::int64_t> free_;  // the move from which on a node may change
};

}  // namespace

std::int64_t repair(const RepairArgs& args, Deadline& deadline) { return Repair(args).run(deadline); }

}  // namespace fwcrf
