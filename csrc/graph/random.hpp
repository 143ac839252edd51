// Random numbers of the searches on graphs.
#pragma once

#include <cstdint>

namespace fwcrf {

// Vigna's splitmix64.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}
    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>((next() >> 1) % static_cast<std::uint64_t>(bound));
    }

  private:
    std::uint64_t state_;
};

}  // namespace fwcrf
