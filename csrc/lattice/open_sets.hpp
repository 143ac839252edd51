// For each vertex of a lattice, the sets of axes for which a chain of steps, in ascending order of the axes, stays in
// the lattice.
#pragma once

#include "lattice/arguments.hpp"
#include "runtime/barrier.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

// (vertices, 2) words: bit s is set if the chain of set s is open, going down or up. Computed by the threads of a
// region together.
struct OpenSets {
    std::int64_t vertices;
    int corners;                    // at most kTabled
    const std::int32_t* neighbors;  // (corners, vertices, 2)
    std::uint64_t* words[2];        // source and target, in turn
    Barrier barrier{};

    OpenSets(std::int64_t vertices, int corners, const std::int32_t* neighbors, Scratch& scratch)
        : vertices(vertices), corners(corners), neighbors(neighbors) {
        words[0] = scratch.get<std::uint64_t>(4 * (vertices + 1));
        words[1] = words[0] + 2 * (vertices + 1);
    }

    // Axis by axis from the last: a set that begins with axis k is open if the rest of the set is open one step along
    // k.
    const std::uint64_t* find(Team team) {
        const Range mine = share(vertices, team.thread, team.threads);
        for (std::int64_t v = 2 * mine.begin; v < 2 * mine.end; ++v) words[0][v] = 1;
        for (int side = 0; side < 2 && team.thread == 0; ++side)  // the absent neighbour
            words[side][2 * vertices] = words[side][2 * vertices + 1] = 0;
        int now = 0;
        for (int k = corners - 1; k >= 0; --k, now ^= 1) {
            barrier.wait(team.threads);
            const std::uint64_t* const from = words[now];
            const std::int32_t* const pairs = neighbors + k * vertices * 2;
            for (std::int64_t v = mine.begin; v < mine.end; ++v)
                for (int way = 0; way < 2; ++way)
                    words[now ^ 1][2 * v + way] = from[2 * v + way] | from[2 * std::int64_t{pairs[2 * v + way]} + way]
                                                                          << (1 << k);
        }
        barrier.wait(team.threads);
        return words[now];
    }
};

}  // namespace fwcrf::FWCRF_ISA
