#include "pretoken_table.hpp"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "bytes_hash.hpp"
#include "count_segment.hpp"
#include "scanner_blocks.hpp"
#include "xxh3.hpp"

namespace bpe {
namespace {

constexpr size_t kFirstLines = size_t{1} << 7;  // few, since there may be thousands of tables
constexpr size_t kBatch = 64;         // entries of another table that are looked up together
constexpr size_t kEntriesOfLine = 2;  // on average, when the table grows
constexpr int kLowCountBits = 32;

uint64_t big_endian(uint64_t word) { return __builtin_bswap64(word); }

struct PortableCountKeys : PortableKeys {
  static size_t find(const ShortKey* keys, const ShortKey& key) {
    size_t slot = 3;
    for (size_t i = 0; i < 3; ++i) slot = keys[i] == key ? i : slot;
    return slot;
  }
};

template <bool kDocuments>
constexpr PretokenTable::Kernel kPortableCountKernel = {
    SegmentCounter<PortableCountKeys, kDocuments>::add_segment, PortableCountKeys::hash};

std::string to_string(const uint8_t* key, size_t length) {
  return std::string(reinterpret_cast<const char*>(key), length);
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

PretokenTable::PretokenTable(bool portable, bool counts_documents)
    : lines_(kFirstLines), mask_(kFirstLines - 1) {
  if (counts_documents) documents_ = ZeroedArray<DocumentLine>(kFirstLines);
  if (!portable && cpu_has_avx2_and_aes()) {
    kernel_ = avx2_count_kernel(counts_documents);
  } else {
    kernel_ = counts_documents ? kPortableCountKernel<true> : kPortableCountKernel<false>;
  }
}

void PretokenTable::clear() {
  const Kernel kernel = kernel_;
  *this = PretokenTable(false, counts_documents());
  kernel_ = kernel;
}

void PretokenTable::start_document() {
  if (++document_ == 0) throw std::overflow_error("more than 2^32 documents in a table");
}

const uint8_t* PretokenTable::long_bytes(const ShortKey& key, size_t& length) const {
  const uint8_t* const record = arena_.data() + (key.high & ~(kTableKey | kLongKey));
  length = load_u64(record);
  return record + sizeof(uint64_t);
}

void PretokenTable::grow() {
  ZeroedArray<Line> old(lines_.size() * 2);
  std::swap(lines_, old);
  mask_ = lines_.size() - 1;
  ZeroedArray<DocumentLine> old_documents(documents_.size() * 2);
  std::swap(documents_, old_documents);
  for (size_t i = 0; i < old.size(); ++i) {
    for (size_t slot = 0; slot < old[i].used; ++slot) {
      const ShortKey& key = old[i].keys[slot];
      Line* line = &line_of(is_long(key) ? key.low : kernel_.hash(key));
      while (line->used == kSlots) line = &after(*line);
      line->keys[line->used] = key;
      line->counts[line->used] = old[i].counts[slot];
      if (counts_documents()) {
        DocumentLine& documents = documents_of(*line);
        documents.last[line->used] = old_documents[i].last[slot];
        documents.number[line->used] = old_documents[i].number[slot];
      }
      ++line->used;
    }
  }
}

// Leaves some slots free after n more keys.
void PretokenTable::reserve_batch(size_t n) {
  while (size_ + n > lines_.size() * kEntriesOfLine) grow();
}

PretokenTable::Lookup PretokenTable::lookup(const uint8_t* bytes, size_t length) const {
  Lookup wanted = {{}, 0, bytes, length};
  if (has_short_key(bytes, length)) {
    PortableKeys::make(bytes, length, length, wanted.key);
    wanted.hash = kernel_.hash(wanted.key);
  } else {
    wanted.hash = make_long_key(bytes, length, wanted.key);
  }
  return wanted;
}

bool PretokenTable::is_at(const Line& line, size_t slot, const Lookup& wanted) const {
  const ShortKey& key = line.keys[slot];
  if (!is_long(wanted.key)) return key == wanted.key;
  if (!is_long(key) || key.low != wanted.key.low) return false;
  size_t length;
  const uint8_t* const bytes = long_bytes(key, length);
  return length == wanted.length && std::memcmp(bytes, wanted.bytes, length) == 0;
}

// The place of a key. A missing key is added, for which there must be room.
PretokenTable::Place PretokenTable::place_of(const Lookup& wanted) {
  Line* line = &line_of(wanted.hash);
  for (;; line = &after(*line)) {
    for (size_t slot = 0; slot < line->used; ++slot) {
      if (is_at(*line, slot, wanted)) return {*line, slot};
    }
    if (line->used < kSlots) break;
  }
  const size_t slot = line->used++;
  line->keys[slot] = wanted.key;
  if (is_long(wanted.key)) {
    line->keys[slot].high = kTableKey | kLongKey | arena_.size();
    const uint64_t length = wanted.length;
    const auto* const prefix = reinterpret_cast<const uint8_t*>(&length);
    arena_.insert(arena_.end(), prefix, prefix + sizeof length);
    arena_.insert(arena_.end(), wanted.bytes, wanted.bytes + wanted.length);
  }
  ++size_;
  return {*line, slot};
}

// Called after the low bits of a count have become 0.
void PretokenTable::carry(const uint8_t* key, size_t length) {
  high_counts_[to_string(key, length)] += int64_t{1} << kLowCountBits;
}

PretokenTable::Place PretokenTable::add_lookup(const Lookup& wanted, int64_t count) {
  const Place place = place_of(wanted);
  uint32_t& low = place.line.counts[place.slot];
  int64_t sum = low;
  if (!high_counts_.empty()) {
    const auto high = high_counts_.find(to_string(wanted.bytes, wanted.length));
    if (high != high_counts_.end()) sum += high->second;
  }
  if (__builtin_add_overflow(sum, count, &sum)) throw_count_overflow(wanted.bytes, wanted.length);
  low = static_cast<uint32_t>(sum);
  if (sum != low) high_counts_[to_string(wanted.bytes, wanted.length)] = sum - low;
  return place;
}

void PretokenTable::add(const uint8_t* key, size_t length, int64_t count) {
  if (length == 0) throw std::invalid_argument("a pre-token must not be empty");
  reserve_batch(1);
  const Place place = add_lookup(lookup(key, length), count);
  if (counts_documents()) note_document(place.line, place.slot);
}

void PretokenTable::add_table(const PretokenTable& other) {
  std::vector<Lookup> batch;
  std::vector<Row> rows;
  const auto add_batch = [&] {
    reserve_batch(batch.size());
    for (const Lookup& wanted : batch) __builtin_prefetch(&line_of(wanted.hash), 1);
    for (size_t i = 0; i < batch.size(); ++i) {
      const Place place = add_lookup(batch[i], rows[i].count);
      if (counts_documents()) {
        documents_of(place.line).number[place.slot] += static_cast<uint32_t>(rows[i].documents);
      }
    }
    batch.clear();
    rows.clear();
  };
  for (size_t i = 0; i < other.lines_.size(); ++i) {
    for (size_t slot = 0; slot < other.lines_[i].used; ++slot) {
      const Row added = other.row(static_cast<uint32_t>(i * kSlots + slot));
      batch.push_back(lookup(added.key, added.length));
      rows.push_back(added);
    }
    if (batch.size() >= kBatch) add_batch();
  }
  add_batch();
}

// While the table or the arena grows, the old and the twice as large new one exist together.
bool PretokenTable::is_full(size_t memory_limit) const {
  const size_t after_a_batch = size_ + SegmentCounter<PortableCountKeys, false>::kBatch;
  const size_t capacity = lines_.size() * kEntriesOfLine;
  const bool table_grows = size_ * 9 > capacity * 8 || after_a_batch > capacity;
  const bool arena_grows = arena_.size() * 9 > arena_.capacity() * 8;
  const size_t line_bytes = sizeof(Line) + (counts_documents() ? sizeof(DocumentLine) : 0);
  const size_t table_bytes = lines_.size() * line_bytes * (table_grows ? 3 : 1);
  return document_ == UINT32_MAX ||
         table_bytes + arena_.capacity() * (arena_grows ? 3 : 1) > memory_limit;
}

int64_t PretokenTable::total() const {
  int64_t sum = 0;
  const auto add = [&](int64_t count) {
    if (__builtin_add_overflow(sum, count, &sum)) {
      throw std::overflow_error("the sum of all counts does not fit 64 bits");
    }
  };
  for (size_t i = 0; i < lines_.size(); ++i) {
    for (size_t slot = 0; slot < lines_[i].used; ++slot) add(lines_[i].counts[slot]);
  }
  for (const auto& [key, count] : high_counts_) add(count);
  return sum;
}

PretokenTable::Row PretokenTable::row(uint32_t entry) const {
  const Line& line = lines_[entry / kSlots];
  const ShortKey& key = line.keys[entry % kSlots];
  Row row = {reinterpret_cast<const uint8_t*>(&key), 0, line.counts[entry % kSlots],
             documents_with(entry)};
  if (is_long(key)) {
    row.key = long_bytes(key, row.length);
  } else {
    row.length = length_of_short_key(key);
  }
  if (!high_counts_.empty()) {
    const auto high = high_counts_.find(to_string(row.key, row.length));
    if (high != high_counts_.end()) row.count += high->second;
  }
  return row;
}

std::vector<std::vector<uint32_t>> PretokenTable::shards(size_t shards) const {
  std::vector<std::vector<uint32_t>> result(shards);
  for (size_t i = 0; i < lines_.size(); ++i) {
    const size_t later = std::min(i + kAhead, lines_.size() - 1);
    for (size_t slot = 0; slot < lines_[later].used; ++slot) {
      prefetch_bytes(static_cast<uint32_t>(later * kSlots + slot));
    }
    for (size_t slot = 0; slot < lines_[i].used; ++slot) {
      const uint32_t entry = static_cast<uint32_t>(i * kSlots + slot);
      size_t shard = 0;
      if (shards > 1) {
        const Row key = row(entry);
        shard = xxh3_128(key.key, key.length).low % shards;
      }
      result[shard].push_back(entry);
    }
  }
  return result;
}

PretokenTable::SortedEntry PretokenTable::to_sort(uint32_t entry) const {
  const Line& line = lines_[entry / kSlots];
  ShortKey key = line.keys[entry % kSlots];
  if (is_long(key)) {
    size_t length;
    const uint8_t* const bytes = long_bytes(key, length);
    key = load_short_key(bytes, kShortKeyBytes, length);
  }
  // The last byte of a key of up to 15 bytes is its length.
  uint64_t second = big_endian(key.high);
  if (key.high >> 56 >= kShortKeyBytes || is_long(line.keys[entry % kSlots])) {
    second = (second & ~uint64_t{0xFF}) | kShortKeyBytes;
  }
  return {big_endian(key.low), second, entry, line.counts[entry % kSlots], documents_with(entry)};
}

std::vector<PretokenTable::SortedEntry> PretokenTable::sorted(
    const std::vector<uint32_t>& entries) const {
  std::vector<SortedEntry> order;
  order.reserve(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    if (i + kAhead < entries.size()) prefetch_bytes(entries[i + kAhead]);
    order.push_back(to_sort(entries[i]));
  }
  std::sort(order.begin(), order.end(), [&](const SortedEntry& a, const SortedEntry& b) {
    if (a.first != b.first) return a.first < b.first;
    if (a.second != b.second) return a.second < b.second;
    return a.is_long() && row(a.number).bytes() < row(b.number).bytes();
  });
  return order;
}

}  // namespace bpe
