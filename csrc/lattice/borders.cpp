#include "lattice/borders.hpp"

#include "runtime/parallel.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace fwcrf {
namespace {

using Numbers = LatticeBorders::Vector<std::int32_t>;

// Fills `own` with the vertices outside `range` that a part touches, in ascending order, and `place` with their places.
void find_own(const std::int32_t* from, const std::int32_t* end, Range range, Numbers& place, Numbers& own) {
    for (const std::int32_t* v = from; v < end; ++v)
        if (*v < range.begin || *v >= range.end) place[*v] = 1;
    for (std::size_t v = 0; v < place.size(); ++v) {
        if (!place[v]) continue;
        place[v] = static_cast<std::int32_t>(own.size());
        own.push_back(static_cast<std::int32_t>(v));
    }
}

}  // namespace

// Lattices are numbered by the points that touch a vertex first, in the order of points. So a part's range begins
// behind the vertices of the parts before, and only vertices that these touch as well become own rows. In any other
// order there are more own rows.
void find_borders(std::int64_t rows, std::int64_t per_row, int corners, const std::int32_t* index,
                  std::int64_t vertices, int threads, LatticeBorders& borders) {
    const auto edge = [&](std::int64_t part) { return index + rows * part / threads * per_row * corners; };
    std::vector<std::int64_t>&first = borders.first, &begin = borders.begin;
    borders.index.clear();
    first.assign(threads + 1, 0);
    begin.assign(threads + 1, 0);
    for_each(threads, threads - 1, [&](std::int64_t part) {
        std::int32_t most = -1;
        for (const std::int32_t* v = edge(part); v < edge(part + 1); ++v) most = std::max(most, *v);
        first[part + 1] = most + 1;
    });
    first[threads] = vertices;
    for (int part = 1; part < threads; ++part) first[part] = std::max(first[part], first[part - 1]);
    std::vector<Numbers> place(threads), own(threads);
    Any empty;  // an exception must not leave a parallel region
    for_each(threads, threads, [&](std::int64_t part) {
        try {
            place[part].assign(vertices, 0);
            find_own(edge(part), edge(part + 1), {first[part], first[part + 1]}, place[part], own[part]);
        } catch (const std::bad_alloc&) {
            empty |= true;
        }
    });
    if (empty) throw std::bad_alloc();
    for (int part = 0; part < threads; ++part)
        begin[part + 1] = begin[part] + static_cast<std::int64_t>(own[part].size());
    const std::int64_t all = begin[threads];
    if (2 * all > vertices || vertices + all >= std::numeric_limits<std::int32_t>::max()) return;
    borders.index.resize(edge(threads) - index);
    borders.vertex.resize(all);
    for_each(threads, threads, [&](std::int64_t part) {
        std::copy(own[part].begin(), own[part].end(), borders.vertex.begin() + begin[part]);
        const auto behind = static_cast<std::int32_t>(vertices + 1 + begin[part]);
        std::int32_t* to = borders.index.data() + (edge(part) - index);
        for (const std::int32_t* v = edge(part); v < edge(part + 1); ++v) {
            const bool inside = *v >= first[part] && *v < first[part + 1];
            *to++ = inside ? *v : behind + place[part][*v];
        }
    });
    borders.found = {threads, first.data(), borders.index.data(), begin.data(), borders.vertex.data()};
}

}  // namespace fwcrf
