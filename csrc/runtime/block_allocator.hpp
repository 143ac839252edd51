// Memory for containers that grow large.
#pragma once

#include "runtime/blocks.hpp"

#include <cstddef>
#include <memory>
#include <new>

namespace fwcrf {

// An allocator that takes blocks for many values, and ordinary memory for few.
template <typename T> struct BlockAllocator {
    using value_type = T;

    BlockAllocator() = default;
    template <typename U> BlockAllocator(const BlockAllocator<U>&) noexcept {}
    T* allocate(std::size_t count) {
        if (!large(count)) return std::allocator<T>().allocate(count);
        if (count > static_cast<std::size_t>(-1) / 2 / sizeof(T)) throw std::bad_alloc();
        try {
            return static_cast<T*>(take_block(count * sizeof(T)));
        } catch (const OutOfMemory&) {
            throw std::bad_alloc();  // as users of containers expect
        }
    }
    void deallocate(T* values, std::size_t count) noexcept {
        if (large(count)) give_block(values);
        else std::allocator<T>().deallocate(values, count);
    }
    bool operator==(const BlockAllocator&) const { return true; }
    bool operator!=(const BlockAllocator&) const { return false; }

  private:
    static bool large(std::size_t count) { return count >= (std::size_t{1} << 19) / sizeof(T); }
};

}  // namespace fwcrf
