#include "lattice/borders.hpp"

#include "runtime/parallel.hpp"

#include <algorithm>
#include <limits>
#include <new>

namespace fwcrf {
namespace {

using Numbers = LatticeBorders::Vector<std::int32_t>;

// Corners below which one thread is faster than several, which have to wake up and to fetch one another's arrays.
constexpr std::int64_t kFew = 1 << 17;

// A part of the points: its corners, and the range of its vertices.
struct Part {
    const std::int32_t *from, *end;
    std::int64_t first, stop;
    Numbers place, own;

    bool outside(std::int32_t v) const { return v < first || v >= stop; }
    // The vertices outside the range, in ascending order, and the place of each.
    void find(std::int64_t vertices) {
        const auto count = std::count_if(from, end, [this](std::int32_t v) { return outside(v); });
        if (!count) return;
        place.assign(vertices, 0);
        for (const std::int32_t* v = from; v < end; ++v) place[*v] |= outside(*v);
        own.reserve(std::min<std::int64_t>(count, vertices));
        for (std::int64_t v = 0; v < vertices; ++v) {
            if (!place[v]) continue;
            place[v] = static_cast<std::int32_t>(own.size());
            own.push_back(static_cast<std::int32_t>(v));
        }
    }
    void renumber(std::int32_t behind, std::int32_t* to) const {
        if (own.empty()) std::copy(from, end, to);
        else
            for (const std::int32_t* v = from; v < end; ++v) *to++ = outside(*v) ? behind + place[*v] : *v;
    }
};

}  // namespace

// Lattices are numbered by the points that touch a vertex first, in the order of points. So a part's range begins
// behind the vertices of the parts before, and only vertices that these touch as well become own rows. In any other
// order there are more own rows.
void find_borders(std::int64_t rows, std::int64_t per_row, int corners, const std::int32_t* index,
                  std::int64_t vertices, int threads, LatticeBorders& borders) {
    std::vector<Part> parts(threads);
    const auto edge = [&](std::int64_t part) { return index + rows * part / threads * per_row * corners; };
    const int workers = rows * per_row * corners < kFew ? 1 : threads;
    for_each(workers, threads, [&](std::int64_t p) {
        parts[p] = {edge(p), edge(p + 1), 0, vertices, {}, {}};
        std::int32_t most = -1;
        for (const std::int32_t* v = parts[p].from; p + 1 < threads && v < parts[p].end; ++v) most = std::max(most, *v);
        if (p + 1 < threads) parts[p].stop = most + 1;
    });
    for (int p = 1; p < threads; ++p) {
        parts[p].first = parts[p - 1].stop;
        parts[p].stop = std::max(parts[p].stop, parts[p].first);
    }
    Any empty;  // an exception must not leave a parallel region
    for_each(workers, threads, [&](std::int64_t p) {
        try {
            parts[p].find(vertices);
        } catch (const std::bad_alloc&) {
            empty |= true;
        }
    });
    if (empty) throw std::bad_alloc();
    std::vector<std::int64_t>&first = borders.first, &begin = borders.begin;
    first = begin = {0};
    for (const Part& part : parts) {
        first.push_back(part.stop);
        begin.push_back(begin.back() + static_cast<std::int64_t>(part.own.size()));
    }
    const std::int64_t all = begin.back();
    borders.index.clear();
    if (2 * all > vertices || vertices + all >= std::numeric_limits<std::int32_t>::max()) return;
    borders.index.resize(edge(threads) - index);
    borders.vertex.resize(all);
    for_each(workers, threads, [&](std::int64_t p) {
        const Part& part = parts[p];
        std::copy(part.own.begin(), part.own.end(), borders.vertex.begin() + begin[p]);
        part.renumber(static_cast<std::int32_t>(vertices + 1 + begin[p]), borders.index.data() + (part.from - index));
    });
    borders.found = {threads, first.data(), borders.index.data(), begin.data(), borders.vertex.data()};
}

}  // namespace fwcrf
