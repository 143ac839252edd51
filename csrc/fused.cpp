// P x + u of a dense model: every kernel, the compatibility and the unary in one answer per pixel.
//
// First all terms gather x: lattices by splat and blur, grids by filtering onto fewer rows. Then each
// block of pixels reads its share of every term while it is in the first-level cache, combines them over
// the labels, goes through the oracle of a solver's step, and is written once; on the way it is scattered for the
// next step.
#include "binary.hpp"
#include "fused_pass.hpp"
#include "panels.hpp"
#include "scratch.hpp"

namespace fwcrf::FWCRF_ISA {

template <typename T, int NV> static bool fused(const FusedArgs<T>& a, Scratch& scratch) {
    Terms<T, NV> terms(a, scratch);
    const std::int64_t each = a.slopes ? a.terms * a.channels * terms.kRow : 0;
    thread_local Scratch partial;
    double* const slopes = a.slopes ? partial.get<double>(each * a.threads) : nullptr;
    if (slopes) std::memset(slopes, 0, each * a.threads * sizeof(double));
    Barrier barrier;
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    {
        const Team team = this_team();
        double* const own = slopes ? slopes + team.thread * each : nullptr;
        Fused<T, NV> move(a, terms);
        terms.prepare(team);
        if (a.before) {
            move.begin(*a.before);
            move.answer(team, own, barrier);
        }
        for (int step = 0; step < a.steps; ++step) {
            if (!move.carry) bad = !terms.scatter(move.end(), team, barrier) || bad;
            move.begin(step);
            barrier.wait(team.threads);
            terms.filter(team);
            barrier.wait(team.threads);
            note(a, move.answer(team, own, barrier));
        }
    }
    for (std::int64_t r = 0; slopes && r < a.terms * a.channels; ++r)
        for (std::int64_t s = 0; s < a.channels; ++s) {
            double sum = 0;
            for (int t = 0; t < a.threads; ++t) sum += slopes[t * each + r * terms.kRow + s];
            a.slopes[r * a.channels + s] += sum;
        }
    return !bad;
}

template <typename T> static bool few_labels(const FusedArgs<T>& a) {
    thread_local Scratch scratch;
    constexpr int W = kLanes<T>;
    bool finite;
    switch ((a.channels + W - 1) / W) {
    case 1: finite = fused<T, 1>(a, scratch); break;
    case 2: finite = fused<T, 2>(a, scratch); break;
    case 3: finite = fused<T, 3>(a, scratch); break;
    default: finite = fused<T, 4>(a, scratch); break;
    }
    scratch.trim();
    return finite;
}

template <typename T> static bool binary(const FusedArgs<T>& a) {
    thread_local Scratch scratch;
    Binary<T> model(a, scratch);
    bool bad = false;
#ifdef _OPENMP
#pragma omp parallel num_threads(a.threads) reduction(|| : bad)
#endif
    bad = !model.run(this_team());
    scratch.trim();
    return !bad;
}

template <typename T> static bool fused(const FusedArgs<T>& a) {
    if (Binary<T>::takes(a)) return binary(a);
    return a.channels <= 4 * kLanes<T> ? few_labels(a) : Panels<T>{a}.run();
}

std::int64_t fused_channels(int bytes) { return 4 * kVectorBytes / bytes; }
bool fused_f32(const FusedArgs<float>& a) { return fused(a); }
bool fused_f64(const FusedArgs<double>& a) { return fused(a); }

}  // namespace fwcrf::FWCRF_ISA
