#include "pretoken_table.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>

#include "bytes_hash.hpp"
#include "xxh3.hpp"

namespace bpe {
namespace {

constexpr size_t kFirstCapacity = size_t{1} << 12;
constexpr size_t kBatch = 64;  // pre-tokens hashed and prefetched together

uint64_t big_endian(uint64_t word) { return __builtin_bswap64(word); }

void checked_add(int64_t& sum, int64_t count, const uint8_t* key, size_t length) {
  int64_t result;
  if (__builtin_add_overflow(sum, count, &result)) {
    throw_count_overflow(key, length);
  }
  sum = result;
}

}  // namespace

void throw_count_overflow(const uint8_t* key, size_t length) {
  constexpr size_t kShownBytes = 40;
  std::string shown;
  for (size_t i = 0; i < std::min(length, kShownBytes); ++i) {
    char escaped[8];
    const bool printable = key[i] >= 0x20 && key[i] < 0x7F && key[i] != '\\';
    std::snprintf(escaped, sizeof escaped, printable ? "%c" : "\\x%02x", key[i]);
    shown += escaped;
  }
  if (length > kShownBytes) shown += "...";
  throw std::overflow_error("the count of pre-token '" + shown + "' (" + std::to_string(length) +
                            " bytes) does not fit 64 bits");
}

PretokenTable::PretokenTable() : entries_(kFirstCapacity), mask_(kFirstCapacity - 1) {}

void PretokenTable::clear() { *this = PretokenTable(); }

void PretokenTable::grow() {
  ZeroedArray<Entry> larger(entries_.size() * 2);
  const size_t mask = larger.size() - 1;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.length == 0) continue;
    const uint64_t hash = entry.length <= kShortKeyBytes
                              ? hash_short_key({entry.low, entry.high}, entry.length)
                              : entry.high;
    size_t at = hash & mask;
    while (larger[at].length != 0) at = (at + 1) & mask;
    larger[at] = entry;
  }
  entries_ = std::move(larger);
  mask_ = mask;
}

// Keeps the table at most half full after n more keys.
void PretokenTable::reserve_batch(size_t n) {
  while ((size_ + n) * 2 > entries_.size()) grow();
}

PretokenTable::Entry& PretokenTable::find_short(ShortKey key, size_t length, uint64_t hash) {
  size_t at = hash & mask_;
  while (true) {
    Entry& entry = entries_[at];
    if (entry.low == key.low && entry.high == key.high && entry.length == length) return entry;
    if (entry.length == 0) return entry;
    at = (at + 1) & mask_;
  }
}

void PretokenTable::add_long(const uint8_t* key, size_t length, int64_t count) {
  const uint64_t hash = hash_long_key(key, length);
  size_t at = hash & mask_;
  while (true) {
    Entry& entry = entries_[at];
    if (entry.length == 0) {
      entry = {arena_.size(), hash, length, count};
      arena_.insert(arena_.end(), key, key + length);
      ++size_;
      return;
    }
    if (entry.high == hash && entry.length == length &&
        std::memcmp(arena_.data() + entry.low, key, length) == 0) {
      checked_add(entry.count, count, key, length);
      return;
    }
    at = (at + 1) & mask_;
  }
}

void PretokenTable::add(const uint8_t* key, size_t length, int64_t count) {
  if (length == 0) throw std::invalid_argument("a pre-token must not be empty");
  reserve_batch(1);
  if (length > kShortKeyBytes) return add_long(key, length, count);
  const ShortKey short_key = load_short_key(key, length, length);
  Entry& entry = find_short(short_key, length, hash_short_key(short_key, length));
  if (entry.length == 0) {
    entry = {short_key.low, short_key.high, length, 0};
    ++size_;
  }
  checked_add(entry.count, count, key, length);
}

void PretokenTable::add_table(const PretokenTable& other) {
  for (size_t i = 0; i < other.entries_.size(); ++i) {
    const Entry& entry = other.entries_[i];
    if (entry.length == 0) continue;
    const Row row = other.row(static_cast<uint32_t>(i));
    add(row.key, row.length, row.count);
  }
}

void PretokenTable::add_segment(const uint8_t* text, size_t size, size_t readable, Scanner scanner,
                                size_t max_pretoken_bytes, size_t document, size_t segment_begin,
                                std::vector<LongPretoken>& too_long) {
  size_t ends[kBatch];
  ShortKey keys[kBatch];
  uint64_t hashes[kBatch];
  uint8_t lengths[kBatch];
  const size_t longest = max_pretoken_bytes == 0 ? SIZE_MAX : max_pretoken_bytes;
  size_t pos = 0;
  while (pos < size) {
    const size_t found = scanner(text, size, pos, ends, kBatch);
    reserve_batch(found);
    size_t short_keys = 0;
    for (size_t i = 0; i < found; ++i) {
      const size_t length = ends[i] - pos;
      if (length > longest) [[unlikely]] {
        too_long.push_back({document, segment_begin + pos, length});
      } else if (length <= kShortKeyBytes) [[likely]] {
        const ShortKey key = load_short_key(text + pos, length, readable - pos);
        const uint64_t hash = hash_short_key(key, length);
        keys[short_keys] = key;
        hashes[short_keys] = hash;
        lengths[short_keys] = static_cast<uint8_t>(length);
        ++short_keys;
        __builtin_prefetch(&entries_[hash & mask_], 1);
      } else {
        add_long(text + pos, length, 1);
      }
      pos = ends[i];
    }
    for (size_t i = 0; i < short_keys; ++i) {
      Entry& entry = find_short(keys[i], lengths[i], hashes[i]);
      if (entry.length == 0) [[unlikely]] {
        entry = {keys[i].low, keys[i].high, lengths[i], 0};
        ++size_;
      }
      // Text of 2^63 bytes would be needed to overflow by ones; sums of counts are checked in add.
      ++entry.count;
    }
  }
}

// While the table or the arena grows, the old and the twice as large new one exist together.
bool PretokenTable::is_full(size_t memory_limit) const {
  // With less than a small table needs, each document would fill it.
  const size_t limit = std::max(memory_limit, 2 * kFirstCapacity * sizeof(Entry));
  const bool table_grows = size_ * 9 > entries_.size() * 4;
  const bool arena_grows = arena_.size() * 9 > arena_.capacity() * 8;
  const size_t table_bytes = entries_.size() * sizeof(Entry) * (table_grows ? 3 : 1);
  return table_bytes + arena_.capacity() * (arena_grows ? 3 : 1) > limit;
}

size_t PretokenTable::add_documents(const uint8_t* data, size_t size, const int64_t* starts,
                                    const int64_t* ends, size_t n, size_t first, Scanner scanner,
                                    const SpecialMatcher& specials, size_t memory_limit,
                                    size_t max_pretoken_bytes,
                                    std::vector<LongPretoken>& too_long) {
  for (size_t i = first; i < n; ++i) {
    const uint8_t* text = data + starts[i];
    const size_t length = static_cast<size_t>(ends[i] - starts[i]);
    const size_t readable = size - static_cast<size_t>(starts[i]);
    size_t begin = 0;
    SpecialMatch match;
    while (specials.find(text, length, begin, match)) {
      add_segment(text + begin, match.begin - begin, readable - begin, scanner, max_pretoken_bytes,
                  i, begin, too_long);
      begin = match.end;
    }
    add_segment(text + begin, length - begin, readable - begin, scanner, max_pretoken_bytes, i,
                begin, too_long);
    if (memory_limit != 0 && is_full(memory_limit)) return i + 1;
  }
  return n;
}

int64_t PretokenTable::total() const {
  int64_t sum = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].length == 0) continue;
    if (__builtin_add_overflow(sum, entries_[i].count, &sum)) {
      throw std::overflow_error("the sum of all counts does not fit 64 bits");
    }
  }
  return sum;
}

PretokenTable::Row PretokenTable::row(uint32_t index) const {
  const Entry& entry = entries_[index];
  const uint8_t* key = entry.length <= kShortKeyBytes ? reinterpret_cast<const uint8_t*>(&entry.low)
                                                      : arena_.data() + entry.low;
  return {key, entry.length, entry.count};
}

std::vector<std::vector<uint32_t>> PretokenTable::sorted_shards(size_t shards) const {
  std::vector<std::vector<uint32_t>> result(shards);
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].length == 0) continue;
    const Row key = row(static_cast<uint32_t>(i));
    const size_t shard = shards == 1 ? 0 : xxh3_128(key.key, key.length).low % shards;
    result[shard].push_back(static_cast<uint32_t>(i));
  }
  // Two big-endian words order the first 16 bytes as memcmp does; only longer keys go on.
  struct Sortable {
    uint64_t first;
    uint64_t second;
    uint32_t entry;
  };
  std::vector<Sortable> order;
  for (std::vector<uint32_t>& shard : result) {
    order.clear();
    for (uint32_t index : shard) {
      const Row key = row(index);
      const ShortKey head = load_short_key(key.key, std::min(key.length, kShortKeyBytes),
                                           std::min(key.length, kShortKeyBytes));
      order.push_back({big_endian(head.low), big_endian(head.high), index});
    }
    std::sort(order.begin(), order.end(), [&](const Sortable& a, const Sortable& b) {
      if (a.first != b.first) return a.first < b.first;
      if (a.second != b.second) return a.second < b.second;
      const Row left = row(a.entry);
      const Row right = row(b.entry);
      const size_t common = std::min(left.length, right.length);
      if (common > kShortKeyBytes) {
        const int order = std::memcmp(left.key + kShortKeyBytes, right.key + kShortKeyBytes,
                                      common - kShortKeyBytes);
        if (order != 0) return order < 0;
      }
      return left.length < right.length;
    });
    for (size_t i = 0; i < order.size(); ++i) shard[i] = order[i].entry;
  }
  return result;
}

}  // namespace bpe
