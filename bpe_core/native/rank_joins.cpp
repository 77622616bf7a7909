#include "rank_joins.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "bytes_hash.hpp"

namespace bpe {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

// Token bytes to rank, by open addressing; for two bytes, the most frequent request, by a table.
class RankTable {
 public:
  RankTable(const uint8_t* data, const int64_t* offsets, size_t tokens)
      : data_(data),
        end_(data + offsets[tokens]),
        offsets_(offsets),
        mask_(std::bit_ceil(2 * tokens + 1) - 1),
        slots_(mask_ + 1, Slot{0, kNone}),
        pairs_(1 << 16, kNone) {
    for (size_t rank = 0; rank < tokens; ++rank) {
      const uint8_t* bytes = data + offsets[rank];
      const size_t length = static_cast<size_t>(offsets[rank + 1] - offsets[rank]);
      const uint64_t hash = hash_of(bytes, length);
      Slot& slot = slot_of(bytes, length, hash);
      if (slot.rank != kNone) continue;
      slot = {tag_of(hash), static_cast<uint32_t>(rank)};
      if (length == 2) pairs_[bytes[0] << 8 | bytes[1]] = static_cast<uint32_t>(rank);
    }
  }

  // The bytes must belong to a token: memory after them is read.
  uint32_t find(const uint8_t* bytes, size_t length) {
    if (length == 2) return pairs_[bytes[0] << 8 | bytes[1]];
    return slot_of(bytes, length, hash_of(bytes, length)).rank;
  }

 private:
  struct Slot {
    uint32_t tag;
    uint32_t rank;
  };

  static uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

  uint64_t hash_of(const uint8_t* bytes, size_t length) const {
    if (length > kShortKeyBytes) return hash_long_key(bytes, length);
    const size_t readable = static_cast<size_t>(end_ - bytes);
    return hash_short_key(load_short_key(bytes, length, readable), length);
  }

  Slot& slot_of(const uint8_t* bytes, size_t length, uint64_t hash) {
    for (size_t i = hash & mask_;; i = (i + 1) & mask_) {
      Slot& slot = slots_[i];
      if (slot.rank == kNone) return slot;
      const int64_t begin = offsets_[slot.rank];
      if (slot.tag == tag_of(hash) &&
          static_cast<size_t>(offsets_[slot.rank + 1] - begin) == length &&
          std::memcmp(data_ + begin, bytes, length) == 0) {
        return slot;
      }
    }
  }

  const uint8_t* data_;
  const uint8_t* end_;
  const int64_t* offsets_;
  size_t mask_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> pairs_;
};

// Two adjacent parts that make a token: its rank, start and length.
struct Join {
  uint32_t rank;
  uint32_t begin;
  uint32_t length;

  // Heaps have their greatest on top.
  bool operator<(const Join& other) const {
    return rank != other.rank ? rank > other.rank : begin > other.begin;
  }
};

// Joins the bytes of one token until two parts are left; scratch memory for many tokens.
class Joiner {
 public:
  explicit Joiner(RankTable& ranks) : ranks_(ranks) {}

  // The length of the first of the two parts, 0 if there are more.
  size_t split_of(const uint8_t* bytes, size_t length) {
    if (length == 2) return 1;
    length_of_.assign(length, 1);
    before_.resize(length);
    joins_.clear();
    for (size_t i = 0; i < length; ++i) before_[i] = static_cast<uint32_t>(i) - 1;
    for (size_t i = 0; i + 1 < length; ++i) consider(bytes, i, length);
    for (size_t parts = length; parts > 2;) {
      if (joins_.empty()) return 0;
      std::pop_heap(joins_.begin(), joins_.end());
      const Join join = joins_.back();
      joins_.pop_back();
      if (joined_length(join.begin, length) != join.length) continue;  // a part has changed
      const size_t second = join.begin + length_of_[join.begin];
      length_of_[second] = 0;
      length_of_[join.begin] = join.length;
      const size_t after = join.begin + join.length;
      if (after < length) {
        before_[after] = join.begin;
        consider(bytes, join.begin, length);
      }
      if (join.begin > 0) consider(bytes, before_[join.begin], length);
      --parts;
    }
    return length_of_[0];
  }

 private:
  // Joins of the part at `begin` and the one after it; 0 if one of them is missing.
  size_t joined_length(size_t begin, size_t length) const {
    const size_t second = begin + length_of_[begin];
    return length_of_[begin] == 0 || second >= length ? 0 : length_of_[begin] + length_of_[second];
  }

  void consider(const uint8_t* bytes, size_t begin, size_t length) {
    const size_t joined = joined_length(begin, length);
    const uint32_t rank = ranks_.find(bytes + begin, joined);
    if (rank == kNone) return;
    joins_.push_back({rank, static_cast<uint32_t>(begin), static_cast<uint32_t>(joined)});
    std::push_heap(joins_.begin(), joins_.end());
  }

  RankTable& ranks_;
  std::vector<uint32_t> length_of_;  // of the part that begins here; 0 inside a part
  std::vector<uint32_t> before_;     // start of the part before this one
  std::vector<Join> joins_;
};

}  // namespace

LastJoins last_joins(const uint8_t* data, const int64_t* offsets, size_t tokens) {
  RankTable ranks(data, offsets, tokens);
  Joiner joiner(ranks);
  LastJoins result{std::vector<int64_t>(tokens, -1), std::vector<int64_t>(tokens, -1)};
  for (size_t i = 0; i < tokens; ++i) {
    const uint8_t* bytes = data + offsets[i];
    const size_t length = static_cast<size_t>(offsets[i + 1] - offsets[i]);
    if (length < 2) continue;
    const size_t split = joiner.split_of(bytes, length);
    if (split == 0) continue;
    const uint32_t left = ranks.find(bytes, split);
    const uint32_t right = ranks.find(bytes + split, length - split);
    if (left == kNone || right == kNone) continue;
    result.left[i] = left;
    result.right[i] = right;
  }
  return result;
}

}  // namespace bpe
