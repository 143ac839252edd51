#include "graph/sequential.hpp"

#include <cmath>
#include <vector>

namespace fwcrf {

bool sweep(const SweepArgs& args, Deadline& deadline) {
    const GraphModel& m = args.model;
    const Adjacency& g = m.graph;
    const std::int64_t K = m.labels;
    std::vector<double> h(K), along(K), against(K);
    for (std::int64_t k = 0; k < args.sweeps; ++k) {
        const double inverse = 1.0 / args.weights[k], step = args.steps[k];
        for (std::int64_t i = 0; i < g.n; ++i) {
            if (i % 4096 == 0 && deadline.over()) return false;
            for (std::int64_t s = 0; s < K; ++s) h[s] = m.unary[i * K + s];
            if (m.shape == EdgeShape::potts) {
                // Rows of x sum to 1: weight (1 - x_j(s)).
                for (std::int64_t e = g.first[i]; e < g.first[i + 1]; ++e) {
                    const double weight = m.weight_of(g.slot[e] >> 1);
                    const double* x = args.x + g.neighbor[e] * K;
                    for (std::int64_t s = 0; s < K; ++s) h[s] -= weight * x[s];
                }
            } else if (m.shape == EdgeShape::tables) {
                for (std::int64_t e = g.first[i]; e < g.first[i + 1]; ++e) {
                    const double* table = m.tables + (g.slot[e] >> 1) * K * K;
                    const double* x = args.x + g.neighbor[e] * K;
                    if (g.slot[e] & 1) {
                        for (std::int64_t t = 0; t < K; ++t)
                            if (x[t] != 0)
                                for (std::int64_t s = 0; s < K; ++s) h[s] += x[t] * table[t * K + s];
                    } else {
                        for (std::int64_t s = 0; s < K; ++s) {
                            double sum = 0;
                            for (std::int64_t t = 0; t < K; ++t) sum += table[s * K + t] * x[t];
                            h[s] += sum;
                        }
                    }
                }
            } else {
                for (std::int64_t s = 0; s < K; ++s) along[s] = against[s] = 0;
                for (std::int64_t e = g.first[i]; e < g.first[i + 1]; ++e) {
                    const double weight = m.weight_of(g.slot[e] >> 1);
                    const double* x = args.x + g.neighbor[e] * K;
                    double* const sum = (g.slot[e] & 1 ? against : along).data();
                    for (std::int64_t s = 0; s < K; ++s) sum[s] += weight * x[s];
                }
                for (std::int64_t t = 0; t < K; ++t)
                    for (std::int64_t s = 0; s < K; ++s)
                        h[s] += along[t] * m.matrix[s * K + t] + against[t] * m.matrix[t * K + s];
            }
            double low = kInfinity, total = 0;
            for (std::int64_t s = 0; s < K; ++s) low = h[s] < low ? h[s] : low;
            for (std::int64_t s = 0; s < K; ++s) total += h[s] = std::exp((low - h[s]) * inverse);
            double* const x = args.x + i * K;
            for (std::int64_t s = 0; s < K; ++s) x[s] += step * (h[s] / total - x[s]);
        }
    }
    return true;
}

}  // namespace fwcrf
