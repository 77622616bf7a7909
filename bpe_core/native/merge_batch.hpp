// Merging of several pre-tokens at the same time, so that their waits for memory overlap.
#pragma once

#include <cstddef>
#include <cstdint>

#include "merge_rules.hpp"

namespace bpe {

// A pre-token and, when it is merged, its ids.
struct BatchItem {
  static constexpr size_t kMostBytes = 128;

  const uint8_t* bytes;
  size_t length;
  size_t readable;  // bytes that may be read; `length` of them belong to the pre-token
  size_t count;     // of the ids
  uint32_t ids[kMostBytes];
};

// Merges each of n items of up to kMostBytes bytes. Throws UnknownByte.
using BatchMerger = void (*)(const MergeRules& rules, BatchItem* items, size_t n);

void merge_batch_portable(const MergeRules& rules, BatchItem* items, size_t n);
// nullptr if it was not compiled. May be called only if cpu_has_avx2().
BatchMerger avx2_batch_merger();

}  // namespace bpe
