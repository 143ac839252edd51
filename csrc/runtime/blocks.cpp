#include "runtime/blocks.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>

#ifdef __linux__
#include <sys/mman.h>
#endif
#ifdef _WIN32
#include <malloc.h>
#endif

namespace fwcrf {
namespace {

constexpr std::size_t kLargePage = std::size_t{2} << 20;
// Bytes that are held for good; the system may reclaim blocks beyond that when it is short of memory.
constexpr std::size_t kHeldAtMost = std::size_t{192} << 20;
constexpr std::size_t kLentAtMost = std::size_t{1} << 30;
constexpr int kSlots = 64;

struct Held {
    void* block = nullptr;
    std::size_t size = 0;
    std::uint64_t since = 0;
};

// In front of every block, with its size; as large as a cache line, for alignment.
struct alignas(64) Header {
    std::size_t size;
};

std::mutex guard;
Held held[kSlots];
std::size_t held_bytes = 0;
std::uint64_t now = 0;

// True if one more block may be held: the system reclaims its pages when it needs them.
bool lend(void* block, std::size_t size) {
#if defined(__linux__) && defined(MADV_FREE)
    return madvise(block, size, MADV_FREE) == 0;
#else
    (void)block, (void)size;
    return false;
#endif
}

// A free slot, else the slot that has held its block longest.
Held& oldest() {
    Held* found = &held[0];
    for (Held& slot : held)
        if (slot.since < found->since) found = &slot;
    return *found;
}

// A slot for a block of this size. Frees the oldest blocks if necessary: images of their sizes may never come again.
Held& room(std::size_t size) {
    while (held_bytes + size > kLentAtMost || oldest().block) {
        Held* gone = nullptr;
        for (Held& slot : held)
            if (slot.block && (!gone || slot.since < gone->since)) gone = &slot;
        free_aligned(gone->block);
        held_bytes -= gone->size;
        *gone = Held{};
    }
    return oldest();
}

}  // namespace

void out_of_memory(std::size_t bytes) { throw OutOfMemory{bytes}; }

#ifdef _WIN32  // without std::aligned_alloc
void* allocate_aligned(std::size_t alignment, std::size_t bytes) noexcept { return _aligned_malloc(bytes, alignment); }
void free_aligned(void* block) noexcept { _aligned_free(block); }
#else
void* allocate_aligned(std::size_t alignment, std::size_t bytes) noexcept {
    return std::aligned_alloc(alignment, bytes);
}
void free_aligned(void* block) noexcept { std::free(block); }
#endif

void use_large_pages(void* block, std::size_t bytes) noexcept {
#ifdef __linux__
    if (bytes >= kLargePage) madvise(block, bytes, MADV_HUGEPAGE);
#else
    (void)block, (void)bytes;
#endif
}

void* take_block(std::size_t bytes) {
    const std::size_t size = (bytes + sizeof(Header) + kLargePage - 1) / kLargePage * kLargePage;
    {
        const std::lock_guard<std::mutex> lock(guard);
        for (Held& slot : held) {
            if (slot.size != size) continue;
            void* block = slot.block;
            held_bytes -= size;
            slot = Held{};
            static_cast<Header*>(block)->size = size;  // the system may have cleared it
            return static_cast<Header*>(block) + 1;
        }
    }
    void* block = allocate_aligned(kLargePage, size);
    if (!block) out_of_memory(bytes);
    use_large_pages(block, size);
    static_cast<Header*>(block)->size = size;
    return static_cast<Header*>(block) + 1;
}

void give_block(void* data) noexcept {
    void* block = static_cast<Header*>(data) - 1;
    const std::size_t size = static_cast<Header*>(block)->size;
    {
        const std::lock_guard<std::mutex> lock(guard);
        if (size <= kLentAtMost && (held_bytes + size <= kHeldAtMost || lend(block, size))) {
            room(size) = Held{block, size, ++now};
            held_bytes += size;
            return;
        }
    }
    free_aligned(block);
}

}  // namespace fwcrf
