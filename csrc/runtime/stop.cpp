#include "runtime/stop.hpp"

#include <chrono>

namespace fwcrf {
namespace {

bool (*signal_check)() = nullptr;
constexpr std::chrono::milliseconds kBetween{50};

}  // namespace

void set_signal_check(bool (*check)()) { signal_check = check; }

bool Stop::asked(std::int64_t count) {
    if (count % 64 == 0 && signal_check && !stopped()) {
        thread_local std::chrono::steady_clock::time_point last{};
        const auto now = std::chrono::steady_clock::now();
        if (now - last >= kBetween) {
            last = now;
            if (signal_check()) __atomic_store_n(&stopped_, 1, __ATOMIC_RELEASE);
        }
    }
    return stopped();
}

bool Stop::stopped() const { return __atomic_load_n(&stopped_, __ATOMIC_ACQUIRE) != 0; }

void Stop::check() const {
    if (stopped()) throw Interrupted{};
}

}  // namespace fwcrf
