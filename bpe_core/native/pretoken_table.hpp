// Counting pre-tokens: an open-addressing table from bytes to a 64-bit count. Keys of up to 16
// bytes lie in the entry itself, longer ones in an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "bytes_hash.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "zeroed_array.hpp"

namespace bpe {

// Where a pre-token longer than the limit stands: it is not counted.
struct LongPretoken {
  size_t document;
  size_t begin;  // in the document
  size_t length;
};

// std::overflow_error that names the key.
[[noreturn]] void throw_count_overflow(const uint8_t* key, size_t length);

class PretokenTable {
 public:
  PretokenTable();

  // Counts the pre-tokens of documents data[starts[i], ends[i]), cut at special tokens, from
  // document `first` on, until `memory_limit` (0: none) would be passed. Returns the number of the
  // first document not counted; `n` when all are. At least one document is counted a call.
  // `size` bytes of data may be read. Pre-tokens above max_pretoken_bytes (0: no limit) are left
  // out and told in `too_long`.
  size_t add_documents(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* ends,
                       size_t n, size_t first, Scanner scanner, const SpecialMatcher& specials,
                       size_t memory_limit, size_t max_pretoken_bytes,
                       std::vector<LongPretoken>& too_long);

  // Adds `count` to a key. std::overflow_error when the sum passes 64 bits.
  void add(const uint8_t* key, size_t length, int64_t count);
  void add_table(const PretokenTable& other);

  void clear();  // keeps nothing, gives memory back

  size_t size() const { return size_; }
  int64_t total() const;
  size_t memory_bytes() const { return entries_.size() * sizeof(Entry) + arena_.capacity(); }

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
  struct Entry {
    uint64_t low;     // short keys: bytes 0-7; long keys: place in the arena
    uint64_t high;    // short keys: bytes 8-15; long keys: the hash
    uint64_t length;  // 0: free
    int64_t count;
  };

  void add_segment(const uint8_t* text, size_t size, size_t readable, Scanner scanner,
                   size_t max_pretoken_bytes, size_t document, size_t segment_begin,
                   std::vector<LongPretoken>& too_long);
  void add_long(const uint8_t* key, size_t length, int64_t count);
  Entry& find_short(ShortKey key, size_t length, uint64_t hash);
  bool is_full(size_t memory_limit) const;
  void grow();
  void reserve_batch(size_t n);

  ZeroedArray<Entry> entries_;
  size_t mask_ = 0;
  size_t size_ = 0;
  std::vector<uint8_t> arena_;
};

}  // namespace bpe
