#include "count_runs.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

namespace bpe {
namespace {

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

[[noreturn]] void damaged(size_t source, const char* what) {
  throw std::invalid_argument("section " + std::to_string(source) +
                              " of the counts is damaged: " + what);
}

}  // namespace

std::string pack_section(const PretokenTable& table, const std::vector<uint32_t>& entries) {
  std::string packed;
  const uint8_t* last = nullptr;
  size_t last_length = 0;
  for (uint32_t entry : entries) {
    const PretokenTable::Row row = table.row(entry);
    const size_t common = std::min(last_length, row.length);
    size_t shared = 0;
    while (shared < common && last[shared] == row.key[shared]) ++shared;
    append_varint(packed, shared);
    append_varint(packed, row.length - shared);
    append_varint(packed, static_cast<uint64_t>(row.count));
    packed.append(reinterpret_cast<const char*>(row.key) + shared, row.length - shared);
    last = row.key;
    last_length = row.length;
  }
  return packed;
}

CountMerger::CountMerger(size_t sources, Refill refill)
    : refill_(std::move(refill)), sources_(sources) {
  for (size_t i = 0; i < sources; ++i) {
    if (advance(i)) heap_.push_back(i);
  }
  std::make_heap(heap_.begin(), heap_.end(), [this](size_t a, size_t b) { return later(a, b); });
}

bool CountMerger::later(size_t a, size_t b) const {
  const int order = sources_[a].key.compare(sources_[b].key);
  return order != 0 ? order > 0 : a > b;
}

bool CountMerger::fill(size_t index) {
  Source& source = sources_[index];
  if (source.at < source.chunk.size()) return true;
  if (source.ended) return false;
  refill_(index, source.chunk);
  source.at = 0;
  source.ended = source.chunk.empty();
  return !source.ended;
}

uint64_t CountMerger::read_varint(size_t index) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    if (!fill(index)) damaged(index, "it ends inside a number");
    Source& source = sources_[index];
    const uint8_t byte = static_cast<uint8_t>(source.chunk[source.at++]);
    if (shift == 63 && byte > 1) break;
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  damaged(index, "a number is longer than 64 bits");
}

bool CountMerger::advance(size_t index) {
  if (!fill(index)) return false;
  Source& source = sources_[index];
  const uint64_t shared = read_varint(index);
  uint64_t rest = read_varint(index);
  const uint64_t count = read_varint(index);
  if (shared > source.key.size()) damaged(index, "a key shares more than the one before has");
  if (count == 0 || count > static_cast<uint64_t>(INT64_MAX))
    damaged(index, "a count is not positive");
  const std::string previous_tail = source.key.substr(shared);
  source.key.resize(shared);
  while (rest > 0) {
    if (!fill(index)) damaged(index, "it ends inside a key");
    const size_t take = std::min<uint64_t>(rest, source.chunk.size() - source.at);
    source.key.append(source.chunk, source.at, take);
    source.at += take;
    rest -= take;
  }
  if (source.key.compare(shared, std::string::npos, previous_tail) <= 0) {
    damaged(index, "its keys are not in ascending order");
  }
  source.count = static_cast<int64_t>(count);
  return true;
}

CountColumns CountMerger::read(size_t max_rows, size_t max_bytes) {
  const auto order = [this](size_t a, size_t b) { return later(a, b); };
  CountColumns rows;
  std::string key;
  while (!heap_.empty() && rows.counts.size() < max_rows && rows.keys.size() < max_bytes) {
    key = sources_[heap_.front()].key;
    int64_t sum = 0;
    while (!heap_.empty() && sources_[heap_.front()].key == key) {
      const size_t source = heap_.front();
      if (__builtin_add_overflow(sum, sources_[source].count, &sum)) {
        throw_count_overflow(reinterpret_cast<const uint8_t*>(key.data()), key.size());
      }
      std::pop_heap(heap_.begin(), heap_.end(), order);
      if (advance(source)) {
        std::push_heap(heap_.begin(), heap_.end(), order);
      } else {
        heap_.pop_back();
      }
    }
    rows.keys.insert(rows.keys.end(), key.begin(), key.end());
    rows.offsets.push_back(static_cast<int64_t>(rows.keys.size()));
    rows.counts.push_back(sum);
  }
  return rows;
}

}  // namespace bpe
