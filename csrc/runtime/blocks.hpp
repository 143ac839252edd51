// Memory for large arrays. A freed block is kept for the next array of about the same size.
//
// The system clears fresh memory page by page (4 KB) on first touch, which can take longer than the filter that fills
// it. So blocks use large pages if the system has them, and freed blocks are held, because every step needs the same
// sizes again: up to 192 MB, and up to 1 GB that the system may reclaim at any time. The block that was freed first is
// given up first.
#pragma once

#include <cstddef>

namespace fwcrf {

void* take_block(std::size_t bytes);  // throws OutOfMemory

struct OutOfMemory {
    std::size_t bytes;  // asked for
};
[[noreturn]] void out_of_memory(std::size_t bytes);  // throws OutOfMemory
void give_block(void* block) noexcept;

// Null if there is no memory. `bytes` is a multiple of the alignment, a power of two.
void* allocate_aligned(std::size_t alignment, std::size_t bytes) noexcept;
void free_aligned(void* block) noexcept;

// Lets the system back a large block with large pages: lattices are read and written at random places.
void use_large_pages(void* block, std::size_t bytes) noexcept;

}  // namespace fwcrf
