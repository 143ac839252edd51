// The costs of edges inside the part are first moved to the nodes, edge by edge:
//     M(s, t) = T(s, t) + c_i(s) + c_j(t),  c_i(s) = min_t M / 2,  c_j(t) = min_s M / 2,  T = M - c_i - c_j >= 0.
// The sum of the least c_i is then a bound that no sweep lowers. Depth-first search gives one node after the other a
// label, adds the costs T of its edges to its neighbours, and leaves labels out whose bound is not below the best
// energy. The next node is the one with the fewest labels left.
#include "graph/branch.hpp"

#include "graph/random.hpp"

#include <algorithm>
#include <cmath>

namespace fwcrf {
namespace {

class Search {
  public:
    Search(const BranchArgs& args, Deadline& deadline)
        : a_(args), m_(args.model), g_(m_.graph), K_(m_.labels), deadline_(deadline),
          count_(static_cast<std::int64_t>(args.nodes.size())) {}

    BranchResult run() {
        collect();
        const double now = value_of_labels();
        const double error = truncate(now);
        for (std::int64_t k = 0; k < a_.sweeps; ++k) {
            for (Edge& edge : edges_) balance(edge);
            if (k % 8 == 7 && deadline_.over()) break;
        }
        best_ = start_ = now - a_.margin;
        chosen_.assign(count_, -1);
        saved_.resize(count_);
        complete_ = true;
        descend(0, 0.0);
        if (!found_.empty())
            for (std::int64_t p = 0; p < count_; ++p) a_.labels[a_.nodes[p]] = found_[p];
        return {complete_, found_.empty() ? 0.0 : best_ - start_ - a_.margin, error};
    }

  private:
    struct Edge {
        std::int32_t first, second;  // places
        std::int64_t table;
    };
    struct End {
        std::int32_t place;
        std::int64_t table;
        bool second;  // the table's columns are of this end's owner
    };

    void collect() {
        std::vector<std::int32_t> place(g_.n, -1);
        for (std::int64_t p = 0; p < count_; ++p) place[a_.nodes[p]] = static_cast<std::int32_t>(p);
        costs_.resize(count_ * K_);
        ends_.resize(count_);
        for (std::int64_t p = 0; p < count_; ++p) {
            const std::int64_t i = a_.nodes[p];
            double* const c = costs_.data() + p * K_;
            for (std::int64_t s = 0; s < K_; ++s) c[s] = m_.unary[i * K_ + s];
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                const std::int64_t j = g_.neighbor[k];
                const std::int32_t slot = g_.slot[k], q = place[j];
                if (q < 0) {
                    for (std::int64_t s = 0; s < K_; ++s) c[s] += m_.cost_at(slot, s, a_.labels[j]);
                    continue;
                }
                if (slot & 1) continue;
                const auto at = static_cast<std::int64_t>(tables_.size());
                for (std::int64_t s = 0; s < K_; ++s)
                    for (std::int64_t t = 0; t < K_; ++t) tables_.push_back(m_.cost(slot >> 1, s, t));
                edges_.push_back({static_cast<std::int32_t>(p), q, at});
                ends_[p].push_back({q, at, false});
                ends_[q].push_back({static_cast<std::int32_t>(p), at, true});
            }
        }
    }

    double value_of_labels() const {
        double total = 0;
        for (std::int64_t p = 0; p < count_; ++p) total += costs_[p * K_ + a_.labels[a_.nodes[p]]];
        for (const Edge& edge : edges_)
            total += tables_[edge.table + a_.labels[a_.nodes[edge.first]] * K_ + a_.labels[a_.nodes[edge.second]]];
        return total;
    }

    // Costs of edges that no better labelling can have become just large enough, which keeps rounding errors small.
    // Returns a limit of these errors.
    double truncate(double now) {
        double bound = 0, size = 0;
        for (std::int64_t p = 0; p < count_; ++p)
            bound += *std::min_element(costs_.begin() + p * K_, costs_.begin() + (p + 1) * K_);
        const auto table = [&](const Edge& edge) { return tables_.begin() + edge.table; };
        for (const Edge& edge : edges_) bound += *std::min_element(table(edge), table(edge) + K_ * K_);
        for (const Edge& edge : edges_) {
            const double most = *std::min_element(table(edge), table(edge) + K_ * K_) + (now - bound) + 1;
            for (auto cost = table(edge); cost != table(edge) + K_ * K_; ++cost) {
                *cost = std::min(*cost, most);
                size = std::max(size, std::fabs(*cost));
            }
        }
        for (const double cost : costs_)
            if (cost < kInfinity) size = std::max(size, std::fabs(cost));
        return 4.5e-16 * size *
               (static_cast<double>(edges_.size()) * static_cast<double>(a_.sweeps + 1) + static_cast<double>(count_));
    }

    void balance(const Edge& edge) {
        double* const a = costs_.data() + edge.first * K_;
        double* const b = costs_.data() + edge.second * K_;
        double* const T = tables_.data() + edge.table;
        row_.assign(K_, kInfinity);
        column_.assign(K_, kInfinity);
        for (std::int64_t s = 0; s < K_; ++s) {
            if (!(a[s] < kInfinity)) continue;
            for (std::int64_t t = 0; t < K_; ++t) {
                if (!(b[t] < kInfinity)) continue;
                const double both = T[s * K_ + t] += a[s] + b[t];
                row_[s] = std::min(row_[s], both);
                column_[t] = std::min(column_[t], both);
            }
        }
        for (std::int64_t s = 0; s < K_; ++s)
            if (a[s] < kInfinity) a[s] = 0.5 * row_[s];
        for (std::int64_t t = 0; t < K_; ++t)
            if (b[t] < kInfinity) b[t] = 0.5 * column_[t];
        for (std::int64_t s = 0; s < K_; ++s)
            for (std::int64_t t = 0; t < K_; ++t)
                if (a[s] < kInfinity && b[t] < kInfinity) T[s * K_ + t] -= a[s] + b[t];
    }

    // `spent` is the cost of the nodes with labels. Returns when the part is searched or the visits are used up.
    void descend(std::int64_t depth, double spent) {
        double bound = spent;
        for (std::int64_t p = 0; p < count_; ++p)
            if (chosen_[p] < 0) bound += *std::min_element(costs_.begin() + p * K_, costs_.begin() + (p + 1) * K_);
        if (!(bound < best_)) return;
        if (depth == count_) {
            best_ = spent;
            found_ = chosen_;
            return;
        }
        std::int64_t next = -1, fewest = 0;
        double largest = 0;
        for (std::int64_t p = 0; p < count_; ++p) {
            if (chosen_[p] >= 0) continue;
            const double* const c = costs_.data() + p * K_;
            const double low = *std::min_element(c, c + K_);
            std::int64_t left = 0;
            double second = kInfinity;
            bool skipped = false;
            for (std::int64_t s = 0; s < K_; ++s) {
                if (bound - low + c[s] < best_) ++left;
                if (c[s] == low && !skipped) skipped = true;
                else second = std::min(second, c[s]);
            }
            if (next < 0 || left < fewest || (left == fewest && second - low > largest)) {
                next = p;
                fewest = left;
                largest = second - low;
            }
        }
        const std::int64_t p = next;
        std::vector<std::int32_t> order;
        const std::vector<double> own(costs_.begin() + p * K_, costs_.begin() + (p + 1) * K_);
        const double low = *std::min_element(own.begin(), own.end());
        for (std::int64_t s = 0; s < K_; ++s)
            if (bound - low + own[s] < best_) order.push_back(static_cast<std::int32_t>(s));
        std::sort(order.begin(), order.end(), [&](std::int32_t s, std::int32_t t) { return own[s] < own[t]; });
        std::vector<double>& saved = saved_[depth];
        saved.clear();
        for (const End& end : ends_[p])
            if (chosen_[end.place] < 0)
                saved.insert(saved.end(), costs_.begin() + end.place * K_, costs_.begin() + (end.place + 1) * K_);
        for (const std::int32_t s : order) {
            if (!(bound - low + own[s] < best_)) break;
            if (++visited_ > a_.visits || (visited_ % 256 == 0 && deadline_.over())) {
                complete_ = false;
                return;
            }
            chosen_[p] = s;
            for (const End& end : ends_[p]) {
                if (chosen_[end.place] >= 0) continue;
                double* const c = costs_.data() + end.place * K_;
                const double* const T = tables_.data() + end.table;
                for (std::int64_t t = 0; t < K_; ++t) c[t] += end.second ? T[t * K_ + s] : T[s * K_ + t];
            }
            descend(depth + 1, spent + own[s]);
            chosen_[p] = -1;
            const double* from = saved.data();
            for (const End& end : ends_[p])
                if (chosen_[end.place] < 0) {
                    std::copy(from, from + K_, costs_.begin() + end.place * K_);
                    from += K_;
                }
            if (!complete_) return;
        }
    }

    const BranchArgs& a_;
    const GraphModel& m_;
    const Adjacency& g_;
    const std::int64_t K_;
    Deadline& deadline_;
    const std::int64_t count_;
    std::vector<double> costs_;   // (nodes of the part, labels)
    std::vector<double> tables_;  // of the edges inside
    std::vector<Edge> edges_;
    std::vector<std::vector<End>> ends_;
    std::vector<double> row_, column_;
    std::vector<std::int64_t> chosen_, found_;  // by place
    std::vector<std::vector<double>> saved_;    // by depth: the costs of the neighbours, to go back
    double best_ = 0, start_ = 0;
    std::int64_t visited_ = 0;
    bool complete_ = true;
};

}  // namespace

BranchResult branch(const BranchArgs& args, Deadline& deadline) { return Search(args, deadline).run(); }

double exact_patches(const PatchArgs& args, Deadline& deadline) {
    const Adjacency& g = args.model.graph;
    Random random(args.seed);
    std::vector<std::int32_t> patch;
    std::vector<std::uint8_t> inside(g.n, 0);
    double gained = 0;
    for (std::int64_t k = 0; k < args.patches && !deadline.over(); ++k) {
        const std::int64_t size = 2 + random.below(args.nodes - 1);
        patch.assign(1, static_cast<std::int32_t>(random.below(g.n)));
        inside[patch[0]] = 1;
        for (std::int64_t tries = 0; static_cast<std::int64_t>(patch.size()) < size && tries < 8 * size; ++tries) {
            const std::int64_t i = patch[random.below(static_cast<std::int64_t>(patch.size()))],
                               degree = g.first[i + 1] - g.first[i];
            if (degree == 0) break;
            const std::int32_t j = g.neighbor[g.first[i] + random.below(degree)];
            if (inside[j]) continue;
            inside[j] = 1;
            patch.push_back(j);
        }
        gained += branch({args.model, patch, 3, args.visits, 0.0, args.labels}, deadline).gained;
        for (const std::int32_t i : patch) inside[i] = 0;
    }
    return gained;
}

}  // namespace fwcrf
