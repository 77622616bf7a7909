// Counting of pre-tokens in the order in which they first occur.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "normalizer.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"

namespace bpe {

// Distinct byte strings with counts, in the order of their first addition.
class OrderedPretokens {
 public:
  // Counts the pre-tokens of text[0, size), cut at special tokens and normalized between them.
  void add_document(const uint8_t* text, size_t size, const Scanner& scanner,
                    const Normalizer& normalizer, const SpecialMatcher& specials);

  // Adds 1 to the count of a key of at least one byte.
  void add(const uint8_t* key, size_t length);

  // Key i is keys()[offsets()[i], offsets()[i + 1]).
  const std::vector<uint8_t>& keys() const { return keys_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }
  const std::vector<int64_t>& counts() const { return counts_; }

  size_t size() const { return counts_.size(); }
  size_t memory_bytes() const;

 private:
  // Slot of a hash table with open addressing; entry 0 means a free slot, entry i + 1 key i.
  struct Place {
    uint32_t entry = 0;
    uint32_t tag = 0;  // of the hash, bits that do not choose the slot
  };

  bool is_key(size_t i, const uint8_t* key, size_t length) const;
  void grow();

  std::vector<uint8_t> keys_;
  std::vector<int64_t> offsets_ = {0};
  std::vector<int64_t> counts_;
  std::vector<uint64_t> hashes_;
  std::vector<Place> places_ = std::vector<Place>(kFirstPlaces);

  static constexpr size_t kFirstPlaces = 1024;
};

}  // namespace bpe
