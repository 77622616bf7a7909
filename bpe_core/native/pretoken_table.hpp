// Counting pre-tokens: a hash table from bytes to a 64-bit count and, if documents are counted, to
// the number of documents with the pre-token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
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
  explicit PretokenTable(bool portable = false, bool counts_documents = false);

  // Counts the pre-tokens of a part of the current document. Those above max_pretoken_bytes (0: no
  // limit) are not counted but listed in `too_long`.
  void add_segment(const Segment& segment, const Scanner& scanner, size_t max_pretoken_bytes,
                   std::vector<LongPretoken>& too_long) {
    kernel_.add_segment(*this, segment, scanner, max_pretoken_bytes, too_long);
  }

  // Makes what is added from now on part of another document.
  void start_document();

  // Adds `count` to a key. Throws std::overflow_error if the sum exceeds 64 bits.
  void add(const uint8_t* key, size_t length, int64_t count);
  // Adds the counts of other documents, and the numbers of documents if both tables have them.
  void add_table(const PretokenTable& other);

  void clear();  // removes everything and releases memory

  bool counts_documents() const { return documents_.size() != 0; }
  size_t size() const { return size_; }
  int64_t total() const;
  size_t memory_bytes() const {
    return lines_.size() * sizeof(Line) + documents_.size() * sizeof(DocumentLine) +
           arena_.capacity();
  }
  // True if a document more might need more memory than this.
  bool is_full(size_t memory_limit) const;

  // An entry in the order of keys. It has the beginning of its key and its counts, so that the
  // table is read again only for long keys and counts above 32 bits.
  struct SortedEntry {
    uint64_t first;   // 8 bytes of the key, the first one highest, padded with zeros
    uint64_t second;  // 7 more bytes, then the length, or 16 if it is larger
    uint32_t number;
    uint32_t count;      // its low bits
    uint32_t documents;  // 0 if they are not counted

    // If not, equal words mean equal keys.
    bool is_long() const { return (second & 0xFF) == kShortKeyBytes; }
  };

  // The numbers of the entries by shard: low half of xxh3-128 of the key, modulo shards.
  std::vector<std::vector<uint32_t>> shards(size_t shards) const;
  // These entries, sorted by the bytes of their keys.
  std::vector<SortedEntry> sorted(const std::vector<uint32_t>& entries) const;

  struct Row {
    const uint8_t* key;
    size_t length;
    int64_t count;
    int64_t documents;  // 0 if they are not counted

    std::string_view bytes() const { return {reinterpret_cast<const char*>(key), length}; }
  };
  // A short key is in `buffer`.
  Row row(const SortedEntry& entry, ShortKey& buffer) const {
    if (entry.is_long() || !high_counts_.empty()) [[unlikely]]
      return row(entry.number);
    buffer = {__builtin_bswap64(entry.first), __builtin_bswap64(entry.second)};
    return {reinterpret_cast<const uint8_t*>(&buffer), entry.second & 0xFF, entry.count,
            entry.documents};
  }
  // Fetches what row() will read, of entries that come next in their order.
  void prefetch(const SortedEntry* entry, const SortedEntry* end) const {
    if (end - entry > 2 * kAhead && entry[2 * kAhead].is_long()) {
      __builtin_prefetch(&lines_[entry[2 * kAhead].number / kSlots]);
    }
    if (end - entry > kAhead && entry[kAhead].is_long()) prefetch_bytes(entry[kAhead].number);
  }

 private:
  template <class Keys, bool kDocuments>
  friend struct SegmentCounter;

  static constexpr size_t kSlots = 3;
  static constexpr ptrdiff_t kAhead = 12;  // entries that are fetched before they are read

  // A cache line of entries, filled from the front; if it is full, entries go to the next line. The
  // key of a long pre-token contains its hash and, with kTableKey and kLongKey, its offset in the
  // arena. The bits of a count above 32 are in high_counts_.
  struct alignas(64) Line {
    ShortKey keys[kSlots];
    uint32_t counts[kSlots];
    uint32_t used;
  };

  // Of each key of a line, the last document with it and the number of documents with it.
  struct alignas(32) DocumentLine {
    uint32_t last[kSlots];
    uint32_t number[kSlots];
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
  DocumentLine& documents_of(const Line& line) { return documents_[&line - lines_.data()]; }
  void note_document(const Line& line, size_t slot) {
    DocumentLine& documents = documents_of(line);
    documents.number[slot] += documents.last[slot] != document_;
    documents.last[slot] = document_;
  }

  // The place of an entry.
  struct Place {
    Line& line;
    size_t slot;
  };

  Row row(uint32_t entry) const;
  SortedEntry to_sort(uint32_t entry) const;
  uint32_t documents_with(uint32_t entry) const {
    return counts_documents() ? documents_[entry / kSlots].number[entry % kSlots] : 0;
  }
  Lookup lookup(const uint8_t* bytes, size_t length) const;
  bool is_at(const Line& line, size_t slot, const Lookup& wanted) const;
  Place place_of(const Lookup& wanted);
  Place add_lookup(const Lookup& wanted, int64_t count);
  void carry(const uint8_t* key, size_t length);
  const uint8_t* long_bytes(const ShortKey& key, size_t& length) const;
  void prefetch_bytes(uint32_t entry) const {
    const ShortKey& key = lines_[entry / kSlots].keys[entry % kSlots];
    if (is_long(key)) __builtin_prefetch(arena_.data() + (key.high & ~(kTableKey | kLongKey)));
  }
  void grow();
  void reserve_batch(size_t n);

  Kernel kernel_;
  ZeroedArray<Line> lines_;
  ZeroedArray<DocumentLine> documents_;  // one for each line, or none
  uint32_t document_ = 0;                // the current one; from 1
  size_t mask_ = 0;
  size_t size_ = 0;
  std::vector<uint8_t> arena_;  // for each long pre-token, the length in 8 bytes, then the bytes
  std::unordered_map<std::string, int64_t> high_counts_;  // multiples of 2^32
};

// Its functions are nullptr if it was not compiled. May be used only if cpu_has_avx2_and_aes().
PretokenTable::Kernel avx2_count_kernel(bool counts_documents);

}  // namespace bpe
