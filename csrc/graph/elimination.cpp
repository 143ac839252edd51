// Elimination of a node v replaces all terms that contain v by one table over the remaining nodes in them, its scope:
//     table(scope) = min over labels of v of unary + edges of v + tables of nodes that were eliminated before.
// A table is over the nodes of its scope in the order of their elimination, the first one outermost. It is added to the
// step of that first node, where a label of the node selects a contiguous part. Labels are read off in reverse order.
#include "graph/elimination.hpp"

#include <algorithm>

namespace fwcrf {

Elimination::Elimination(const GraphModel& model) : m_(model), g_(model.graph), local_(model.graph.n, -1) {}

bool Elimination::plan(const std::vector<std::int32_t>& nodes, double most, double total, bool drop) {
    constexpr std::uint8_t kAlive = 0, kEliminated = 1, kDropped = 2;
    for (const std::int32_t i : nodes_) local_[i] = -1;
    nodes_ = nodes;
    const auto count = static_cast<std::int32_t>(nodes.size());
    for (std::int32_t p = 0; p < count; ++p) local_[nodes[p]] = p;
    if (neighbours_.size() < nodes.size()) neighbours_.resize(nodes.size());
    gone_.assign(count, kAlive);
    rank_.assign(count, -1);
    steps_.clear();
    scope_.clear();
    allowed_.clear();
    first_allowed_.assign(1, 0);
    std::vector<std::int64_t> degree(count);
    std::vector<std::vector<std::int32_t>> waiting(1);  // by degree; entries may be out of date
    const auto wait = [&](std::int32_t p) {
        if (static_cast<std::int64_t>(waiting.size()) <= degree[p]) waiting.resize(degree[p] + 1);
        waiting[degree[p]].push_back(p);
    };
    for (std::int32_t p = 0; p < count; ++p) {
        const std::int64_t i = nodes[p];
        for (std::int64_t s = 0; s < m_.labels; ++s)
            if (m_.unary[i * m_.labels + s] < kInfinity) allowed_.push_back(s);
        first_allowed_.push_back(static_cast<std::int64_t>(allowed_.size()));
        std::vector<std::int32_t>& near = neighbours_[p];
        near.clear();
        for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k)
            if (local_[g_.neighbor[k]] >= 0) near.push_back(local_[g_.neighbor[k]]);
        std::sort(near.begin(), near.end());
        near.erase(std::unique(near.begin(), near.end()), near.end());
        degree[p] = static_cast<std::int64_t>(near.size());
    }
    for (std::int32_t p = count; p-- > 0;) wait(p);
    const auto domain = [&](std::int32_t p) { return static_cast<double>(first_allowed_[p + 1] - first_allowed_[p]); };
    double work = 0;
    std::vector<std::int32_t> scope, merged;
    for (std::size_t level = 0; level < waiting.size();) {
        if (waiting[level].empty()) {
            ++level;
            continue;
        }
        const std::int32_t v = waiting[level].back();
        waiting[level].pop_back();
        if (gone_[v] != kAlive || degree[v] != static_cast<std::int64_t>(level)) continue;
        scope.clear();
        double size = 1;
        for (const std::int32_t u : neighbours_[v])
            if (gone_[u] == kAlive) {
                scope.push_back(u);
                size *= domain(u);
            }
        if (size > most || work + size * domain(v) > total) {
            if (!drop) return false;
            std::int32_t widest = v;
            for (const std::int32_t u : scope)
                if (degree[u] > degree[widest]) widest = u;
            gone_[widest] = kDropped;
            for (const std::int32_t u : neighbours_[widest])
                if (gone_[u] == kAlive) {
                    --degree[u];
                    wait(u);
                    level = std::min(level, static_cast<std::size_t>(degree[u]));
                }
            if (widest != v) {
                wait(v);
                level = std::min(level, static_cast<std::size_t>(degree[v]));
            }
            continue;
        }
        work += size * domain(v);
        gone_[v] = kEliminated;
        rank_[v] = static_cast<std::int32_t>(steps_.size());
        const auto begin = static_cast<std::int64_t>(scope_.size());
        scope_.insert(scope_.end(), scope.begin(), scope.end());
        steps_.push_back({v, begin, static_cast<std::int64_t>(scope_.size()), 0, 0, -1});
        for (const std::int32_t u : scope) {
            if (scope.size() == 1) {
                --degree[u];
            } else {
                merged.clear();
                const std::vector<std::int32_t>& near = neighbours_[u];
                std::size_t a = 0, b = 0;
                while (a < near.size() || b < scope.size()) {
                    const std::int32_t from_near = a < near.size() ? near[a] : count,
                                       from_scope = b < scope.size() ? scope[b] : count;
                    const std::int32_t least = std::min(from_near, from_scope);
                    a += from_near == least;
                    b += from_scope == least;
                    if (least != u && gone_[least] == kAlive) merged.push_back(least);
                }
                neighbours_[u].swap(merged);
                degree[u] = static_cast<std::int64_t>(neighbours_[u].size());
            }
            wait(u);
            level = std::min(level, static_cast<std::size_t>(degree[u]));
        }
    }
    children_.resize(std::max(children_.size(), steps_.size()));
    for (std::size_t r = 0; r < steps_.size(); ++r) children_[r].clear();
    total_ = 0;
    for (std::size_t r = 0; r < steps_.size(); ++r) {
        Step& step = steps_[r];
        const auto begin = scope_.begin() + step.scope;
        const auto end = std::remove_if(begin, scope_.begin() + step.scope_end,
                                        [&](std::int32_t u) { return gone_[u] == kDropped; });
        std::sort(begin, end, [&](std::int32_t a, std::int32_t b) { return rank_[a] < rank_[b]; });
        step.scope_end = end - scope_.begin();
        step.size = 1;
        for (auto u = begin; u != end; ++u) step.size *= first_allowed_[*u + 1] - first_allowed_[*u];
        step.table = total_;
        total_ += step.size;
        if (begin != end) {
            step.parent = rank_[*begin];
            children_[step.parent].push_back(static_cast<std::int32_t>(r));
        }
    }
    return true;
}

// sums += the part of the child's table that belongs to one label of the step's node.
void Elimination::add_table(const Step& step, const Step& child, std::int64_t child_label, double* sums) const {
    struct Run {  // neighbouring nodes of the step's scope, all in the child's scope or none
        std::int64_t length, stride;
    };
    Run runs[64];
    int count = 0;
    std::int64_t below = 1, c = child.scope_end - 1;
    for (std::int64_t s = step.scope_end - 1; s >= step.scope; --s) {
        const std::int32_t u = scope_[s];
        const std::int64_t domain = first_allowed_[u + 1] - first_allowed_[u];
        const bool in = c > child.scope && scope_[c] == u;
        if (domain > 1) {
            if (count > 0 && (runs[count - 1].stride != 0) == in) runs[count - 1].length *= domain;
            else runs[count++] = {domain, in ? below : 0};
        }
        if (in) {
            below *= domain;
            --c;
        }
    }
    const double* from = tables_.data() + child.table + child_label * below;
    if (count == 0) {
        sums[0] += from[0];
        return;
    }
    std::int64_t at[64] = {};
    const std::int64_t inner = runs[0].length;
    for (;;) {
        if (runs[0].stride)
            for (std::int64_t k = 0; k < inner; ++k) sums[k] += from[k];
        else
            for (std::int64_t k = 0; k < inner; ++k) sums[k] += from[0];
        sums += inner;
        int r = 1;
        for (; r < count; ++r) {
            from += runs[r].stride;
            if (++at[r] < runs[r].length) break;
            from -= runs[r].stride * runs[r].length;
            at[r] = 0;
        }
        if (r == count) return;
    }
}

double Elimination::run(std::int64_t* labels, Deadline& deadline) {
    tables_.resize(total_);
    double value = 0;
    // Costs of the labels of a step's node that depend on nothing else.
    outside_.clear();
    first_outside_.assign(1, 0);
    for (const Step& step : steps_) {
        if (deadline.over()) return __builtin_nan("");
        const std::int32_t v = step.node;
        const std::int64_t i = nodes_[v];
        double* const table = tables_.data() + step.table;
        sums_.resize(std::max(sums_.size(), static_cast<std::size_t>(step.size)));
        for (std::int64_t a = first_allowed_[v]; a < first_allowed_[v + 1]; ++a) {
            const std::int64_t s = allowed_[a];
            double alone = m_.unary[i * m_.labels + s];
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                const std::int32_t u = local_[g_.neighbor[k]];
                if (u < 0 || rank_[u] < 0) alone += m_.cost_at(g_.slot[k], s, labels[g_.neighbor[k]]);
            }
            outside_.push_back(alone);
            const bool first = a == first_allowed_[v];
            double* const sums = first ? table : sums_.data();
            for (std::int64_t k = 0; k < step.size; ++k) sums[k] = alone;
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                const std::int32_t u = local_[g_.neighbor[k]];
                if (u < 0 || rank_[u] < rank_[v]) continue;
                std::int64_t inner = 1;
                for (std::int64_t q = step.scope_end - 1; scope_[q] != u; --q)
                    inner *= first_allowed_[scope_[q] + 1] - first_allowed_[scope_[q]];
                for (std::int64_t at = 0; at < step.size;)
                    for (std::int64_t b = first_allowed_[u]; b < first_allowed_[u + 1]; ++b) {
                        const double cost = m_.cost_at(g_.slot[k], s, allowed_[b]);
                        for (std::int64_t end = at + inner; at < end; ++at) sums[at] += cost;
                    }
            }
            for (const std::int32_t child : children_[rank_[v]])
                add_table(step, steps_[child], a - first_allowed_[v], sums);
            if (!first)
                for (std::int64_t k = 0; k < step.size; ++k) table[k] = sums[k] < table[k] ? sums[k] : table[k];
        }
        first_outside_.push_back(static_cast<std::int64_t>(outside_.size()));
        if (step.parent < 0) value += table[0];
    }
    std::vector<std::int64_t> chosen(nodes_.size());
    for (std::size_t r = steps_.size(); r-- > 0;) {
        const std::int32_t v = steps_[r].node;
        const std::int64_t i = nodes_[v], count = first_allowed_[v + 1] - first_allowed_[v];
        double lowest = kInfinity;
        for (std::int64_t a = 0; a < count; ++a) {
            const std::int64_t s = allowed_[first_allowed_[v] + a];
            double cost = outside_[first_outside_[r] + a];
            for (std::int64_t k = g_.first[i]; k < g_.first[i + 1]; ++k) {
                const std::int32_t u = local_[g_.neighbor[k]];
                if (u >= 0 && rank_[u] > rank_[v]) cost += m_.cost_at(g_.slot[k], s, labels[g_.neighbor[k]]);
            }
            chosen[v] = a;
            for (const std::int32_t child : children_[r]) cost += from_child(steps_[child], chosen.data());
            if (cost < lowest) {
                lowest = cost;
                labels[i] = s;
            }
        }
        for (std::int64_t a = 0; a < count; ++a)
            if (allowed_[first_allowed_[v] + a] == labels[i]) chosen[v] = a;
    }
    return value;
}

// The entry of a child's table for chosen labels, given by their places among the allowed labels.
double Elimination::from_child(const Step& child, const std::int64_t* chosen) const {
    std::int64_t at = 0;
    for (std::int64_t q = child.scope; q < child.scope_end; ++q) {
        const std::int32_t u = scope_[q];
        at = at * (first_allowed_[u + 1] - first_allowed_[u]) + chosen[u];
    }
    return tables_[child.table + at];
}

}  // namespace fwcrf
