// Reuse of large blocks of memory: the system takes longer to provide a fresh page than it takes to
// fill it with ids.
#pragma once

#include <cstddef>

namespace bpe {

struct MemoryBlock {
  void* data = nullptr;  // of malloc
  size_t bytes = 0;
  size_t touched = 0;  // at most this many bytes, from the start, were written to
};

// Returns a block of at least `bytes` with undefined content; a used one if there is one of about
// that size. Throws std::bad_alloc.
MemoryBlock take_memory(size_t bytes);

// Keeps the block for take_memory(), or frees it if enough is kept.
void give_memory(const MemoryBlock& block) noexcept;

}  // namespace bpe
