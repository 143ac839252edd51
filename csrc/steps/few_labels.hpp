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
    Stop stop;
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
            step.run(team, own, barrier, stop);
        }
        for (int k = 0; k < a.steps; ++k) {
            if (!step.carry) bad = !terms.scatter(step.end(), team, barrier) || bad;
            step.begin(k);
            if (team.thread == 0) stop.asked(0);
            barrier.wait(team.threads);
            if (stop.stopped()) break;  // for all threads alike: the next change comes after the next barrier
            terms.filter(team);
            barrier.wait(team.threads);
            raise_bound(a, step.run(team, own, barrier, stop));
        }
    }
    stop.check();
    for (std::int64_t r = 0; slopes && r < a.terms * a.channels; ++r)
        for (std::int64_t s = 0; s < a.channels; ++s) {
            double sum = 0;
            for (int t = 0; t < a.threads; ++t) sum += slopes[t * each + r * terms.kRow + s];
            a.slopes[r * a.channels + s] += sum;
        }
    return !bad;
}

// Rows of more than 4 vectors, compiled in long_rows.cpp: with all lengths in one file the compiler inlines less, and
// short rows take 2 to 3 % longer.
template <typename T> bool run_long_rows(const StepArgs<T>& a, Scratch& scratch);

// Up to kMostLabels. See PixelRows for the numbers of vectors.
template <typename T> static bool few_labels(const StepArgs<T>& a) {
    thread_local Scratch scratch;
    constexpr std::int64_t W = kLanes<T>;
    const auto run = [&] {
        switch ((a.channels + W - 1) / W) {
        case 0:
        case 1: return run_rows<T, 1>(a, scratch);
        case 2: return run_rows<T, 2>(a, scratch);
        case 3: return run_rows<T, 3>(a, scratch);
        case 4: return run_rows<T, 4>(a, scratch);
        default: return run_long_rows(a, scratch);
        }
    };
    const bool finite = run();
    scratch.trim();
    return finite;
}

}  // namespace fwcrf::FWCRF_ISA
