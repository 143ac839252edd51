#include "graph/levels.hpp"

namespace fwcrf {

std::int64_t levels_of(const Adjacency& graph, std::int64_t* level) {
    std::int64_t count = 0;
    for (std::int64_t i = 0; i < graph.n; ++i) {
        std::int64_t own = 0;
        for (std::int64_t k = graph.first[i]; k < graph.first[i + 1]; ++k) {
            const std::int64_t j = graph.neighbor[k];
            if (j < i && level[j] >= own) own = level[j] + 1;
        }
        level[i] = own;
        if (own >= count) count = own + 1;
    }
    return count;
}

}  // namespace fwcrf
