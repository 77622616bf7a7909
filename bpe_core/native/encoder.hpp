// Encoding: documents to token ids, by merges in order of rank, with a cache from pre-token to ids.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bytes_hash.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "zeroed_array.hpp"

namespace bpe {

// A growing array of ids whose memory can be handed on.
template <class Id>
class IdBuffer {
 public:
  IdBuffer() = default;
  IdBuffer(const IdBuffer&) = delete;
  IdBuffer& operator=(const IdBuffer&) = delete;
  IdBuffer(IdBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        capacity_(std::exchange(other.capacity_, 0)) {}
  IdBuffer& operator=(IdBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
    return *this;
  }
  ~IdBuffer() { std::free(data_); }

  // Makes room for `more` ids; they are written through end() and counted by advance().
  void reserve_more(size_t more) {
    if (size_ + more > capacity_) reallocate(std::max(size_ + more, capacity_ + capacity_ / 2));
  }
  Id* end() { return data_ + size_; }
  void advance(size_t n) { size_ += n; }
  void shrink() { reallocate(size_); }

  size_t size() const { return size_; }
  const Id* data() const { return data_; }
  Id* release() {
    size_ = capacity_ = 0;
    return std::exchange(data_, nullptr);
  }

 private:
  void reallocate(size_t capacity) {
    void* moved = std::realloc(data_, std::max<size_t>(capacity, 1) * sizeof(Id));
    if (moved == nullptr) throw std::bad_alloc();
    data_ = static_cast<Id*>(moved);
    capacity_ = capacity;
    advise_huge_pages(data_, capacity * sizeof(Id));
  }

  Id* data_ = nullptr;
  size_t size_ = 0;
  size_t capacity_ = 0;
};

// Ids, and the rank: lower ranks merge first. Rules of one rank have one result (a tokenizer made
// from ranks: every split of a token).
struct MergeRule {
  uint32_t left;
  uint32_t right;
  uint32_t result;
  uint32_t rank;
};

// Documents data[starts[i], ends[i]); `size` bytes of data may be read.
struct DocumentSpans {
  const uint8_t* data;
  size_t size;
  const int64_t* starts;
  const int64_t* ends;
  size_t n;
};

// What is put around each document.
struct Affixes {
  std::vector<uint32_t> prepend;
  std::vector<uint32_t> append;
};

// A byte that has no id, where no id for the unknown was given.
struct UnknownByte {
  uint8_t byte;
};

class Encoder {
 public:
  // Caches and scratch of one thread at a time; all its memory is taken here, at once.
  class Workspace {
   public:
    explicit Workspace(size_t cache_entries);

   private:
    friend class Encoder;
    static constexpr size_t kKeyBytes = 15;

    // A pre-token and its ids. The key of one of up to 15 bytes is these bytes and, in the last
    // byte, their number; that of a longer one is its hash and its length, and its bytes are
    // compared in the ring.
    struct Entry {
      ShortKey key;       // all zero: free
      uint8_t value[16];  // ids and, in the last one or two bytes, their number; 0: in the ring
    };

    // Where ids and bytes are that an entry has no room for. The newest overwrite the oldest.
    class Ring {
     public:
      Ring();
      // Returns the place of n words to write, at most 1,024.
      uint64_t append(size_t n);
      bool holds(uint64_t place) const { return next_ - place <= kWords; }
      uint32_t* at(uint64_t place) { return words_.data() + place % kWords; }

     private:
      static constexpr size_t kWords = size_t{1} << 22;
      ZeroedArray<uint32_t> words_;
      uint64_t next_ = 0;
    };

    ZeroedArray<Entry> entries_;  // buckets of two
    size_t bucket_mask_;
    Ring ring_;
    std::vector<uint32_t> ids_;  // of the pre-token at hand
  };

  // byte_ids: the id of each single byte, -1 where it has none. rules: in ascending order of rank;
  // of equal pairs the first counts. unknown_id: -1 to throw UnknownByte instead.
  Encoder(const std::array<int64_t, 256>& byte_ids, const std::vector<MergeRule>& rules,
          int64_t unknown_id, Scanner scanner);

  // Pre-tokens that are a token whatever the merges make of them (ignore_merges).
  void set_whole_tokens(std::unordered_map<std::string, uint32_t> ids) { whole_ = std::move(ids); }

  // Encodes documents cut at special tokens, whose ids stand in special_ids by match index, and
  // appends the number of ids after each document to `offsets`.
  template <class Id>
  void encode_documents(Workspace& workspace, const DocumentSpans& documents,
                        const SpecialMatcher& specials, const std::vector<uint32_t>& special_ids,
                        const Affixes& affixes, IdBuffer<Id>& ids, int64_t* offsets) const;

  // Encodes spans that are pre-tokens (custom patterns); a span with special_ids[i] >= 0 is that
  // special token.
  template <class Id>
  void encode_spans(Workspace& workspace, const DocumentSpans& spans, const int64_t* special_ids,
                    IdBuffer<Id>& ids, int64_t* offsets) const;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;

  size_t filter_byte(size_t hash) const;
  uint32_t rank_of(uint32_t left, uint32_t right) const;
  void prefetch_rank(uint32_t left, uint32_t right) const;
  void merge_pretoken(const uint8_t* bytes, size_t length, std::vector<uint32_t>& ids) const;
  size_t merge_short(const uint8_t* bytes, size_t length, uint32_t* symbols) const;
  void merge_long(const uint8_t* bytes, size_t length, std::vector<uint32_t>& ids) const;
  uint32_t id_of(uint32_t symbol) const;
  const uint32_t* whole_token(const uint8_t* bytes, size_t length) const;
  size_t merge_to_ids(const uint8_t* bytes, size_t length, uint32_t* ids) const;
  static uint64_t cache_key(const uint8_t* bytes, size_t length, size_t readable, ShortKey& key);
  template <class Id>
  void encode_text(Workspace& workspace, const uint8_t* text, size_t size, size_t readable,
                   IdBuffer<Id>& ids) const;
  template <class Id, class Inline>
  void encode_segment(Workspace& workspace, const uint8_t* text, size_t size, size_t readable,
                      IdBuffer<Id>& ids) const;
  template <class Id, class Inline>
  Id* encode_rare(Workspace& workspace, const uint8_t* bytes, size_t length, ShortKey key,
                  size_t bucket, Id* out) const;

  // Symbols are numbered densely: the 256 bytes, then the other tokens. A rule is one word:
  // left, right and rank + 1 in 21 bits each; 0 is free.
  std::vector<uint32_t> id_of_symbol_;
  std::vector<uint32_t> result_of_rank_;
  ZeroedArray<uint64_t> rules_;
  size_t rule_mask_ = 0;
  // A bit for the hash of every rule's pair. Most pairs have no rule: this says so of nearly all
  // of them, and stays in the nearer caches.
  std::vector<uint8_t> rule_filter_;
  std::vector<uint32_t> byte_pair_ranks_;  // 256 x 256
  std::unordered_map<std::string, uint32_t> whole_;
  int64_t unknown_id_;
  bool ids_of_16_bits_ = true;  // how the cache holds them; others are in its ring
  Scanner scanner_;
};

}  // namespace bpe
