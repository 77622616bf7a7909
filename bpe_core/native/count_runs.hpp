// Sorted runs of (pre-token, count): their packed form, and merging many of them as streams.
//
// A packed section is a sequence of records in strictly ascending order of the key's bytes:
//   varint  number of leading bytes shared with the key before
//   varint  number of bytes that follow
//   varint  count
//   bytes   the rest of the key
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pretoken_table.hpp"

namespace bpe {

// Packs the given entries of a table, which must be in order.
std::string pack_section(const PretokenTable& table, const std::vector<uint32_t>& entries);

// Rows as columns: keys[offsets[i], offsets[i + 1]) has counts[i].
struct CountColumns {
  std::vector<uint8_t> keys;
  std::vector<int64_t> offsets = {0};
  std::vector<int64_t> counts;
};

// Merges packed sections, adding up the counts of equal keys. Memory: one chunk per source.
class CountMerger {
 public:
  // Replaces `chunk` by the next bytes of a source; an empty chunk is its end.
  using Refill = std::function<void(size_t source, std::string& chunk)>;

  CountMerger(size_t sources, Refill refill);

  // Appends rows until there are max_rows, or their keys have max_bytes or more, or everything is
  // merged. The rows of a call depend on the merged sequence alone, not on the sources' chunks.
  // Throws std::invalid_argument for a damaged section, std::overflow_error for a sum above 64
  // bits.
  CountColumns read(size_t max_rows, size_t max_bytes);

 private:
  struct Source {
    std::string chunk;
    size_t at = 0;
    bool ended = false;
    std::string key;
    int64_t count = 0;
  };

  bool fill(size_t source);
  uint64_t read_varint(size_t source);
  bool advance(size_t source);  // to the next record; false at the end
  bool later(size_t a, size_t b) const;

  Refill refill_;
  std::vector<Source> sources_;
  std::vector<size_t> heap_;  // of sources by their current key
};

}  // namespace bpe
