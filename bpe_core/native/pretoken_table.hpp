// Counting pre-tokens: a hash table from bytes to a 64-bit count.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "normalizer.hpp"
#include "pretoken_key.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "zeroed_array.hpp"

namespace bpe {

// Position of a pre-token that is longer than the limit, and is not counted.
struct LongPretoken {
  size_t document;
  size_t begin;  // in the document; for normalized text, relative to the start of its segment
  size_t length;
};

// std::overflow_error that names the key.
[[noreturn]] void throw_count_overflow(const uint8_t* key, size_t length);

// The shard of a key: the low half of its xxh3-128, modulo shards.
size_t shard_of(const uint8_t* key, size_t length, size_t shards);

class PretokenTable {
 public:
  // A part of a document without special tokens.
  struct Segment {
    const uint8_t* text;
    size_t size;
    size_t readable;  // bytes that may be read; `size` of them belong to the segment
    size_t document;
    size_t begin;  // in the document
  };

  // Functions with different versions for different CPUs.
  struct Kernel {
    void (*add_segment)(PretokenTable& table, const Segment& segment, const Scanner& scanner,
                        size_t max_pretoken_bytes, std::vector<LongPretoken>& too_long);
    uint64_t (*hash)(const ShortKey& key);  // of a short key
  };

  // portable: without instructions that only some CPUs have.
  explicit PretokenTable(bool portable = false);

  // Counts the pre-tokens of documents data[starts[i], ends[i]), cut at special tokens and
  // normalized between them, from document `first` on, until `memory_limit` (0: none) would be
  // exceeded. Returns the number of the first document not counted; `n` when all are. At least one
  // document is counted per call. `size` bytes of data may be read. Pre-tokens above
  // max_pretoken_bytes (0: no limit) are not counted but listed in `too_long`.
  size_t add_documents(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* ends,
                       size_t n, size_t first, const Scanner& scanner, const Normalizer& normalizer,
                       const SpecialMatcher& specials, size_t memory_limit,
                       size_t max_pretoken_bytes, std::vector<LongPretoken>& too_long);

  // Adds `count` to a key. Throws std::overflow_error if the sum exceeds 64 bits.
  void add(const uint8_t* key, size_t length, int64_t count);
  void add_table(const PretokenTable& other);

  void clear();  // removes everything and releases memory

  size_t size() const { return size_; }
  int64_t total() const;
  size_t memory_bytes() const { return lines_.size() * sizeof(Line) + arena_.capacity(); }

  // The entries' numbers by shard (low half of xxh3-128 of the key, modulo shards), each sorted by
  // bytes.
  std::vector<std::vector<uint32_t>> sorted_shards(size_t shards) const;

  struct Row {
    const uint8_t* key;
    size_t length;
    int64_t count;
  };
  Row row(uint32_t entry) const;

 private:
  template <class Keys>
  friend struct SegmentCounter;

  static constexpr size_t kSlots = 3;

  // A cache line of entries, filled from the front; if it is full, entries go to the next line. The
  // key of a long pre-token contains its hash and, with kTableKey and kLongKey, its offset in the
  // arena. The bits of a count above 32 are in high_counts_.
  struct alignas(64) Line {
    ShortKey keys[kSlots];
    uint32_t counts[kSlots];
    uint32_t used;
  };

  // The form in which a key is hashed and compared.
  struct Lookup {
    ShortKey key;
    uint64_t hash;
    const uint8_t* bytes;
    size_t length;
  };

  Line& line_of(uint64_t hash) { return lines_[hash & mask_]; }
  Line& after(Line& line) { return lines_[static_cast<size_t>(&line - lines_.data() + 1) & mask_]; }
  Lookup lookup(const uint8_t* bytes, size_t length) const;
  bool is_at(const Line& line, size_t slot, const Lookup& wanted) const;
  uint32_t& count_of(const Lookup& wanted);
  void add_lookup(const Lookup& wanted, int64_t count);
  void carry(const uint8_t* key, size_t length);
  const uint8_t* long_bytes(const ShortKey& key, size_t& length) const;
  bool is_full(size_t memory_limit) const;
  void grow();
  void reserve_batch(size_t n);

  Kernel kernel_;
  ZeroedArray<Line> lines_;
  size_t mask_ = 0;
  size_t size_ = 0;
  std::vector<uint8_t> arena_;  // for each long pre-token, the length in 8 bytes, then the bytes
  std::unordered_map<std::string, int64_t> high_counts_;  // multiples of 2^32
};

// Its functions are nullptr if it was not compiled. May be used only if cpu_has_avx2_and_aes().
PretokenTable::Kernel avx2_count_kernel();

}  // namespace bpe
