// Merge rules by rank, and merging of single pre-tokens by them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "zeroed_array.hpp"

namespace bpe {

// Ids of two tokens and of the result of merging them. The rank is the index in the list of rules.
struct MergeRule {
  uint32_t left;
  uint32_t right;
  uint32_t result;
};

// A byte has no id, and no unknown id was given.
struct UnknownByte {
  uint8_t byte;
};

// Tokens are numbered densely as symbols while they merge: the 256 bytes first, then the result of
// each rule, in order of rank.
class MergeRules {
 public:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  static constexpr uint32_t kNoId = UINT32_MAX;
  static constexpr uint32_t kByteSymbols = 256;
  // Ranks and symbols are below this value.
  static constexpr int kFieldBits = 21;
  static constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;

  // Eight rules in a cache line, filled from the front. A rule is one word: left symbol, right
  // symbol and rank + 1 in 21 bits each; 0 is free. If a line is full, rules go to the next one.
  struct alignas(64) Line {
    uint64_t rules[8];
  };

  // Ids from here on are parts of characters, which become the unknown token.
  static constexpr uint32_t kInnerIds = uint32_t{1} << 31;

  // byte_ids: the id of each single byte, -1 where it has none. rules: of equal pairs the first
  // counts. unknown_id: of bytes without one; -1 to throw UnknownByte instead. join_unknown: a
  // pre-token that begins with one has that id alone.
  // Throws std::invalid_argument if there are too many.
  MergeRules(const std::array<int64_t, 256>& byte_ids, const std::vector<MergeRule>& rules,
             int64_t unknown_id, bool join_unknown = false);

  uint32_t largest_id() const { return largest_id_; }

  // The number of the n > 0 ids of a pre-token that count.
  size_t joined_unknown(const uint32_t* ids, size_t n) const {
    return ids[0] == joined_unknown_ ? 1 : n;
  }

  static uint64_t pair_key(uint32_t left, uint32_t right) {
    return static_cast<uint64_t>(left) << kFieldBits | right;
  }
  static size_t pair_hash(uint64_t key) {
    return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20);
  }

  // False if no pair with this hash has a rule. This answers for nearly all pairs without a rule,
  // and stays in the nearer caches.
  bool may_merge(size_t hash) const { return (*filter_byte(hash) >> (hash & 7) & 1) != 0; }
  const uint8_t* filter_byte(size_t hash) const { return &filter_[hash >> 3 & filter_mask_]; }
  const Line* line_of(size_t hash) const { return &lines_[hash & line_mask_]; }

  // kNoRank: the pair does not merge.
  uint32_t rank_of(uint32_t left, uint32_t right) const {
    const uint64_t key = pair_key(left, right);
    const size_t hash = pair_hash(key);
    return may_merge(hash) ? find_rank(key, hash) : kNoRank;
  }
  uint32_t find_rank(uint64_t key, size_t hash) const;
  uint32_t rank_of_bytes(uint8_t left, uint8_t right) const {
    return byte_pair_ranks_[static_cast<size_t>(left) << 8 | right];
  }
  // 256 x 256, by left and right byte.
  const uint32_t* byte_pair_ranks() const { return byte_pair_ranks_.data(); }

  uint32_t result_of(uint32_t rank) const {
    return results_.empty() ? kByteSymbols + rank : results_[rank];
  }
  // Ids of the symbols: kNoId for a byte without an id, if no unknown id was given.
  const uint32_t* ids() const { return ids_.data(); }
  // Throws UnknownByte.
  uint32_t id_of(uint32_t symbol) const {
    const uint32_t id = ids_[symbol];
    if (id == kNoId) [[unlikely]]
      throw UnknownByte{static_cast<uint8_t>(symbol)};
    return id;
  }

  // Merges a pre-token, the lowest rank first and of equal ranks the leftmost. Throws UnknownByte.
  void merge(const uint8_t* bytes, size_t length, std::vector<uint32_t>& ids) const;

 private:
  static constexpr size_t kShort = 64;  // longer pre-tokens: see long_merge.hpp

  size_t merge_short(const uint8_t* bytes, size_t length, uint32_t* symbols) const;
  void add_rule(uint32_t left, uint32_t right, uint32_t rank);

  std::vector<uint32_t> ids_;      // of the symbols
  std::vector<uint32_t> results_;  // by rank; empty if every rule makes a token of its own
  ZeroedArray<Line> lines_;
  size_t line_mask_ = 0;
  std::vector<uint8_t> filter_;
  size_t filter_mask_ = 0;
  std::vector<uint32_t> byte_pair_ranks_;
  uint32_t largest_id_ = 0;
  uint32_t joined_unknown_ = kNoId;
};

}  // namespace bpe
