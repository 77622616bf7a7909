#include "pretoken_tables.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bpe {
namespace {

// With less, or with less than twice the memory of empty tables, each document would fill them.
constexpr size_t kLeastMemory = size_t{1} << 18;

void add_document(PretokenTable& table, const DocumentSpans& documents, size_t i,
                  const SplitRules& rules, std::string& buffer,
                  std::vector<LongPretoken>& too_long) {
  const uint8_t* const text = documents.data + documents.starts[i];
  const size_t readable = documents.size - static_cast<size_t>(documents.starts[i]);
  rules.specials.for_each_part(text, documents.bytes_of(i), [&](size_t from, size_t to) {
    PretokenTable::Segment segment = {text + from, to - from, readable - from, i, from};
    if (rules.normalizer.is_active()) {
      const char* const source = reinterpret_cast<const char*>(segment.text);
      const std::string_view changed = rules.normalizer.normalized({source, segment.size}, buffer);
      if (changed.data() != source) {
        segment.text = reinterpret_cast<const uint8_t*>(changed.data());
        segment.size = segment.readable = changed.size();
      }
    }
    if (rules.runs == nullptr) {
      table.add_segment(segment, rules.scanner, rules.max_pretoken_bytes, too_long);
      return;
    }
    rules.runs->for_each(segment.text, segment.size, [&](size_t begin, size_t end) {
      table.add(segment.text + begin, end - begin, 1);
    });
  });
}

}  // namespace

size_t PretokenTables::add_documents(const DocumentSpans& documents, const int32_t* groups,
                                     bool continues, size_t first, const SplitRules& rules,
                                     size_t memory_limit, std::vector<LongPretoken>& too_long) {
  std::string buffer;
  size_t memory = memory_bytes();
  const size_t smallest = PretokenTable(portable_, counts_documents_).memory_bytes();
  const auto is_full = [&](const PretokenTable& counted) {
    const size_t limit = std::max({memory_limit, kLeastMemory, 2 * tables_.size() * smallest});
    const size_t others = memory - counted.memory_bytes();
    return memory_limit != 0 && counted.is_full(limit > others ? limit - others : 0);
  };
  for (size_t i = first; i < documents.n; ++i) {
    const size_t tables = tables_.size();
    PretokenTable& counted = table(groups == nullptr ? 0 : static_cast<size_t>(groups[i]));
    memory += (tables_.size() - tables) * smallest;
    // The other tables have grown since this one was found to have room.
    if (i > first && is_full(counted)) return i;
    const size_t before = counted.memory_bytes();
    if (!continues) counted.start_document();
    add_document(counted, documents, i, rules, buffer, too_long);
    memory += counted.memory_bytes() - before;
    if (is_full(counted)) return i + 1;
  }
  return documents.n;
}

PretokenTable& PretokenTables::table(size_t group) {
  while (tables_.size() <= group) tables_.emplace_back(portable_, counts_documents_);
  return tables_[group];
}

void PretokenTables::clear() {
  tables_.clear();
  table(0);
}

size_t PretokenTables::size() const {
  size_t sum = 0;
  for (const PretokenTable& table : tables_) sum += table.size();
  return sum;
}

int64_t PretokenTables::total() const {
  int64_t sum = 0;
  for (const PretokenTable& table : tables_) {
    if (__builtin_add_overflow(sum, table.total(), &sum)) {
      throw std::overflow_error("the sum of all counts does not fit 64 bits");
    }
  }
  return sum;
}

size_t PretokenTables::memory_bytes() const {
  size_t sum = 0;
  for (const PretokenTable& table : tables_) sum += table.memory_bytes();
  return sum;
}

}  // namespace bpe
