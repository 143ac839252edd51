// Symmetric normalization: a lattice kernel with ones on its diagonal, divided by the square roots of its row sums on
// both sides.
//
// The first pass over the points scales the weights, computes the diagonal, and splats ones. The second pass slices the
// row sums and divides by them.
#include "bind/functions.hpp"
#include "lattice/diagonal_rows.hpp"
#include "lattice/open_sets.hpp"
#include "lattice/single.hpp"
#include "lattice/weight_rows.hpp"
#include "runtime/scratch.hpp"
#include "simd/math.hpp"

namespace fwcrf::FWCRF_ISA {

template <int C, typename T> struct Normalize {
    static constexpr int W = kLanes<T>;

    const NormalizeArgs<T>& a;
    SingleLattice<T> lattice{a.vertices, C, a.neighbors, static_cast<T>(a.tap), static_cast<T>(a.identity)};
    OpenSets open;

    Normalize(const NormalizeArgs<T>& a, Scratch& scratch, Scratch& words)
        : a(a), open(a.vertices, C, a.neighbors, words) {
        lattice.base = scratch.get<T>(lattice.room(a.threads));
    }

    // The smallest and the largest row sum of this thread's points.
    RowSums run(Team team) {
        const std::uint64_t* const sets = open.find(team);
        const Range points = share(a.batch * a.n, team.thread, team.threads);
        place(points, sets, lattice.cleared(team));
        lattice.blur(team);
        return divide(points);
    }

    // Writes weights to `out` and the diagonal to `minus`, and splats ones.
    void place(Range points, const std::uint64_t* sets, T* ones) const {
        // Whole vectors are read up to the end of this thread's rows: another thread may write the next row in place.
        const DiagonalArgs<T> given{points.end,  C,     a.index,    a.weight, a.order, a.vertices,
                                    a.neighbors, a.tap, a.identity, nullptr,  nullptr, 1};
        const typename DiagonalRows<C, T>::ChainWeights chain(a.tap, a.identity);
        for (std::int64_t i = points.begin; i < points.end; i += W) {
            DiagonalRows<C, T> rows(given, sets, i, points.end);
            Vec<T> squares{}, unused[C];
            for (int k = 0; k < C; ++k) squares += rows.weight[k] * rows.weight[k];
            const std::int64_t count = points.end - i < W ? points.end - i : W;
            const Vec<T> factor = factors(i, i + count) * exp<T>(static_cast<T>(a.exponent) * squares);
            WeightRows<C, T>{points.end, C}.scaled(a.weight, i, factor, a.out);
            store_some(a.minus + i, rows.template sums<false>(chain, unused) * factor * factor, count);
            lattice.template splat<C>(a.index, a.out, {i, i + count}, [](std::int64_t) { return T(1); }, ones);
        }
    }

    // The factor of each point's image; mostly all points are of one image.
    inline Vec<T> factors(std::int64_t begin, std::int64_t end) const {
        const std::int64_t image = begin / a.n;
        Vec<T> all = fill(a.factor[image]);
        for (std::int64_t i = (image + 1) * a.n; i < end; ++i) set_lane(all, i - begin, a.factor[i / a.n]);
        return all;
    }

    RowSums divide(Range points) const {
        Vec<T> least = fill(kInfinity<T>), most = -least;
        for (std::int64_t i = points.begin; i < points.end; i += W) {
            const std::int64_t count = points.end - i < W ? points.end - i : W;
            const Vec<T> own = load_some(a.minus + i, count);
            alignas(64) T sliced[W];
            for (std::int64_t l = 0; l < W; ++l)  // 0 past the end
                sliced[l] = l < count ? lattice.template slice<C>(a.index, a.out, i + l) : T(0);
            const Vec<T> sum = load(sliced) + (T(1) - own);
            least = min<T>(sum, least);
            most = max<T>(sum, most);
            const Vec<T> factor = T(1) / sqrt<T>(sum);
            WeightRows<C, T>{points.end, C}.scaled(a.out, i, factor, a.out);
            store_some(a.shift + i, (T(1) - own) * factor * factor, count);
            store_some(a.minus + i, -own * factor * factor, count);
        }
        RowSums found{lane(least, 0), lane(most, 0)};
        for (int l = 1; l < W; ++l) found.raise({lane(least, l), lane(most, l)});
        return found;
    }
};

template <int C, typename T> static RowSums normalize(const NormalizeArgs<T>& a, Scratch& scratch, Scratch& words) {
    Normalize<C, T> model(a, scratch, words);
    RowSums all{__builtin_inf(), -__builtin_inf()};
    in_parallel(a.threads, [&](Team team) {
        const RowSums found = model.run(team);
        const Alone alone;
        all.raise(found);
    });
    return all;
}

template <typename T> RowSums normalize(const NormalizeArgs<T>& a) {
    thread_local Scratch scratch, words;
    RowSums found;
    switch (a.corners) {
    case 2: found = normalize<2>(a, scratch, words); break;
    case 3: found = normalize<3>(a, scratch, words); break;
    case 4: found = normalize<4>(a, scratch, words); break;
    case 5: found = normalize<5>(a, scratch, words); break;
    default: found = normalize<6>(a, scratch, words); break;
    }
    scratch.trim();
    words.trim();
    return found;
}

FWCRF_INSTANTIATE(normalize)

}  // namespace fwcrf::FWCRF_ISA
