// A barrier between the steps of a parallel region.
#pragma once

#include "runtime/parallel.hpp"

namespace fwcrf::FWCRF_ISA {

// A step between two barriers takes microseconds; a thread that sleeps in OpenMP's barrier needs tens of microseconds
// to wake up. So: wait actively for a while, then give way to other threads.
struct Barrier {
    int arrived = 0, round = 0;

    static constexpr int kSpins = 4096;

    void wait(int threads) {
        if (threads == 1) return;
        const int now = __atomic_load_n(&round, __ATOMIC_RELAXED);
        if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == threads) {
            __atomic_store_n(&arrived, 0, __ATOMIC_RELAXED);
            __atomic_store_n(&round, now + 1, __ATOMIC_RELEASE);
            return;
        }
        std::int64_t since = 0;
        for (int spins = 0; __atomic_load_n(&round, __ATOMIC_ACQUIRE) == now;) {
            if (spins == kSpins) give_way(since);
            else ++spins;
        }
    }
};

}  // namespace fwcrf::FWCRF_ISA
