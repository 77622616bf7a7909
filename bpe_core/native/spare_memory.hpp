// Large blocks of memory that were used and may be used again: the system takes longer to provide
// a fresh page than it takes to fill it with ids.
#pragma once

#include <cstddef>

namespace bpe {

struct MemoryBlock {
  void* data = nullptr;  // of malloc
  size_t bytes = 0;
  size_t touched = 0;  // of these, from the beginning, at most as many were written to
};

// A block of at least `bytes`, of which nothing is known; one that was used before if one of about
// that size is there. Throws std::bad_alloc.
MemoryBlock take_memory(size_t bytes);

// Keeps the block for take_memory(), or frees it if enough is kept.
void give_memory(const MemoryBlock& block) noexcept;

}  // namespace bpe
