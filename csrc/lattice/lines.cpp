#include "lattice/lines.hpp"

#include "runtime/parallel.hpp"

#include <new>

namespace fwcrf {
namespace {

// The largest distance of two neighbours, or one of more than kStreamed, beyond which no lattice is blurred in a
// stream.
std::int64_t reach(std::int64_t vertices, const std::int32_t* pairs) {
    std::int64_t most = 0;
    for (std::int64_t v = 0; v < vertices && most <= kStreamed; ++v)
        for (int way = 0; way < 2; ++way) {
            const std::int64_t other = pairs[2 * v + way], apart = other < v ? v - other : other - v;
            if (other < vertices && apart > most) most = apart;
        }
    return most;
}

// The rows that a stream keeps for an axis after the first.
std::int64_t ring_rows(std::int64_t reach) {
    std::int64_t rows = kTile;
    while (rows < kTile + 2 * reach) rows *= 2;
    return rows;
}

// The lines of an axis, from the lower end of each line upwards.
std::vector<std::int32_t> line_by_line(std::int64_t vertices, const std::int32_t* pairs, std::int64_t& count) {
    std::vector<std::int32_t> members(vertices + kAhead);
    std::int32_t *to = members.data(), *const end = to + vertices;  // not beyond, whatever the table holds
    for (std::int64_t v = 0; v < vertices && to < end; ++v) {
        if (pairs[2 * v] < vertices || pairs[2 * v + 1] >= vertices) continue;
        for (std::int64_t at = v; at < vertices && to < end; at = pairs[2 * at + 1])
            *to++ = static_cast<std::int32_t>(at);
        to[-1] = ~to[-1];
    }
    count = to - members.data();
    return members;
}

}  // namespace

LatticeLines lattice_lines(int corners, std::int64_t vertices, const std::int32_t* neighbors, int threads) {
    LatticeLines found;
    found.axes.resize(corners);
    found.members.resize(corners);
    // A lattice that stays in the second-level cache anyway is faster line by line.
    if (vertices > 4 * kStreamed) {
        for_each(threads, corners, [&](std::int64_t axis) {
            found.axes[axis] = {nullptr, 0, reach(vertices, neighbors + axis * vertices * 2)};
        });
        std::int64_t rows = found.axes[0].reach > kStreamed ? kStreamed + 1 : 0;
        for (int axis = 1; axis < corners; ++axis) rows += ring_rows(found.axes[axis].reach);
        if (rows <= kStreamed) return found;
    }
    Any empty;  // an exception must not leave a parallel region
    for_each(threads, corners, [&](std::int64_t axis) {
        try {
            Lines& lines = found.axes[axis];
            found.members[axis] = line_by_line(vertices, neighbors + axis * vertices * 2, lines.count);
            lines.member = found.members[axis].data();
        } catch (const std::bad_alloc&) {
            empty |= true;
        }
    });
    if (empty) throw std::bad_alloc();
    return found;
}

}  // namespace fwcrf
