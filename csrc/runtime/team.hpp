// The threads of a parallel region, their shares of the work, and a barrier between their steps.
#pragma once

#include <sched.h>

#include <cstdint>
#ifdef _OPENMP
#include <omp.h>
#endif

namespace fwcrf::FWCRF_ISA {

struct Range {
    std::int64_t begin, end;
};
static inline Range share(std::int64_t n, int part, int parts) { return {n * part / parts, n * (part + 1) / parts}; }

struct Team {
    int thread, threads;
};
static inline Team this_team() {
#ifdef _OPENMP
    return {omp_get_thread_num(), omp_get_num_threads()};
#else
    return {0, 1};
#endif
}

// A step between two barriers takes microseconds; a thread that sleeps in OpenMP's barrier needs tens of microseconds
// to wake up. So: wait actively for a while, then yield.
struct Barrier {
    int arrived = 0, round = 0;

    void wait(int threads) {
        if (threads == 1) return;
        const int now = __atomic_load_n(&round, __ATOMIC_RELAXED);
        if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == threads) {
            __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&round, now + 1, __ATOMIC_RELEASE);
            return;
        }
        for (int spins = 0; __atomic_load_n(&round, __ATOMIC_ACQUIRE) == now; ++spins)
            if (spins >= 4096) sched_yield();
    }
};

}  // namespace fwcrf::FWCRF_ISA
