// Splitting text where no merge of a vocabulary of bytes can join it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "splitter.hpp"

namespace bpe {

// For the pattern none: two bytes that stand side by side inside no token stay apart, so that text
// can be split between them without changing what merges make.
class ByteSplitter : public Splitter {
 public:
  // joined: a bit for each pair of bytes that stand side by side inside a token that merges make,
  // at before << 8 | after. std::invalid_argument for another number of words than kWords.
  explicit ByteSplitter(std::vector<uint64_t> joined);
  static constexpr size_t kWords = 256 * 256 / 64;

  const std::vector<uint64_t>& joined() const { return joined_; }

  size_t scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
              size_t capacity) const override;
  bool may_cut(uint32_t previous, uint32_t next) const override;
  bool has_cuts() const override;

 private:
  bool is_joined(uint8_t before, uint8_t after) const {
    return (joined_[before << 2 | after >> 6] >> (after & 63) & 1) != 0;
  }

  std::vector<uint64_t> joined_;
};

}  // namespace bpe
