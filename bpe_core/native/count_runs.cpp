#include "count_runs.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

namespace bpe {
namespace {

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_names(std::string& out, const std::vector<std::string>& names) {
  append_varint(out, names.size());
  for (const std::string& name : names) {
    append_varint(out, name.size());
    out += name;
  }
}

[[noreturn]] void damaged(size_t source, const char* what) {
  throw std::invalid_argument("section " + std::to_string(source) +
                              " of the counts is damaged: " + what);
}

using SortedEntry = PretokenTable::SortedEntry;

// Appends records to a section.
class SectionPacker {
 public:
  explicit SectionPacker(RunLayout layout) : layout_(layout) {}

  // counts: at least one, in order of groups.
  void add(std::string_view key, const GroupCount* counts, size_t n) {
    const size_t common = std::min(last_.size(), key.size());
    size_t shared = 0;
    while (shared < common && last_[shared] == key[shared]) ++shared;
    append_varint(packed, shared);
    append_varint(packed, key.size() - shared);
    if (layout_.groups) append_varint(packed, n);
    for (size_t i = 0; i < n; ++i) {
      if (layout_.groups) append_varint(packed, counts[i].group);
      append_varint(packed, static_cast<uint64_t>(counts[i].count));
      if (layout_.documents) append_varint(packed, static_cast<uint64_t>(counts[i].documents));
    }
    packed.append(key.substr(shared));
    last_.assign(key);
  }

  std::string packed;

 private:
  RunLayout layout_;
  std::string last_;
};

// Reads the entries of several tables in the order of their keys.
class TableMerger {
 public:
  // entries: those of each table, sorted.
  TableMerger(const std::vector<const PretokenTable*>& tables,
              const std::vector<std::vector<SortedEntry>>& entries) {
    for (size_t i = 0; i < tables.size(); ++i) {
      const SortedEntry* const begin = entries[i].data();
      cursors_.push_back({tables[i], begin, begin + entries[i].size()});
      if (!entries[i].empty()) heap_.push_back(top_of(static_cast<uint32_t>(i)));
    }
    for (size_t i = heap_.size(); i > 0; --i) sift(i - 1);
  }

  // Replaces the counts by those of the next key; false at the end. The key is valid until then.
  bool next(std::string_view& key, std::vector<GroupCount>& counts) {
    counts.clear();
    if (heap_.empty()) return false;
    const Top first = heap_[0];
    const SortedEntry& entry = *cursors_[first.group].at;
    key = row_of(first.group, entry).bytes();
    do {
      Top& top = heap_[0];
      Cursor& cursor = cursors_[top.group];
      const PretokenTable::Row row = row_of(top.group, *cursor.at);
      counts.push_back({top.group, row.count, row.documents});
      if (++cursor.at != cursor.end) {
        top = top_of(top.group);
      } else {
        top = heap_.back();
        heap_.pop_back();
      }
      sift(0);
    } while (!heap_.empty() && heap_[0].first == first.first && heap_[0].second == first.second &&
             (!entry.is_long() || key_of(heap_[0].group) == key));
    return true;
  }

 private:
  struct Cursor {
    const PretokenTable* table;
    const SortedEntry* at;
    const SortedEntry* end;
  };

  // The words of a cursor's entry, which mostly decide the order.
  struct Top {
    uint64_t first;
    uint64_t second;
    uint32_t group;
  };

  Top top_of(uint32_t group) const {
    const Cursor& cursor = cursors_[group];
    cursor.table->prefetch(cursor.at, cursor.end);
    return {cursor.at->first, cursor.at->second, group};
  }

  PretokenTable::Row row_of(uint32_t group, const SortedEntry& entry) {
    return cursors_[group].table->row(entry, buffer_);
  }
  std::string_view key_of(uint32_t group) { return row_of(group, *cursors_[group].at).bytes(); }

  bool before(const Top& a, const Top& b) {
    if (a.first != b.first) return a.first < b.first;
    if (a.second != b.second) return a.second < b.second;
    if (cursors_[a.group].at->is_long()) {
      const int order = key_of(a.group).compare(key_of(b.group));
      if (order != 0) return order < 0;
    }
    return a.group < b.group;
  }

  void sift(size_t at) {
    for (size_t child = 2 * at + 1; child < heap_.size(); child = 2 * at + 1) {
      if (child + 1 < heap_.size() && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], heap_[at])) return;
      std::swap(heap_[child], heap_[at]);
      at = child;
    }
  }

  std::vector<Cursor> cursors_;
  std::vector<Top> heap_;  // the smallest first
  ShortKey buffer_;        // the last short key
};

}  // namespace

std::vector<std::string> pack_sections(const PretokenTable& table, size_t shards) {
  std::vector<std::string> sections;
  ShortKey buffer;
  for (std::vector<uint32_t>& entries : table.shards(shards)) {
    SectionPacker packer({false, table.counts_documents()});
    const std::vector<SortedEntry> sorted = table.sorted(entries);
    std::vector<uint32_t>().swap(entries);
    const SortedEntry* const end = sorted.data() + sorted.size();
    for (const SortedEntry* entry = sorted.data(); entry != end; ++entry) {
      table.prefetch(entry, end);
      const PretokenTable::Row row = table.row(*entry, buffer);
      const GroupCount counted = {0, row.count, row.documents};
      packer.add(row.bytes(), &counted, 1);
    }
    sections.push_back(std::move(packer.packed));
  }
  return sections;
}

std::vector<std::string> pack_grouped_sections(const std::vector<PretokenTable>& tables,
                                               const std::vector<std::string>& names,
                                               size_t shards) {
  std::vector<size_t> order;
  for (size_t i = 0; i < tables.size(); ++i) {
    if (tables[i].size() != 0) order.push_back(i);
  }
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return names.at(a) < names.at(b); });
  std::vector<const PretokenTable*> present;
  std::vector<std::string> present_names;
  std::vector<std::vector<std::vector<uint32_t>>> entries;  // by table, then by shard
  for (size_t i : order) {
    present.push_back(&tables[i]);
    present_names.push_back(names.at(i));
    entries.push_back(tables[i].shards(shards));
  }
  std::vector<std::string> sections;
  std::string_view key;
  std::vector<GroupCount> counts;
  for (size_t shard = 0; shard < shards; ++shard) {
    SectionPacker packer({true, tables.front().counts_documents()});
    append_names(packer.packed, present_names);
    std::vector<std::vector<SortedEntry>> sorted;
    for (size_t i = 0; i < present.size(); ++i) {
      sorted.push_back(present[i]->sorted(entries[i][shard]));
      std::vector<uint32_t>().swap(entries[i][shard]);
    }
    for (TableMerger merger(present, sorted); merger.next(key, counts);) {
      packer.add(key, counts.data(), counts.size());
    }
    sections.push_back(std::move(packer.packed));
  }
  return sections;
}

CountMerger::CountMerger(size_t sources, Refill refill, RunLayout layout, bool same_document)
    : refill_(std::move(refill)),
      layout_(layout),
      same_document_(same_document),
      sources_(sources) {
  if (layout_.groups) read_all_names();
  totals_.resize(names_.size());
  place_of_.resize(std::max<size_t>(names_.size(), 1));
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
  Source& most = sources_[index];
  if (most.at < most.chunk.size()) [[likely]] {
    const auto byte = static_cast<uint8_t>(most.chunk[most.at]);
    if (byte < 0x80) [[likely]] {
      ++most.at;
      return byte;
    }
  }
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

int64_t CountMerger::read_count(size_t index) {
  const uint64_t count = read_varint(index);
  if (count == 0 || count > static_cast<uint64_t>(INT64_MAX)) {
    damaged(index, "a count is not positive");
  }
  return static_cast<int64_t>(count);
}

void CountMerger::read_bytes(size_t index, size_t size, std::string& out) {
  while (size > 0) {
    if (!fill(index)) damaged(index, "it ends inside a key");
    Source& source = sources_[index];
    const size_t take = std::min(size, source.chunk.size() - source.at);
    out.append(source.chunk, source.at, take);
    source.at += take;
    size -= take;
  }
}

std::vector<std::string> CountMerger::read_names(size_t index) {
  std::vector<std::string> names;
  if (!fill(index)) return names;
  for (uint64_t left = read_varint(index); left > 0; --left) {
    std::string name;
    read_bytes(index, read_varint(index), name);
    if (!names.empty() && name <= names.back()) damaged(index, "its groups are not in order");
    names.push_back(std::move(name));
  }
  return names;
}

void CountMerger::read_all_names() {
  std::vector<std::vector<std::string>> names;
  for (size_t i = 0; i < sources_.size(); ++i) {
    names.push_back(read_names(i));
    names_.insert(names_.end(), names.back().begin(), names.back().end());
    std::sort(names_.begin(), names_.end());
    names_.erase(std::unique(names_.begin(), names_.end()), names_.end());
  }
  for (size_t i = 0; i < sources_.size(); ++i) {
    for (const std::string& name : names[i]) {
      const auto at = std::lower_bound(names_.begin(), names_.end(), name);
      sources_[i].groups.push_back(static_cast<uint32_t>(at - names_.begin()));
    }
  }
}

bool CountMerger::advance(size_t index) {
  if (!fill(index)) return false;
  Source& source = sources_[index];
  const uint64_t shared = read_varint(index);
  const uint64_t rest = read_varint(index);
  const uint64_t groups = layout_.groups ? read_varint(index) : 1;
  if (layout_.groups && (groups == 0 || groups > source.groups.size())) {
    damaged(index, "a key has another number of groups than there are");
  }
  source.counts.clear();
  for (uint64_t i = 0; i < groups; ++i) {
    GroupCount counted = {0, 0, 0};
    if (layout_.groups) {
      const uint64_t group = read_varint(index);
      if (group >= source.groups.size()) damaged(index, "a group has no name");
      counted.group = source.groups[group];
      if (i > 0 && counted.group <= source.counts.back().group) {
        damaged(index, "the groups of a key are not in order");
      }
    }
    counted.count = read_count(index);
    if (layout_.documents) counted.documents = read_count(index);
    if (counted.documents > counted.count) damaged(index, "a key is in more documents than places");
    source.counts.push_back(counted);
  }
  if (shared > source.key.size()) damaged(index, "a key shares more than the one before has");
  previous_tail_.assign(source.key, shared);
  source.key.resize(shared);
  read_bytes(index, rest, source.key);
  if (source.key.compare(shared, std::string::npos, previous_tail_) <= 0) {
    damaged(index, "its keys are not in ascending order");
  }
  return true;
}

void CountMerger::add(const GroupCount& counted) {
  size_t& place = place_of_[counted.group];
  if (place == 0) {
    merged_.push_back(counted);
    place = merged_.size();
    return;
  }
  GroupCount& sum = merged_[place - 1];
  if (__builtin_add_overflow(sum.count, counted.count, &sum.count)) {
    throw_count_overflow(reinterpret_cast<const uint8_t*>(key_.data()), key_.size());
  }
  // Numbers of documents are not above counts, whose sum has fit.
  sum.documents = same_document_ ? std::max(sum.documents, counted.documents)
                                 : sum.documents + counted.documents;
}

bool CountMerger::merge_next() {
  const auto order = [this](size_t a, size_t b) { return later(a, b); };
  if (heap_.empty()) return false;
  key_ = sources_[heap_.front()].key;
  merged_.clear();
  while (!heap_.empty() && sources_[heap_.front()].key == key_) {
    const size_t source = heap_.front();
    for (const GroupCount& counted : sources_[source].counts) add(counted);
    std::pop_heap(heap_.begin(), heap_.end(), order);
    if (advance(source)) {
      std::push_heap(heap_.begin(), heap_.end(), order);
    } else {
      heap_.pop_back();
    }
  }
  for (const GroupCount& sum : merged_) place_of_[sum.group] = 0;
  std::sort(merged_.begin(), merged_.end(),
            [](const GroupCount& a, const GroupCount& b) { return a.group < b.group; });
  return true;
}

CountColumns CountMerger::read(const Limits& limits) {
  CountColumns rows;
  while (rows.counts.size() < limits.rows && rows.keys.size() < limits.bytes &&
         rows.groups.size() < limits.entries && merge_next()) {
    int64_t count = 0;
    int64_t documents = 0;
    for (const GroupCount& sum : merged_) {
      if (__builtin_add_overflow(count, sum.count, &count)) {
        throw_count_overflow(reinterpret_cast<const uint8_t*>(key_.data()), key_.size());
      }
      documents += sum.documents;
      if (!layout_.groups) continue;
      rows.groups.push_back(static_cast<int32_t>(sum.group));
      rows.group_counts.push_back(sum.count);
      if (layout_.documents) rows.group_documents.push_back(sum.documents);
      GroupTotals& totals = totals_[sum.group];
      int64_t bytes;
      ++totals.rows;
      if (__builtin_add_overflow(totals.pretokens, sum.count, &totals.pretokens) ||
          __builtin_mul_overflow(sum.count, static_cast<int64_t>(key_.size()), &bytes) ||
          __builtin_add_overflow(totals.bytes, bytes, &totals.bytes)) {
        throw std::overflow_error("the bytes of the pre-tokens of a group do not fit 64 bits");
      }
    }
    rows.keys.insert(rows.keys.end(), key_.begin(), key_.end());
    rows.offsets.push_back(static_cast<int64_t>(rows.keys.size()));
    rows.counts.push_back(count);
    if (layout_.documents) rows.documents.push_back(documents);
    if (layout_.groups) rows.group_offsets.push_back(static_cast<int64_t>(rows.groups.size()));
  }
  return rows;
}

std::string CountMerger::read_packed(const Limits& limits) {
  SectionPacker packer(layout_);
  size_t rows = 0;
  size_t entries = 0;
  while (rows < limits.rows && packer.packed.size() < limits.bytes && entries < limits.entries &&
         merge_next()) {
    packer.add(key_, merged_.data(), merged_.size());
    ++rows;
    entries += merged_.size();
  }
  return std::move(packer.packed);
}

std::string CountMerger::header() const {
  std::string header;
  if (layout_.groups) append_names(header, names_);
  return header;
}

}  // namespace bpe
