#include "spare_memory.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>

namespace bpe {
namespace {

constexpr size_t kLeastKept = size_t{1} << 20;      // malloc handles smaller ones well
constexpr size_t kMostTouched = size_t{128} << 20;  // kept in one block
constexpr size_t kMostLarger = 4;                   // times the requested size

std::mutex mutex;
std::array<MemoryBlock, 2> spares;

}  // namespace

MemoryBlock take_memory(size_t bytes) {
  bytes = std::max<size_t>(bytes, 1);
  {
    const std::lock_guard lock(mutex);
    for (MemoryBlock& spare : spares) {
      if (spare.bytes >= bytes && spare.bytes / kMostLarger <= bytes)
        return std::exchange(spare, {});
    }
  }
  void* const data = std::malloc(bytes);
  if (data == nullptr) throw std::bad_alloc();
  return {data, bytes, 0};
}

void give_memory(const MemoryBlock& block) noexcept {
  MemoryBlock freed = block;
  if (block.bytes >= kLeastKept && block.touched <= kMostTouched) {
    const std::lock_guard lock(mutex);
    MemoryBlock& smallest = spares[0].bytes <= spares[1].bytes ? spares[0] : spares[1];
    if (smallest.bytes <= freed.bytes) std::swap(smallest, freed);
  }
  std::free(freed.data);
}

}  // namespace bpe
