// TRW-S over the monotonic chains of the natural order of the nodes.
//
// A pass visits the nodes in order. A node adds up its unary and all messages, moves the least entry to the bound, and
// sends the rest in equal shares to the nodes not yet visited:
//     h = unary + sum of messages,  bound += min h,  a = (h - min h) / chains - (message from the other node),
//     message(t) = min_s a(s) + T(s, t),  bound += min message,  message -= min message.
// `chains` is the larger one of the numbers of edges to earlier and to later nodes, so that the shares are at most h.
// The remainders that a pass drops, of h and of a(s) + T(s, t) - message(t), are not negative: the sum of the minima is
// a lower bound for any messages at the start of the pass.
//
// Labels are chosen in the same pass: given the labels of earlier nodes, and the messages of later nodes.
//
// Several threads take the nodes level by level (graph/levels.hpp). A node has the messages that it has in the order of
// the nodes, so that all results are the same, to the last bit.
#include "graph/trws.hpp"

#include "graph/levels.hpp"

#define FWCRF_ISA common  // of the barrier: code without instructions of a particular set
#include "runtime/barrier.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

namespace fwcrf {
namespace {

inline double lesser(double a, double b) { return b < a ? b : a; }

inline double least(const double* row, std::int64_t count) {
    double lane[4] = {kInfinity, kInfinity, kInfinity, kInfinity};
    std::int64_t k = 0;
    for (; k + 4 <= count; k += 4)
        for (int l = 0; l < 4; ++l) lane[l] = lesser(lane[l], row[k + l]);
    for (; k < count; ++k) lane[0] = lesser(lane[0], row[k]);
    return lesser(lesser(lane[0], lane[1]), lesser(lane[2], lane[3]));
}

class Passes {
  public:
    explicit Passes(const TrwsArgs& args)
        : a_(args), m_(args.model), g_(m_.graph), K_(m_.labels), share_(g_.n), found_(g_.n) {
        plan();
        rows_.assign(threads_, Rows(K_));
        for (std::int64_t i = 0; i < g_.n; ++i) {
            std::int64_t later = 0;
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) later += g_.neighbor[k] > i;
            const std::int64_t earlier = g_.first[i + 1] - g_.first[i] - later;
            share_[i] = 1.0 / static_cast<double>(later > earlier ? later : earlier ? earlier : 1);
        }
    }

    TrwsResult run() {
        TrwsResult result{0, energy_of(m_, a_.labels), -kInfinity, false};
        Deadline deadline(a_.seconds, a_.stop);
        for (std::int64_t k = 0; k < a_.iterations && !result.stationary; ++k) {
            for (const bool forward : {true, false}) {
                result.bound = pass(forward);
                if (stopped_) return result;
                if (forward && a_.forward) std::copy_n(a_.messages, g_.edges * K_, a_.forward);
                const double energy = energy_of(m_, found_.data());
                if (energy < result.energy) {
                    result.energy = energy;
                    for (std::int64_t i = 0; i < g_.n; ++i) a_.labels[i] = found_[i];
                }
            }
            a_.bounds[k] = result.bound;
            result.iterations = k + 1;
            result.stationary = result.energy - result.bound <= a_.tolerance ||
                                (k >= 10 && result.bound - a_.bounds[k - 10] <= a_.tolerance);
            if (deadline.over()) break;
        }
        result.bound -= rounding();
        return result;
    }

  private:
    // Of one thread.
    struct Rows {
        explicit Rows(std::int64_t labels) : h(labels), costs(labels), sent(labels), from(labels + 1), peak(labels) {}
        std::vector<double> h, costs, sent;
        std::vector<double> from;  // where each parabola of an envelope begins, and its peak
        std::vector<std::int64_t> peak;
    };

    // The nodes by levels if these are wide enough for several threads.
    void plan() {
        threads_ = 1;
        if (a_.threads == 1 || g_.edges == 0) return;
        std::vector<std::int64_t> level(g_.n);
        const std::int64_t levels = levels_of(g_, level.data());
        const bool shared = m_.shape == EdgeShape::matrix || m_.shape == EdgeShape::tables;
        const std::int64_t most = g_.edges * K_ * (shared ? K_ : 1) / (levels * a_.share);
        if (most < 2) return;
        threads_ = static_cast<int>(most < a_.threads ? most : a_.threads);
        of_node_.resize(g_.n);
        order_.resize(g_.n);
        first_.assign(levels + 1, 0);
        for (std::int64_t i = 0; i < g_.n; ++i) ++first_[level[i] + 1];
        for (std::int64_t l = 0; l < levels; ++l) first_[l + 1] += first_[l];
        std::vector<std::int64_t> at(first_.begin(), first_.end() - 1);
        for (std::int64_t i = 0; i < g_.n; ++i) order_[at[level[i]]++] = static_cast<std::int32_t>(i);
    }

    double pass(bool forward) {
        double bound = 0;
        if (threads_ > 1) by_levels(forward);
        for (std::int64_t step = 0; step < g_.n && !stopped_; ++step) {
            const std::int64_t i = forward ? step : g_.n - 1 - step;
            bound += threads_ > 1 ? of_node_[i] : visit(i, forward, rows_[0]);
            stopped_ = threads_ == 1 && a_.stop && a_.stop->asked(++asked_);
        }
        return bound;
    }

    void by_levels(bool forward) {
        const auto levels = static_cast<std::int64_t>(first_.size()) - 1;
        common::Barrier barrier;
        // Of even and of odd levels: a thread may read one while the first thread writes the other.
        int leave[2] = {0, 0};
        in_parallel(threads_, [&](Team team) {
            for (std::int64_t step = 0; step < levels; ++step) {
                const std::int64_t l = forward ? step : levels - 1 - step;
                const Range mine = share(first_[l + 1] - first_[l], team.thread, team.threads);
                for (std::int64_t k = first_[l] + mine.begin; k < first_[l] + mine.end; ++k)
                    of_node_[order_[k]] = visit(order_[k], forward, rows_[team.thread]);
                if (team.thread == 0 && a_.stop) leave[step & 1] = a_.stop->asked(64 * step);
                barrier.wait(team.threads);
                if (leave[step & 1]) return;
            }
        });
        stopped_ = leave[0] || leave[1];
    }

    // Sends the messages of a node and chooses its label. Returns what it adds to the bound.
    double visit(std::int64_t i, bool forward, Rows& rows) {
        const std::int64_t begin = g_.first[i], end = g_.first[i + 1];
        double* const h = rows.h.data();
        double* const costs = rows.costs.data();
        const double* const unary = m_.unary + i * K_;
        for (std::int64_t s = 0; s < K_; ++s) h[s] = costs[s] = unary[s];
        for (std::int64_t k = begin; k < end; ++k) {
            const double* const message = a_.messages + (g_.slot[k] >> 1) * K_;
            for (std::int64_t s = 0; s < K_; ++s) h[s] += message[s];
            const std::int64_t j = g_.neighbor[k];
            if ((j < i) == forward) given(g_.slot[k], found_[j], costs);
            else
                for (std::int64_t s = 0; s < K_; ++s) costs[s] += message[s];
        }
        std::int64_t best = 0;
        for (std::int64_t s = 1; s < K_; ++s)
            if (costs[s] < costs[best]) best = s;
        found_[i] = best;
        const double low = least(h, K_), share = share_[i];
        double bound = low;
        for (std::int64_t s = 0; s < K_; ++s) h[s] = (h[s] - low) * share;
        for (std::int64_t k = begin; k < end; ++k) {
            if ((g_.neighbor[k] < i) == forward) continue;
            double* const message = a_.messages + (g_.slot[k] >> 1) * K_;
            for (std::int64_t s = 0; s < K_; ++s) message[s] = h[s] - message[s];
            send(g_.slot[k], message, rows);
            const double lowest = least(message, K_);
            for (std::int64_t s = 0; s < K_; ++s) message[s] -= lowest;
            bound += lowest;
        }
        return bound;
    }

    // costs += T(., t) for the other node's label t.
    void given(std::int32_t slot, std::int64_t t, double* costs) const {
        if (m_.shape == EdgeShape::potts) {
            const double weight = m_.weight_of(slot >> 1);
            for (std::int64_t s = 0; s < K_; ++s) costs[s] += weight;
            costs[t] -= weight;
            return;
        }
        for (std::int64_t s = 0; s < K_; ++s) costs[s] += m_.cost_at(slot, s, t);
    }

    // Replaces a(s) by the message min_s a(s) + T(s, t).
    void send(std::int32_t slot, double* a, Rows& rows) const {
        const std::int64_t edge = slot >> 1;
        switch (m_.shape) {
        case EdgeShape::potts: return potts(m_.weight_of(edge), a);
        case EdgeShape::linear: return linear(m_.weight_of(edge), a);
        case EdgeShape::quadratic: return quadratic(m_.weight_of(edge), a, rows);
        case EdgeShape::matrix: return table(m_.matrix, m_.weight_of(edge), slot & 1, a, rows);
        case EdgeShape::tables: return table(m_.tables + edge * K_ * K_, 1.0, slot & 1, a, rows);
        }
    }

    void potts(double weight, double* a) const {
        if (weight >= 0) {
            const double most = least(a, K_) + weight;
            for (std::int64_t t = 0; t < K_; ++t) a[t] = lesser(a[t], most);
            return;
        }
        std::int64_t best = 0;  // all labels but this one are cheaper with it
        for (std::int64_t t = 1; t < K_; ++t)
            if (a[t] < a[best]) best = t;
        double second = kInfinity;
        for (std::int64_t t = 0; t < K_; ++t)
            if (t != best) second = lesser(second, a[t]);
        const double lowest = a[best];
        for (std::int64_t t = 0; t < K_; ++t) a[t] = lesser(a[t], lowest + weight);
        a[best] = lesser(lowest, second + weight);
    }

    void linear(double weight, double* a) const {
        const double most = least(a, K_) + weight * m_.truncation;
        for (std::int64_t t = 1; t < K_; ++t) a[t] = lesser(a[t], a[t - 1] + weight);
        for (std::int64_t t = K_ - 1; t > 0; --t) a[t - 1] = lesser(a[t - 1], a[t] + weight);
        if (most < kInfinity)
            for (std::int64_t t = 0; t < K_; ++t) a[t] = lesser(a[t], most);
    }

    // The lower envelope of the parabolas a(s) + weight (t - s)^2.
    void quadratic(double weight, double* a, Rows& rows) const {
        const double lowest = least(a, K_), most = lowest + weight * m_.truncation;
        if (weight == 0) {
            for (std::int64_t t = 0; t < K_; ++t) a[t] = lowest;
            return;
        }
        std::int64_t count = 0;
        for (std::int64_t s = 0; s < K_; ++s) {
            if (!(a[s] < kInfinity)) continue;
            double start = -kInfinity;
            while (count > 0) {
                const std::int64_t r = rows.peak[count - 1];
                start = 0.5 * ((a[s] - a[r]) / (weight * static_cast<double>(s - r)) + static_cast<double>(s + r));
                if (start > rows.from[count - 1]) break;
                --count;
            }
            if (count == 0) start = -kInfinity;
            rows.peak[count] = s;
            rows.from[count++] = start;
        }
        std::int64_t at = 0;
        for (std::int64_t t = 0; t < K_; ++t) {
            while (at + 1 < count && rows.from[at + 1] < static_cast<double>(t)) ++at;
            const double apart = static_cast<double>(t - rows.peak[at]);
            const double value = a[rows.peak[at]] + weight * apart * apart;
            rows.sent[t] = most < value ? most : value;
        }
        for (std::int64_t t = 0; t < K_; ++t) a[t] = rows.sent[t];
    }

    void table(const double* costs, double weight, bool second, double* a, Rows& rows) const {
        double* const sent = rows.sent.data();
        if (second) {  // a belongs to the columns
            for (std::int64_t t = 0; t < K_; ++t) {
                const double* const row = costs + t * K_;
                double lane[4] = {kInfinity, kInfinity, kInfinity, kInfinity};
                std::int64_t s = 0;
                for (; s + 4 <= K_; s += 4)
                    for (int l = 0; l < 4; ++l) lane[l] = lesser(lane[l], a[s + l] + weight * row[s + l]);
                for (; s < K_; ++s) lane[0] = lesser(lane[0], a[s] + weight * row[s]);
                sent[t] = lesser(lesser(lane[0], lane[1]), lesser(lane[2], lane[3]));
            }
        } else {
            for (std::int64_t t = 0; t < K_; ++t) sent[t] = kInfinity;
            for (std::int64_t s = 0; s < K_; ++s) {
                const double* const row = costs + s * K_;
                const double value = a[s];
                for (std::int64_t t = 0; t < K_; ++t) sent[t] = lesser(sent[t], value + weight * row[t]);
            }
        }
        for (std::int64_t t = 0; t < K_; ++t) a[t] = sent[t];
    }

    // A limit of the rounding errors of one pass. An error of one number changes the bound by at most as much.
    double rounding() const {
        const auto largest = [this](const double* row, std::int64_t count) {
            double size = 0;
            for (std::int64_t s = 0; s < count; ++s)
                if (std::fabs(row[s]) < kInfinity && std::fabs(row[s]) > size) size = std::fabs(row[s]);
            return size;
        };
        double sizes = 0;
        const double shared = m_.matrix ? largest(m_.matrix, K_ * K_) : 1;
        for (std::int64_t i = 0; i < g_.n; ++i) {
            double h = largest(m_.unary + i * K_, K_);
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                const std::int64_t edge = g_.slot[k] >> 1;
                h += largest(a_.messages + edge * K_, K_);
                if (g_.slot[k] & 1) continue;
                sizes += 8 * (m_.tables ? largest(m_.tables + edge * K_ * K_, K_ * K_)
                                        : shared * std::fabs(m_.weight_of(edge)));
            }
            sizes += 8 * static_cast<double>(g_.first[i + 1] - g_.first[i] + 1) * h;
        }
        return 1.2e-16 * sizes;
    }

    const TrwsArgs& a_;
    const GraphModel& m_;
    const Adjacency& g_;
    const std::int64_t K_;
    std::vector<double> share_;
    std::vector<std::int64_t> found_;
    std::vector<Rows> rows_;  // by thread
    int threads_ = 1;
    std::vector<std::int32_t> order_;  // the nodes by levels, of several threads; where each level begins
    std::vector<std::int64_t> first_;
    std::vector<double> of_node_;  // the part of the bound of each node
    std::int64_t asked_ = 0;
    bool stopped_ = false;
};

}  // namespace

TrwsResult trws(const TrwsArgs& args) { return Passes(args).run(); }

}  // namespace fwcrf
