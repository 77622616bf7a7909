// Counts of ids.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

// Adds 1 to counts[id] for each of n ids. Returns the index of the first id that is not below
// `size`, or n; the ids before that index are counted.
template <class Id>
size_t add_id_counts(const Id* ids, size_t n, int64_t* counts, size_t size) {
  for (size_t i = 0; i < n; ++i) {
    const size_t id = ids[i];
    if (id >= size) [[unlikely]]
      return i;
    ++counts[id];
  }
  return n;
}

}  // namespace bpe
