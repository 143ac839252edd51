// Steps with few labels: all labels of a pixel stay in registers, as a row of NV vectors.
#pragma once

#include "steps/step.hpp"

namespace fwcrf::FWCRF_ISA {

// All steps in one parallel region. False if x is not finite.
template <typename T, int NV> static bool run_rows(const StepArgs<T>& a, Scratch& scratch) {
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
        Step<T, NV> step(a, terms);
        terms.prepare(team);
        if (a.start) {
            step.begin(*a.start);
            step.run(team, own, barrier);
        }
        for (int k = 0; k < a.steps; ++k) {
            if (!step.carry) bad = !terms.scatter(step.end(), team, barrier) || bad;
            step.begin(k);
            barrier.wait(team.threads);
            terms.filter(team);
            barrier.wait(team.threads);
            raise_bound(a, step.run(team, own, barrier));
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

// Up to kMostLabels. See PixelRows for the numbers of vectors.
template <typename T> static bool few_labels(const StepArgs<T>& a) {
    thread_local Scratch scratch;
    constexpr std::int64_t W = kLanes<T>, most = kMostLabels<T> / W;
    const std::int64_t vectors = (a.channels + W - 1) / W;
    const auto run = [&] {
        if (vectors <= 1) return run_rows<T, 1>(a, scratch);
        if (vectors == 2) return run_rows<T, 2>(a, scratch);
        if (vectors == 3) return run_rows<T, 3>(a, scratch);
        if (vectors == 4 || most == 4) return run_rows<T, 4>(a, scratch);
        if constexpr (most > 4) {
            if (vectors <= 6) return run_rows<T, 6>(a, scratch);
            if (vectors <= 8 || most == 8) return run_rows<T, 8>(a, scratch);
        }
        if constexpr (most > 8) {
            if (vectors <= 12) return run_rows<T, 12>(a, scratch);
            return run_rows<T, 16>(a, scratch);
        }
        return false;
    };
    const bool finite = run();
    scratch.trim();
    return finite;
}

}  // namespace fwcrf::FWCRF_ISA
