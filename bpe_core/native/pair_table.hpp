// Pairs of symbols with their counts and positions.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace bpe {

inline uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }
inline uint32_t left_of(uint64_t key) { return static_cast<uint32_t>(key >> 32); }
inline uint32_t right_of(uint64_t key) { return static_cast<uint32_t>(key); }

// Sums for a pair before it is known if the pair is kept.
struct PairTally {
  uint64_t count = 0;        // number of occurrences, weighted by the counts of the words
  uint64_t occurrences = 0;  // number of positions
  uint64_t list = 0;         // its first position; later, where the next position is to be written
};

struct PairRecord {
  uint64_t key = 0;
  int64_t count = 0;
  uint64_t list = 0;  // its positions are entries list, ..., list + list_size - 1 of the arena
  uint64_t list_size = 0;
};

// Records, such as PairRecord, by key, which is never 0. Open addressing with linear probing;
// records are dropped only when the table grows.
template <class Record>
class PairTable {
 public:
  PairTable() : records_(kMinCapacity) {}

  void clear() {
    records_.assign(kMinCapacity, Record{});
    shift_ = kMinShift;
    size_ = 0;
  }

  void prefetch(uint64_t key) const { __builtin_prefetch(&records_[slot(key)]); }

  Record* find(uint64_t key) {
    const size_t mask = records_.size() - 1;
    for (size_t i = slot(key);; i = (i + 1) & mask) {
      if (records_[i].key == key) return &records_[i];
      if (records_[i].key == 0) return nullptr;
    }
  }

  // The record may be moved by the next call. Records of a count below `threshold` may be dropped.
  Record& find_or_add(uint64_t key, int64_t threshold) {
    if (2 * (size_ + 1) > records_.size()) rehash(threshold);
    const size_t mask = records_.size() - 1;
    size_t i = slot(key);
    while (records_[i].key != key && records_[i].key != 0) i = (i + 1) & mask;
    if (records_[i].key == 0) {
      records_[i].key = key;
      ++size_;
    }
    return records_[i];
  }

  size_t memory_bytes() const { return records_.capacity() * sizeof(Record); }

 private:
  static constexpr int kMinShift = 64 - 12;
  static constexpr size_t kMinCapacity = size_t{1} << (64 - kMinShift);

  size_t slot(uint64_t key) const {
    key *= 0x9e3779b97f4a7c15u;
    return static_cast<size_t>((key ^ key >> 32) * 0x9e3779b97f4a7c15u >> shift_);
  }

  void rehash(int64_t threshold) {
    const auto kept = [&](const Record& r) { return r.key != 0 && r.count >= threshold; };
    size_ = static_cast<size_t>(std::count_if(records_.begin(), records_.end(), kept));
    size_t capacity = kMinCapacity;
    shift_ = kMinShift;
    for (; 3 * size_ >= capacity; capacity *= 2) --shift_;
    std::vector<Record> old(capacity);
    old.swap(records_);
    for (const Record& record : old) {
      if (!kept(record)) continue;
      size_t i = slot(record.key);
      while (records_[i].key != 0) i = (i + 1) & (capacity - 1);
      records_[i] = record;
    }
  }

  std::vector<Record> records_;
  int shift_ = kMinShift;
  size_t size_ = 0;
};

}  // namespace bpe
