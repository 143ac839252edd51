// Scratch memory, for the files that are compiled once per instruction set.
#pragma once

#include "runtime/blocks.hpp"

#include <cstdint>
#include <cstdlib>

namespace fwcrf::FWCRF_ISA {

// Memory that outlives a call: fresh pages would cost more than the arithmetic on them.
class Scratch {
  public:
    ~Scratch() { std::free(data_); }
    template <typename T> T* get(std::int64_t count) {
        const std::size_t bytes = (count * sizeof(T) + 4095) / 4096 * 4096;
        if (bytes > size_) {
            std::free(data_);
            data_ = std::aligned_alloc(4096, bytes);
            size_ = data_ ? bytes : 0;
            if (!data_) out_of_memory(bytes);
        }
        return static_cast<T*>(data_);
    }
    void trim() {
        constexpr std::size_t keep = std::size_t{80} << 20;
        if (size_ > keep) {
            std::free(data_);
            data_ = nullptr;
            size_ = 0;
        }
    }

  private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

}  // namespace fwcrf::FWCRF_ISA
