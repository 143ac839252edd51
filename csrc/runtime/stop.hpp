// Interruption of long runs: the thread that Python calls signals on asks now and then whether a signal has come.
//
// All functions are defined in stop.cpp, which is compiled without instructions of a particular set.
#pragma once

#include <cstdint>

namespace fwcrf {

// One per run, shared by its threads. When `asked` has returned true, each thread leaves its work unfinished; after the
// parallel region `check` throws Interrupted. Between barriers all threads see the same value if only the thread that
// called the region is Python's main thread, which is the case for a run.
class Stop {
  public:
    // True if the run shall end. `count` is a counter of the caller's loop: signals are looked for if it is a multiple
    // of 64, and at most every 50 ms.
    bool asked(std::int64_t count);
    bool stopped() const;
    void check() const;

  private:
    int stopped_ = 0;
};

struct Interrupted {};

// Sets the function that returns true if a signal asks the run to end. It may be called on any thread.
void set_signal_check(bool (*check)());

}  // namespace fwcrf
