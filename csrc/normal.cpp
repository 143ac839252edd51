// A lattice with ones on its diagonal, divided by the square roots of its row sums on both sides.
//
// One pass over the points weights them by their place, finds what they have on the diagonal, and splats ones; a second one
// slices the row sums and divides by them.
#include "diagonal_rows.hpp"
#include "kernels.hpp"
#include "open_sets.hpp"
#include "scratch.hpp"
#include "simplex_rows.hpp"
#include "single_lattice.hpp"
#include "weight_rows.hpp"

namespace fwcrf::FWCRF_ISA {

template <int C, typename T> struct Normal {
    static constexpr int W = kLanes<T>;

    const NormalArgs<T>& a;
    SingleLattice<T> lattice{a.vertices, C, a.neighbors, static_cast<T>(a.tap), static_cast<T>(a.identity)};
    OpenSets open;

    Normal(const NormalArgs<T>& a, Scratch& scratch, Scratch& words) : a(a), open(a.vertices, C, a.neighbors, words) {
        lattice.base = scratch.get<T>(lattice.room(a.threads));
    }

    // The least and the largest row sum that this thread has found.
    Sums run(Team team) {
        const std::uint64_t* const sets = open.find(team);
        const Range points = share(a.batch * a.n, team.thread, team.threads);
        place(points, sets, lattice.cleared(team));
        lattice.blur(team);
        return divide(points);
    }

    // Weights to `out`, what is on the diagonal to `minus`.
    void place(Range points, const std::uint64_t* sets, T* ones) const {
        const DiagonalArgs<T> given{a.batch * a.n, C, a.index, a.weight, a.order, a.vertices, a.neighbors, a.tap, a.identity,
                                    nullptr, nullptr, 1};
        const typename DiagonalRows<C, T>::Taps taps(a.tap, a.identity);
        for (std::int64_t i = points.begin; i < points.end; i += W) {
            DiagonalRows<C, T> rows(given, sets, i, points.end);
            Vec<T> squares{}, unused[C];
            for (int k = 0; k < C; ++k) squares += rows.weight[k] * rows.weight[k];
            const std::int64_t count = points.end - i < W ? points.end - i : W;
            const Vec<T> factor = factors(i, i + count) * exp<T>(static_cast<T>(a.exponent) * squares);
            WeightRows<C, T>{points.end, C}.scaled(a.weight, i, factor, a.out);
            store_some(a.minus + i, rows.template sums<false>(taps, unused) * factor * factor, count);
            lattice.template splat<C>(a.index, a.out, {i, i + count}, [](std::int64_t) { return T(1); }, ones);
        }
    }

    // Of the images that points are of, mostly of one.
    inline Vec<T> factors(std::int64_t begin, std::int64_t end) const {
        const std::int64_t image = begin / a.n;
        Vec<T> all = fill(a.factor[image]);
        for (std::int64_t i = (image + 1) * a.n; i < end; ++i) all[i - begin] = a.factor[i / a.n];
        return all;
    }

    Sums divide(Range points) const {
        Vec<T> least = fill(static_cast<T>(__builtin_inf())), most = -least;
        for (std::int64_t i = points.begin; i < points.end; i += W) {
            const std::int64_t count = points.end - i < W ? points.end - i : W;
            const Vec<T> own = load_some(a.minus + i, count);
            alignas(64) T others[W];
            for (std::int64_t l = 0; l < W; ++l)  // past the end as if there were no others
                others[l] = l < count ? lattice.template slice<C>(a.index, a.out, i + l) : T(0);
            const Vec<T> sum = load(others) + (T(1) - own);
            least = smaller<T>(sum, least);
            most = larger<T>(sum, most);
            const Vec<T> factor = T(1) / root<T>(sum);
            WeightRows<C, T>{points.end, C}.scaled(a.out, i, factor, a.out);
            store_some(a.shift + i, (T(1) - own) * factor * factor, count);
            store_some(a.minus + i, -own * factor * factor, count);
        }
        Sums found{least[0], most[0]};
        for (int l = 1; l < W; ++l) found.raise({least[l], most[l]});
        return found;
    }
};

template <int C, typename T> static Sums normal(const NormalArgs<T>& a, Scratch& scratch, Scratch& words) {
    Normal<C, T> model(a, scratch, words);
    Sums all{__builtin_inf(), -__builtin_inf()};
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads)
#endif
    {
        const Sums found = model.run(this_team());
#ifdef _OPENMP
#pragma omp critical
#endif
        all.raise(found);
    }
    return all;
}

template <typename T> static Sums normal(const NormalArgs<T>& a) {
    thread_local Scratch scratch, words;
    Sums found;
    switch (a.corners) {
    case 2: found = normal<2>(a, scratch, words); break;
    case 3: found = normal<3>(a, scratch, words); break;
    case 4: found = normal<4>(a, scratch, words); break;
    case 5: found = normal<5>(a, scratch, words); break;
    default: found = normal<6>(a, scratch, words); break;
    }
    scratch.trim();
    words.trim();
    return found;
}

Sums normal_f32(const NormalArgs<float>& a) { return normal(a); }
Sums normal_f64(const NormalArgs<double>& a) { return normal(a); }

}  // namespace fwcrf::FWCRF_ISA
