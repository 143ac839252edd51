// The diagonal of a lattice kernel with up to kTabled corners.
#include "bind/functions.hpp"
#include "lattice/diagonal_rows.hpp"
#include "lattice/open_sets.hpp"
#include "runtime/scratch.hpp"

namespace fwcrf::FWCRF_ISA {

template <int C, typename T>
static void diagonal_rows(const DiagonalArgs<T>& a, const std::uint64_t* open, Range range) {
    using Rows = DiagonalRows<C, T>;
    constexpr int W = Rows::W;
    const typename Rows::ChainWeights chain(a.tap, a.identity);
    for (std::int64_t i = range.begin; i < range.end; i += W) {
        const Rows rows(a, open, i, range.end);
        Vec<T> slope[C] = {};
        const Vec<T> sum = a.slopes ? rows.template sums<true>(chain, slope) : rows.template sums<false>(chain, slope);
        store_some(a.out + i, sum, range.end - i);
        for (int l = 0; a.slopes && l < W && i + l < range.end; ++l)
            for (int k = 0; k < C; ++k) a.slopes[(i + l) * C + k] = lane(slope[k], l);
    }
}

template <typename T> void diagonal(const DiagonalArgs<T>& a) {
    thread_local Scratch scratch;
    OpenSets sets(a.vertices, a.corners, a.neighbors, scratch);
    in_parallel(a.threads, [&](Team team) {
        const std::uint64_t* const open = sets.find(team);
        const Range range = share(a.n, team.thread, team.threads);
        switch (a.corners) {
        case 2: diagonal_rows<2>(a, open, range); break;
        case 3: diagonal_rows<3>(a, open, range); break;
        case 4: diagonal_rows<4>(a, open, range); break;
        case 5: diagonal_rows<5>(a, open, range); break;
        default: diagonal_rows<6>(a, open, range); break;
        }
    });
    scratch.trim();
}

FWCRF_INSTANTIATE(diagonal)

}  // namespace fwcrf::FWCRF_ISA
