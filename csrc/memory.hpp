// Memory for large arrays, kept for the next one of about the same size.
//
// Fresh memory comes in pages of 4 KB that the system clears one by one when they are first touched,
// which can take longer than the filter that fills them. Blocks are made of large pages where the
// system has them, and freed ones are held back, since every step needs the same sizes again: up to 192 MB, and up to 1 GB
// that the system may have back at any time. Those that were freed first are given up first.
#pragma once

#include <cstddef>

namespace fwcrf {

void* take_block(std::size_t bytes);  // throws std::bad_alloc
void give_block(void* block) noexcept;

}  // namespace fwcrf
