// Steps with few labels: all labels of a pixel stay in registers, as a row of NV vectors.
#pragma once

#include "steps/lazy.hpp"
#include "steps/vanishing.hpp"

namespace fwcrf::FWCRF_ISA {

// In place of lazy steps, for rows of more than 4 vectors. ManyLabels takes such models unless they have gradients,
// matrices or duals, for which no step is lazy.
template <typename T, int NV> struct AlwaysWhole {
    enum class Way { whole, lazy, done };
    struct State {};
    static constexpr bool possible = false;
    AlwaysWhole(const StepArgs<T>&, const Terms<T, NV>&, const Scratch&) {}
    void begin(State&, Team) const {}
    bool pays(int, const Step<T, NV>&, State&, Barrier&) const { return false; }
    MessageBound<T> watch(const Step<T, NV>&, State&, Barrier&, Stop&) const { return {}; }
    MessageBound<T> run(const Step<T, NV>&, State&, Barrier&, Stop&) const { return {}; }
    Way next(int, bool, State&) const { return Way::whole; }
    std::int64_t reads(Team) const { return 0; }
};
template <typename T, int NV> struct NeverVanishing {
    static constexpr bool possible = false;
    NeverVanishing(const StepArgs<T>&, const Terms<T, NV>&, const Scratch&) {}
    void run(const Step<T, NV>&, Team, double*, Barrier&, Stop&) const {}
};

// Tells whether steps that are never lazy still change x, by comparing some with the step before.
template <typename T> struct Changes {
    static constexpr int kApart = 5, W = kLanes<T>;

    const StepArgs<T>& a;
    const bool possible;
    T* before = nullptr;  // (n, channels)
    Any some[2]{};        // one for the current comparison, and one for the next

    Changes(const StepArgs<T>& a, bool lazy, Scratch& scratch)
        : a(a), possible(!lazy && a.tolerance > T(0) && a.steps > kApart && steps_alike(a)) {
        if (possible) before = scratch.get<T>(a.n * a.channels);
    }
    bool compares(int k) const { return possible && k % kApart == kApart - 1 && k + 1 < a.steps; }
    Any& of(int k) { return some[k / kApart % 2]; }

    // Before step k, for a thread's pixels.
    void keep(int k, const T* x, Range pixels) {
        if (!compares(k)) return;
        const std::int64_t first = pixels.begin * a.channels;
        std::memcpy(before + first, x + first, (pixels.end - pixels.begin) * a.channels * sizeof(T));
    }
    // After it.
    void look(int k, const T* x, Range pixels) {
        if (!compares(k)) return;
        const T near = a.tolerance * a.update[k].step;
        Mask<T> moved{};
        const std::int64_t end = pixels.end * a.channels;
        for (std::int64_t i = pixels.begin * a.channels; i < end; i += W) {
            const Vec<T> left = load_some(x + i, end - i) - load_some(before + i, end - i);
            moved |= ~((left <= near) & (left >= -near));
        }
        of(k) |= any(moved);
    }
    // True if step k - 1 was compared and has changed nothing; to be called after a barrier, by all threads.
    bool done(int k, Team team) {
        if (k == 0 || !compares(k - 1)) return false;
        if (team.thread == 0) of(k - 1 + kApart) = Any{};
        return !of(k - 1);
    }
};

// All steps in one parallel region. False if x is not finite.
template <typename T, int NV> static bool run_rows(const StepArgs<T>& a, Scratch& scratch) {
    Terms<T, NV> terms(a, scratch);
    // Every thread has slopes and rates of its own.
    const std::int64_t rates = a.rates ? 3 * (a.steps + 1) : 0;
    const std::int64_t each = (a.slopes ? a.terms * a.channels * terms.kRow : 0) + rates;
    thread_local Scratch partial, changes;
    double* const slopes = each ? partial.get<double>(each * a.threads) : nullptr;
    if (slopes) std::memset(slopes, 0, each * a.threads * sizeof(double));
    using Ways = std::conditional_t<(NV > 4), AlwaysWhole<T, NV>, Lazy<T, NV>>;
    using Way = typename Ways::Way;
    Ways lazy(a, terms, changes);
    std::conditional_t<(NV > 4), NeverVanishing<T, NV>, Vanishing<T, NV>> back(a, terms, changes);
    thread_local Scratch earlier;
    Changes<T> found(a, lazy.possible, earlier);
    Barrier barrier;
    Stop stop;
    Any bad;
    in_parallel(a.threads, [&](Team team) {
        double* const own = slopes ? slopes + team.thread * each + rates : nullptr;
        Step<T, NV> step(a, terms, lazy.possible);
        if (a.rates) step.rates = own - rates;
        double* const of_terms = a.slopes ? own : nullptr;
        terms.prepare(team);
        if (back.possible) return back.run(step, team, of_terms, barrier, stop);
        if (a.start) {
            step.begin(*a.start);
            step.run(team, of_terms, barrier, stop);
        }
        typename Ways::State state;
        if (lazy.possible) lazy.begin(state, team);
        const Range mine = terms.pixels(team);
        Way way = Way::whole;
        for (int k = 0; k < a.steps && way != Way::done; ++k) {
            const bool carried = step.carry;
            found.keep(k, step.end(), mine);
            step.begin(k);
            if (a.rates) step.rates += 3;
            if (team.thread == 0) stop.asked(0);
            if (way == Way::whole && !carried) bad |= !terms.scatter(step.x, team, barrier, k);
            barrier.wait(team.threads);
            if (stop.stopped()) break;  // for all threads alike: the next change comes after the next barrier
            if (found.done(k, team)) {
                for (int l = k; l < a.steps && a.reads && team.thread == 0; ++l) a.reads[l] = 0;
                break;
            }
            bool watched = false;
            if (way == Way::lazy) {
                raise_bound(a, lazy.run(step, state, barrier, stop));
            } else {
                terms.filter(team, k, of_terms);
                barrier.wait(team.threads);
                watched = lazy.pays(k, step, state, barrier);
                raise_bound(a,
                            watched ? lazy.watch(step, state, barrier, stop) : step.run(team, of_terms, barrier, stop));
            }
            found.look(k, step.out, mine);
            if (team.thread == 0 && a.reads && way == Way::lazy) a.reads[k] = lazy.reads(team);
            if (watched || way == Way::lazy) {
                way = lazy.next(k, watched, state);
                step.carry = false;
            }
            if (team.thread == 0 && a.reads && way == Way::done)
                for (int l = k + 1; l < a.steps; ++l) a.reads[l] = 0;
        }
    });
    changes.trim();
    earlier.trim();
    stop.check();
    const auto of_all_threads = [&](std::int64_t at) {
        double sum = 0;
        for (int t = 0; t < a.threads; ++t) sum += slopes[t * each + at];
        return sum;
    };
    for (std::int64_t i = 0; i < rates; ++i) a.rates[i] += of_all_threads(i);
    for (std::int64_t r = 0; a.slopes && r < a.terms * a.channels; ++r)
        for (std::int64_t s = 0; s < a.channels; ++s)
            a.slopes[r * a.channels + s] += of_all_threads(rates + r * terms.kRow + s);
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
