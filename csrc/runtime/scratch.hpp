// Scratch memory, for the files that are compiled once per instruction set.
#pragma once

#include "runtime/blocks.hpp"

#include <cstdint>

namespace fwcrf::FWCRF_ISA {

// Memory that outlives a call: fresh pages would cost more than the arithmetic on them.
class Scratch {
  public:
    ~Scratch() { free_aligned(data_); }
    template <typename T> T* get(std::int64_t count) {
        const std::size_t bytes = (count * sizeof(T) + 4095) / 4096 * 4096;
        if (bytes > size_) {
            free_aligned(data_);
            data_ = allocate_aligned(4096, bytes);
            size_ = data_ ? bytes : 0;
            if (!data_) out_of_memory(bytes);
            use_large_pages(data_, bytes);
        }
        return static_cast<T*>(data_);
    }
    void trim() {
        constexpr std::size_t keep = std::size_t{80} << 20;
        if (size_ > keep) {
            free_aligned(data_);
            data_ = nullptr;
            size_ = 0;
        }
    }

  private:
    void* data_ = nullptr;
    std::size_t size_ = 0;
};

// Arrays in one piece of scratch memory. A layout is gone through twice: without memory, which counts the bytes, and
// with it.
struct Parts {
    char* base = nullptr;
    std::int64_t bytes = 0;

    template <typename T> void take(T*& array, std::int64_t count) {
        array = base ? reinterpret_cast<T*>(base + bytes) : nullptr;
        bytes += (count * static_cast<std::int64_t>(sizeof(T)) + 63) / 64 * 64;
    }
};

}  // namespace fwcrf::FWCRF_ISA
