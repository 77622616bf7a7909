// Pre-tokens that are a token whatever the merges make of them (ignore_merges).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge_batch.hpp"
#include "merge_rules.hpp"
#include "pretoken_key.hpp"

namespace bpe {

// Byte strings bytes[offsets[i], offsets[i + 1]) and their ids.
struct TokenSpans {
  const uint8_t* bytes;
  const int64_t* offsets;
  const uint32_t* ids;
  size_t n;

  const uint8_t* begin_of(size_t i) const { return bytes + offsets[i]; }
  size_t length_of(size_t i) const { return static_cast<size_t>(offsets[i + 1] - offsets[i]); }
  size_t readable_of(size_t i) const { return static_cast<size_t>(offsets[n] - offsets[i]); }
};

// Holds only the tokens that the merges do not make of their bytes: the others need no look-up, and
// in published tokenizers these are few.
class WholeTokens {
 public:
  WholeTokens() = default;
  // The tokens must be distinct.
  WholeTokens(const MergeRules& rules, BatchMerger merge_batch, const TokenSpans& tokens);

  bool empty() const { return slots_.empty(); }

  // The id of a pre-token, nullptr if it is none of these. key: of make_key.
  const uint32_t* find(const ShortKey& key, const uint8_t* bytes, size_t length) const {
    if (slots_.empty()) return nullptr;
    const uint64_t hash = hash_of(key);
    if ((filter_[hash >> 6 & filter_mask_] >> (hash & 63) & 1) == 0) [[likely]]
      return nullptr;
    return find_slot(hash, key, bytes, length);
  }

 private:
  struct Slot {
    ShortKey key;    // all zero: free
    uint64_t place;  // of the bytes of a long one
    uint32_t id;
  };

  // The words of a long key are its hash and its length.
  static uint64_t hash_of(const ShortKey& key) { return hash_short_key(key, 0); }
  const uint32_t* find_slot(uint64_t hash, const ShortKey& key, const uint8_t* bytes,
                            size_t length) const;
  void add(const uint8_t* bytes, size_t length, size_t readable, uint32_t id);

  std::vector<Slot> slots_;
  size_t slot_mask_ = 0;
  std::vector<uint64_t> filter_;  // a bit for a hash
  size_t filter_mask_ = 0;
  std::vector<uint8_t> long_bytes_;
};

}  // namespace bpe
