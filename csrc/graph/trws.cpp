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
#include "graph/trws.hpp"

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
        : a_(args), m_(args.model), g_(m_.graph), K_(m_.labels), h_(K_), costs_(K_), sent_(K_), found_(g_.n) {
        if (m_.shape == EdgeShape::quadratic) {
            peak_.resize(K_);
            from_.resize(K_ + 1);
        }
        share_.resize(g_.n);
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
    double pass(bool forward) {
        double bound = 0;
        for (std::int64_t step = 0; step < g_.n; ++step) {
            if (a_.stop && a_.stop->asked(++asked_)) {
                stopped_ = true;
                return bound;
            }
            const std::int64_t i = forward ? step : g_.n - 1 - step;
            const std::int64_t begin = g_.first[i], end = g_.first[i + 1];
            double* const h = h_.data();
            const double* const unary = m_.unary + i * K_;
            for (std::int64_t s = 0; s < K_; ++s) h[s] = costs_[s] = unary[s];
            for (std::int64_t k = begin; k < end; ++k) {
                const double* const message = a_.messages + (g_.slot[k] >> 1) * K_;
                for (std::int64_t s = 0; s < K_; ++s) h[s] += message[s];
                const std::int64_t j = g_.neighbor[k];
                if ((j < i) == forward) given(g_.slot[k], found_[j]);
                else
                    for (std::int64_t s = 0; s < K_; ++s) costs_[s] += message[s];
            }
            std::int64_t best = 0;
            for (std::int64_t s = 1; s < K_; ++s)
                if (costs_[s] < costs_[best]) best = s;
            found_[i] = best;
            const double low = least(h, K_), share = share_[i];
            bound += low;
            for (std::int64_t s = 0; s < K_; ++s) h[s] = (h[s] - low) * share;
            for (std::int64_t k = begin; k < end; ++k) {
                if ((g_.neighbor[k] < i) == forward) continue;
                double* const message = a_.messages + (g_.slot[k] >> 1) * K_;
                for (std::int64_t s = 0; s < K_; ++s) message[s] = h[s] - message[s];
                send(g_.slot[k], message);
                const double lowest = least(message, K_);
                for (std::int64_t s = 0; s < K_; ++s) message[s] -= lowest;
                bound += lowest;
            }
        }
        return bound;
    }

    // costs_ += T(., t) for the other node's label t.
    void given(std::int32_t slot, std::int64_t t) {
        if (m_.shape == EdgeShape::potts) {
            const double weight = m_.weight_of(slot >> 1);
            for (std::int64_t s = 0; s < K_; ++s) costs_[s] += weight;
            costs_[t] -= weight;
            return;
        }
        for (std::int64_t s = 0; s < K_; ++s) costs_[s] += m_.cost_at(slot, s, t);
    }

    // Replaces a(s) by the message min_s a(s) + T(s, t).
    void send(std::int32_t slot, double* a) {
        const std::int64_t edge = slot >> 1;
        switch (m_.shape) {
        case EdgeShape::potts: return potts(m_.weight_of(edge), a);
        case EdgeShape::linear: return linear(m_.weight_of(edge), a);
        case EdgeShape::quadratic: return quadratic(m_.weight_of(edge), a);
        case EdgeShape::matrix: return table(m_.matrix, m_.weight_of(edge), slot & 1, a);
        case EdgeShape::tables: return table(m_.tables + edge * K_ * K_, 1.0, slot & 1, a);
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
    void quadratic(double weight, double* a) {
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
                const std::int64_t r = peak_[count - 1];
                start = 0.5 * ((a[s] - a[r]) / (weight * static_cast<double>(s - r)) + static_cast<double>(s + r));
                if (start > from_[count - 1]) break;
                --count;
            }
            if (count == 0) start = -kInfinity;
            peak_[count] = s;
            from_[count++] = start;
        }
        std::int64_t at = 0;
        for (std::int64_t t = 0; t < K_; ++t) {
            while (at + 1 < count && from_[at + 1] < static_cast<double>(t)) ++at;
            const double apart = static_cast<double>(t - peak_[at]);
            const double value = a[peak_[at]] + weight * apart * apart;
            sent_[t] = most < value ? most : value;
        }
        for (std::int64_t t = 0; t < K_; ++t) a[t] = sent_[t];
    }

    void table(const double* costs, double weight, bool second, double* a) {
        double* const sent = sent_.data();
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
    std::vector<double> h_, costs_, sent_, share_;
    std::vector<std::int64_t> found_;
    std::vector<std::int64_t> peak_;  // of the parabolas in the envelope, and where each begins
    std::vector<double> from_;
    std::int64_t asked_ = 0;
    bool stopped_ = false;
};

}  // namespace

TrwsResult trws(const TrwsArgs& args) { return Passes(args).run(); }

}  // namespace fwcrf
