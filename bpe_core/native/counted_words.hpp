// The input of merge learning: words with their counts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "pair_table.hpp"

namespace bpe {

// Word i is keys[offsets[i], offsets[i + 1]) and occurs counts[i] times.
struct CountedWords {
  const uint8_t* keys;
  const int64_t* offsets;
  const int64_t* counts;
  size_t n;

  size_t length(size_t i) const { return static_cast<size_t>(offsets[i + 1] - offsets[i]); }
  const uint8_t* begin(size_t i) const { return keys + offsets[i]; }

  // Throws std::invalid_argument for descending offsets or counts below 1. Must be called first.
  void check() const;

  // Counts of the pair of bytes (a, b), at 256 * a + b. Throws std::overflow_error if a count
  // exceeds 2^63 - 1. If none does, no pair of longer tokens does: each of its occurrences contains
  // one of the pair of bytes at its seam.
  std::vector<PairTally> count_byte_pairs() const;

  // The words of two bytes and more, grouped by equal counts, the most frequent first.
  std::vector<size_t> by_count() const;

  // The words of two bytes and more, in the given order.
  std::vector<size_t> in_order() const;

  // The slots that these words need: a boundary before all of them, and one after each.
  size_t num_slots() const;
};

// Words as bytes: word i is keys[offsets[i], offsets[i + 1]).
struct WordBytes {
  std::vector<uint8_t> keys;
  std::vector<int64_t> offsets;
};

// Words of symbols: word i is symbols[words[k]] for k of [offsets[i], offsets[i + 1]).
struct WordSymbols {
  const std::vector<std::string>& symbols;
  const uint32_t* words;
  const int64_t* offsets;
  size_t n;

  const uint32_t* begin(size_t i) const { return words + offsets[i]; }
  const uint32_t* end(size_t i) const { return words + offsets[i + 1]; }

  // Throws std::invalid_argument for descending offsets, symbols without bytes, and numbers that
  // are not symbols.
  WordBytes to_bytes() const;
};

// The count of the word at a position. Words of equal count are adjacent.
template <typename Position>
class PositionCounts {
 public:
  void add(Position begin, int64_t count) {
    if (counts_.empty() || counts_.back() != count) {
      begins_.push_back(begin);
      counts_.push_back(count);
    }
  }

  void finish(Position end) {
    begins_.push_back(end);
    uint32_t range = 0;
    for (Position position = 0; position < end; position += Position{1} << kBlockBits) {
      while (range + 1 < counts_.size() && begins_[range + 1] <= position) ++range;
      block_ranges_.push_back(range);
      if (end - position <= Position{1} << kBlockBits) break;
    }
  }

  size_t memory_bytes() const {
    return begins_.capacity() * sizeof(Position) + counts_.capacity() * sizeof(int64_t) +
           block_ranges_.capacity() * sizeof(uint32_t);
  }

  // For ascending positions.
  class Cursor {
   public:
    explicit Cursor(const PositionCounts& counts) : counts_(counts) {}
    void prefetch(Position) const {}
    int64_t at(Position position) {
      if (position >= end_) {
        uint32_t range = counts_.block_ranges_[position >> kBlockBits];
        while (counts_.begins_[range + 1] <= position) ++range;
        end_ = counts_.begins_[range + 1];
        count_ = counts_.counts_[range];
      }
      return count_;
    }

   private:
    const PositionCounts& counts_;
    Position end_ = 0;
    int64_t count_ = 0;
  };

 private:
  static constexpr int kBlockBits = 6;

  // Ranges of positions of equal count; range i is begins_[i] up to begins_[i + 1].
  std::vector<Position> begins_;
  std::vector<int64_t> counts_;
  std::vector<uint32_t> block_ranges_;  // the range of the first position of every block
};

}  // namespace bpe
