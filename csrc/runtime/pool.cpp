// Threads of our own, for compilers without OpenMP; a lock and a wait for both.
#include "runtime/parallel.hpp"

#include <chrono>
#include <mutex>
#include <thread>

#ifndef _OPENMP
#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <vector>
#if __has_include(<pthread.h>) && !defined(_WIN32)
#include <pthread.h>
#define FWCRF_FORKS
#endif
#endif

namespace fwcrf {

// Where other programs have the processors, a thread that yields comes back before the thread for which it waits.
void give_way(std::int64_t& since) noexcept {
    using namespace std::chrono;
    constexpr std::int64_t kYielding = 1000;  // microseconds
    const std::int64_t now = duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
    if (since == 0) since = now;
    if (now - since < kYielding) std::this_thread::yield();
    else std::this_thread::sleep_for(microseconds(50));
}

namespace {

std::mutex joining;

}  // namespace

Alone::Alone() { joining.lock(); }
Alone::~Alone() { joining.unlock(); }

#ifdef _OPENMP

int max_threads() { return omp_get_max_threads(); }
void set_threads(int threads) { omp_set_num_threads(threads); }

#else

namespace {

// A parallel region, on the stack of the thread that calls it.
struct Region {
    void (*act)(const void*, Team);
    const void* closure;
    int threads, left;
    std::mutex guard;
    std::condition_variable done;
};

thread_local bool inside = false;  // of a region

// A thread that waits for its share of the next region, until the process ends.
class Worker {
  public:
    Worker() {
        std::thread([this] { work(); }).detach();
    }

    void give(Region& region, int thread) {
        const std::lock_guard<std::mutex> lock(guard_);
        region_ = &region;
        thread_ = thread;
        given_.notify_one();
    }

  private:
    void work() {
        inside = true;
        for (;;) {
            std::unique_lock<std::mutex> lock(guard_);
            given_.wait(lock, [this] { return region_ != nullptr; });
            Region& region = *region_;
            region_ = nullptr;
            lock.unlock();
            region.act(region.closure, {thread_, region.threads});
            // Notified under the lock: the region is gone as soon as its caller sees that all are done.
            const std::lock_guard<std::mutex> end(region.guard);
            if (--region.left == 0) region.done.notify_one();
        }
    }

    std::mutex guard_;
    std::condition_variable given_;
    Region* region_ = nullptr;
    int thread_ = 0;
};

// Workers that no region uses. Regions of several threads of the program run at the same time, each with its own
// workers.
struct Pool {
    std::mutex guard;
    std::vector<Worker*> idle;

    std::vector<Worker*> take(int count) {
        std::vector<Worker*> taken;
        taken.reserve(static_cast<std::size_t>(count));
        const std::lock_guard<std::mutex> lock(guard);
        idle.reserve(idle.size() + static_cast<std::size_t>(count));  // for `give`, which must not throw
        while (count-- > 0) {
            if (idle.empty()) {
                try {
                    taken.push_back(new Worker);
                } catch (const std::exception&) {
                    break;  // no more threads, or no memory
                }
            } else {
                taken.push_back(idle.back());
                idle.pop_back();
            }
        }
        return taken;
    }
    void give(const std::vector<Worker*>& workers) {
        const std::lock_guard<std::mutex> lock(guard);
        idle.insert(idle.end(), workers.begin(), workers.end());
    }
};

// Never destroyed: its threads live until the process ends.
Pool* pool = new Pool;

#ifdef FWCRF_FORKS
// A forked process has none of the threads.
[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] {
    pool = new Pool;
    inside = false;
});
#endif

int wished() {
    const char* const given = std::getenv("OMP_NUM_THREADS");
    const int wish = given ? std::atoi(given) : 0;
    return wish > 0 ? wish : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
std::atomic<int> most{0};  // 0: not asked yet

}  // namespace

int max_threads() {
    if (most == 0) most = wished();
    return most;
}
void set_threads(int threads) { most = threads; }

void run_on_threads(int threads, void (*act)(const void* closure, Team team), const void* closure) {
    if (threads <= 1 || inside) return act(closure, {0, 1});
    const std::vector<Worker*> workers = pool->take(threads - 1);
    const int team = 1 + static_cast<int>(workers.size());
    Region region{act, closure, team, team - 1, {}, {}};
    for (int i = 1; i < team; ++i) workers[static_cast<std::size_t>(i) - 1]->give(region, i);
    inside = true;
    [=]() noexcept { act(closure, {0, team}); }();  // the other threads use the region
    inside = false;
    {
        std::unique_lock<std::mutex> lock(region.guard);
        region.done.wait(lock, [&region] { return region.left == 0; });
    }
    pool->give(workers);
}

#endif

}  // namespace fwcrf
