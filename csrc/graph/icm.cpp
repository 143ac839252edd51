// Iterated conditional modes: one node at a time takes its best label, given the labels of its neighbours, until no
// node can gain. A node is visited again only after a neighbour has changed.
//
// A restart perturbs the labels region by region: a ball of nodes gets new labels, the nodes around the ball and then
// the nodes inside may change, and the old labels come back unless the energy has fallen. Costs are summed in double,
// so that comparisons are reliable.
#include "graph/icm.hpp"

#include "graph/model.hpp"
#include "graph/random.hpp"

#include <vector>

namespace fwcrf {
namespace {

constexpr std::int64_t kLargestBall = 64;

template <typename T> class Descent {
  public:
    explicit Descent(const DescentArgs<T>& args)
        : a_(args), g_(args.graph), L_(args.labels), label_(g_.n), settled_(g_.n), queued_(g_.n), queue_(g_.n),
          cost_(L_), forward_(L_), backward_(L_) {}

    void run() {
        start();
        for (std::int64_t i = 0; i < g_.n; ++i) push(i);
        relax(a_.max_sweeps * g_.n);
        Random random(a_.seed);
        Deadline deadline(a_.seconds, nullptr);
        bool over = false;
        for (std::int64_t r = 0; r < a_.restarts && !over; ++r)
            for (std::int64_t disturbed = 0; disturbed < g_.n && !over; over = deadline.over()) {
                if (stopped()) return;
                disturbed += kick(random);
            }
        if (stopped()) return;
        for (std::int64_t i = 0; i < g_.n; ++i) a_.out[i] = label_[i];
    }

  private:
    bool stopped() { return a_.stop && a_.stop->asked(++asked_); }

    // Labels of the nodes whose x is a vertex; the remaining nodes use x until their first visit.
    void start() {
        for (std::int64_t i = 0; i < g_.n; ++i) {
            if (!a_.x) {
                label_[i] = static_cast<std::int32_t>(a_.out[i]);
                settled_[i] = 1;
                continue;
            }
            const T* x = a_.x + i * L_;
            std::int64_t best = 0;
            for (std::int64_t l = 1; l < L_; ++l)
                if (x[l] > x[best]) best = l;
            label_[i] = static_cast<std::int32_t>(best);
            settled_[i] = x[best] == T(1);
        }
    }

    // The cost of each label of node i, given its neighbours.
    void costs(std::int64_t i) {
        for (std::int64_t l = 0; l < L_; ++l) cost_[l] = a_.unary[i * L_ + l];
        if (a_.tables) from_tables(i);
        else if (a_.matrix) from_matrix(i);
        else from_potts(i);
    }

    void from_tables(std::int64_t i) {
        for (std::int64_t e = g_.first[i]; e < g_.first[i + 1]; ++e) {
            const std::int64_t j = g_.neighbor[e];
            const T* table = a_.tables + (g_.slot[e] >> 1) * L_ * L_;
            // T(s, t) of an edge is at s * step + t * other, with s at this node and t at the neighbour.
            const std::int64_t step = g_.slot[e] & 1 ? 1 : L_, other = g_.slot[e] & 1 ? L_ : 1;
            if (settled_[j]) {
                const T* column = table + label_[j] * other;
                for (std::int64_t s = 0; s < L_; ++s) cost_[s] += column[s * step];
                continue;
            }
            for (std::int64_t t = 0; t < L_; ++t) {
                const double part = a_.x[j * L_ + t];
                if (part == 0) continue;
                for (std::int64_t s = 0; s < L_; ++s) cost_[s] += part * table[t * other + s * step];
            }
        }
    }

    void from_potts(std::int64_t i) {
        double total = 0;
        for (std::int64_t e = g_.first[i]; e < g_.first[i + 1]; ++e) {
            const std::int64_t j = g_.neighbor[e];
            const double weight = a_.weight[a_.uniform ? 0 : g_.slot[e] >> 1];
            if (settled_[j]) {
                total += weight;
                cost_[label_[j]] -= weight;
                continue;
            }
            for (std::int64_t t = 0; t < L_; ++t) {
                const double part = weight * a_.x[j * L_ + t];
                total += part;
                cost_[t] -= part;
            }
        }
        for (std::int64_t s = 0; s < L_; ++s) cost_[s] += total;
    }

    void from_matrix(std::int64_t i) {
        for (std::int64_t t = 0; t < L_; ++t) forward_[t] = backward_[t] = 0;
        for (std::int64_t e = g_.first[i]; e < g_.first[i + 1]; ++e) {
            const std::int64_t j = g_.neighbor[e];
            const double weight = a_.weight[a_.uniform ? 0 : g_.slot[e] >> 1];
            std::vector<double>& sum = g_.slot[e] & 1 ? backward_ : forward_;
            if (settled_[j]) sum[label_[j]] += weight;
            else
                for (std::int64_t t = 0; t < L_; ++t) sum[t] += weight * a_.x[j * L_ + t];
        }
        for (std::int64_t t = 0; t < L_; ++t) {
            if (forward_[t] != 0)
                for (std::int64_t s = 0; s < L_; ++s) cost_[s] += forward_[t] * a_.matrix[s * L_ + t];
            if (backward_[t] != 0)
                for (std::int64_t s = 0; s < L_; ++s) cost_[s] += backward_[t] * a_.matrix[t * L_ + s];
        }
    }

    void push(std::int64_t i) {
        if (queued_[i]) return;
        queued_[i] = 1;
        queue_[(head_ + length_++) % g_.n] = static_cast<std::int32_t>(i);
    }

    // Visits the queued nodes; a label changes only for a better label.
    void relax(std::int64_t visits) {
        for (; length_ > 0 && visits > 0 && !(visits % 256 == 0 && stopped()); --visits) {
            const std::int64_t i = queue_[head_];
            head_ = (head_ + 1) % g_.n;
            --length_;
            queued_[i] = 0;
            costs(i);
            std::int64_t best = settled_[i] ? label_[i] : 0;
            for (std::int64_t l = 0; l < L_; ++l)
                if (cost_[l] < cost_[best]) best = l;
            if (settled_[i] && best == label_[i]) continue;
            change(i, best);
        }
        for (; length_ > 0; --length_) {
            queued_[queue_[head_]] = 0;
            head_ = (head_ + 1) % g_.n;
        }
    }

    // Gives node i a label; cost_ holds the costs of node i.
    void change(std::int64_t i, std::int64_t label) {
        if (settled_[i]) {
            gain_ += cost_[label] - cost_[label_[i]];
            changes_.push_back({static_cast<std::int32_t>(i), label_[i]});
        }
        label_[i] = static_cast<std::int32_t>(label);
        settled_[i] = 1;
        for (std::int64_t e = g_.first[i]; e < g_.first[i + 1]; ++e) push(g_.neighbor[e]);
    }

    // Perturbs a ball of nodes; returns its size.
    std::int64_t kick(Random& random) {
        const std::int64_t largest = g_.n < kLargestBall ? g_.n : kLargestBall;
        std::int64_t sizes = 1;  // powers of 2, equally likely
        while (std::int64_t{1} << sizes <= largest) ++sizes;
        const std::int64_t size = std::int64_t{1} << random.below(sizes);
        grow(random, random.below(g_.n), size);
        const std::int64_t style = random.below(3);
        std::int64_t same = random.below(L_);
        if (style == 0) {  // the label of some neighbour
            const std::int64_t i = ball_[random.below(static_cast<std::int64_t>(ball_.size()))],
                               degree = g_.first[i + 1] - g_.first[i];
            if (degree > 0) same = label_[g_.neighbor[g_.first[i] + random.below(degree)]];
        }
        changes_.clear();
        gain_ = 0;
        for (const std::int32_t i : ball_) {
            const std::int64_t wanted = style == 2 ? random.below(L_) : same;
            costs(i);
            if (wanted != label_[i] && cost_[wanted] < kInfinity) change(i, wanted);
        }
        // Nodes outside the ball first: nodes inside would only change back.
        std::int64_t waiting = length_;
        for (; waiting > 0; --waiting) {
            const std::int64_t i = queue_[head_];
            head_ = (head_ + 1) % g_.n;
            --length_;
            queued_[i] = 0;
            if (!inside(i)) push(i);
        }
        for (const std::int32_t i : ball_) push(i);
        relax(4 * (g_.n < 64 * size ? g_.n : 64 * size));
        if (gain_ >= 0)
            for (std::size_t k = changes_.size(); k-- > 0;) label_[changes_[k].node] = changes_[k].label;
        changes_.clear();
        return static_cast<std::int64_t>(ball_.size());
    }

    // A connected set of nodes around a centre.
    void grow(Random& random, std::int64_t centre, std::int64_t size) {
        ball_.assign(1, static_cast<std::int32_t>(centre));
        for (std::int64_t tries = 0; static_cast<std::int64_t>(ball_.size()) < size && tries < 8 * size; ++tries) {
            const std::int64_t i = ball_[random.below(static_cast<std::int64_t>(ball_.size()))],
                               degree = g_.first[i + 1] - g_.first[i];
            if (degree == 0) return;
            const std::int32_t j = g_.neighbor[g_.first[i] + random.below(degree)];
            if (!inside(j)) ball_.push_back(j);
        }
    }

    bool inside(std::int64_t i) const {
        for (const std::int32_t j : ball_)
            if (j == i) return true;
        return false;
    }

    struct Change {
        std::int32_t node, label;
    };

    const DescentArgs<T>& a_;
    const Adjacency& g_;
    const std::int64_t L_;
    std::vector<std::int32_t> label_;
    std::vector<std::uint8_t> settled_, queued_;
    std::vector<std::int32_t> queue_;  // a ring with head_ and length_
    std::int64_t head_ = 0, length_ = 0;
    std::vector<double> cost_, forward_, backward_;
    std::vector<std::int32_t> ball_;
    std::vector<Change> changes_;  // since the last kick, with the old labels
    std::int64_t asked_ = 0;       // calls of stopped()
    double gain_ = 0;              // of energy, since the last kick
};

}  // namespace

template <typename T> void descend(const DescentArgs<T>& args) { Descent<T>(args).run(); }
template void descend<float>(const DescentArgs<float>&);
template void descend<double>(const DescentArgs<double>&);

}  // namespace fwcrf
