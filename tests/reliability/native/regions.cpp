// Parallel regions: every index once, regions of several callers at a time, inside each other, and after a fork.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

#include "runtime/parallel.hpp"

#if !defined(_WIN32) && !defined(_OPENMP)
#include <sys/wait.h>
#include <unistd.h>
#define FWCRF_FORKS
#endif

using namespace fwcrf;

static void expect(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "found: %s\n", what);
    std::abort();
}

static void regions(int threads) {
    constexpr std::int64_t n = 1000;
    std::vector<std::int64_t> seen(n, 0);
    Any last;
    for_each(threads, n, [&](std::int64_t i) {
        ++seen[static_cast<std::size_t>(i)];
        last |= i == n - 1;
    });
    std::int64_t sum = 0;
    in_parallel(threads, [&](Team team) {
        const Range mine = share(n, team.thread, team.threads);
        std::int64_t own = 0;
        for (std::int64_t i = mine.begin; i < mine.end; ++i) own += seen[static_cast<std::size_t>(i)];
        std::atomic<int> inner{0};
        if (team.threads > 1) in_parallel(4, [&](Team) { ++inner; });
        expect(team.threads == 1 || inner == 1, "a region inside a region has several threads");
        const Alone alone;
        sum += own;
    });
    std::atomic<int> count{0};
    for_next(threads, 57, [&](std::int64_t) { ++count; });
    expect(last && sum == n && count == 57, "an index was not seen once");
}

int main() {
    expect(max_threads() >= 1, "no threads");
    for (int k = 0; k < 2000; ++k) regions(1 + k % 7);
    std::vector<std::thread> callers;
    for (int c = 0; c < 4; ++c)
        callers.emplace_back([] {
            for (int k = 0; k < 500; ++k) regions(3);
        });
    for (std::thread& caller : callers) caller.join();
#ifdef FWCRF_FORKS
    const pid_t child = fork();
    if (child == 0) {
        for (int k = 0; k < 50; ++k) regions(3);
        _exit(0);
    }
    int status = 1;
    waitpid(child, &status, 0);
    expect(status == 0, "no regions after a fork");
#endif
    std::puts("parallel regions: all indices seen once");
    return 0;
}
