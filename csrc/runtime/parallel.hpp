// Parallel regions, and the shares of their threads: by OpenMP, or by threads of our own where the compiler has none.
//
// An exception must not leave a region. A region inside a region of several threads has one thread.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace fwcrf {

struct Team {
    int thread, threads;
};

struct Range {
    std::int64_t begin, end;
};
static inline Range share(std::int64_t n, int part, int parts) { return {n * part / parts, n * (part + 1) / parts}; }
// The shares of one or more of `parts` parts: the system may give fewer threads than were asked for.
static inline Range share(std::int64_t n, Team team, int parts) {
    const Range mine = share(parts, team.thread, team.threads);
    return {n * mine.begin / parts, n * mine.end / parts};
}

// Defined in pool.cpp, which is compiled without instructions of a particular set.

// Calls act(closure, team) on `threads` threads, or on fewer if the system gives no more.
void run_on_threads(int threads, void (*act)(const void* closure, Team team), const void* closure);
// The threads of a region by default, and a change of it.
int max_threads();
void set_threads(int threads);
// Lets other threads run: at first the caller yields, after a millisecond it sleeps. `since` is 0 before the first
// call.
void give_way(std::int64_t& since) noexcept;

// While one exists, no other thread has one: for the few instructions that join the results of threads.
class Alone {
  public:
    Alone();
    ~Alone();
    Alone(const Alone&) = delete;
};

// Calls act(team) on `threads` threads, or on fewer if the system gives no more.
template <typename F> static inline void in_parallel(int threads, const F& act) {
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
    act(Team{omp_get_thread_num(), omp_get_num_threads()});
#else
    run_on_threads(threads, [](const void* closure, Team team) { (*static_cast<const F*>(closure))(team); }, &act);
#endif
}

// Calls act(i) for every i below n. Each thread takes a contiguous range.
template <typename F> static inline void for_each(int threads, std::int64_t n, const F& act) {
    in_parallel(threads, [&](Team team) {
        const Range mine = share(n, team.thread, team.threads);
        for (std::int64_t i = mine.begin; i < mine.end; ++i) act(i);
    });
}
// The same for a few calls of very different length: each thread takes the next i.
template <typename F> static inline void for_next(int threads, std::int64_t n, const F& act) {
    std::int64_t next = 0;
    in_parallel(threads, [&](Team) {
        for (std::int64_t i; (i = __atomic_fetch_add(&next, 1, __ATOMIC_RELAXED)) < n;) act(i);
    });
}

// Whether something was true on any thread. Always inlined, because files for different instruction sets use it.
class Any {
  public:
    __attribute__((always_inline)) void operator|=(bool seen) {
        if (seen) __atomic_store_n(&seen_, true, __ATOMIC_RELAXED);
    }
    __attribute__((always_inline)) explicit operator bool() const { return __atomic_load_n(&seen_, __ATOMIC_RELAXED); }

  private:
    bool seen_ = false;
};

}  // namespace fwcrf
