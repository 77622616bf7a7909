// Packed counts of any bytes: refused, or read as a simple reader reads them, however the bytes are
// cut into chunks. The input: the layout, where to cut, then the sections, each behind its length.
#include "count_runs.hpp"

#include <map>
#include <optional>

#include "fuzz.hpp"

using namespace bpe;
using fuzz::check;
using fuzz::Counted;

namespace {

using Rows = std::map<std::string, std::map<std::string, Counted>>;  // by key and name of group

constexpr int64_t kMost = INT64_MAX;

class SimpleReader {
 public:
  SimpleReader(std::string_view section, RunLayout layout) : left_(section), layout_(layout) {}

  // The rows of a section, or nothing for a damaged one.
  std::optional<Rows> read() {
    if (layout_.groups && !read_names()) return std::nullopt;
    Rows rows;
    std::string key;
    while (!left_.empty()) {
      const auto shared = number();
      const auto more = number();
      if (!shared || !more || *shared > key.size()) return std::nullopt;
      const auto counts = read_counts();
      if (!counts || left_.size() < *more) return std::nullopt;
      const std::string before = key;
      key = key.substr(0, *shared) + std::string(left_.substr(0, *more));
      left_.remove_prefix(*more);
      if (key <= before) return std::nullopt;
      rows[key] = *counts;
    }
    return rows;
  }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::optional<uint64_t> number() {
    uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (left_.empty() || shift > 63) return std::nullopt;
      const auto byte = static_cast<uint8_t>(left_.front());
      left_.remove_prefix(1);
      if (shift == 63 && byte > 1) return std::nullopt;
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
  }
  std::optional<Counted> read_counted() {
    const auto count = number();
    if (!count || *count == 0 || *count > kMost) return std::nullopt;
    Counted counted{static_cast<int64_t>(*count), 0};
    if (layout_.documents) {
      const auto documents = number();
      if (!documents || *documents == 0 || *documents > *count) return std::nullopt;
      counted.documents = static_cast<int64_t>(*documents);
    }
    return counted;
  }
  std::optional<std::map<std::string, Counted>> read_counts() {
    std::map<std::string, Counted> counts;
    if (!layout_.groups) {
      const auto counted = read_counted();
      if (!counted) return std::nullopt;
      counts[""] = *counted;
      return counts;
    }
    const auto n = number();
    if (!n || *n == 0) return std::nullopt;
    std::optional<uint64_t> before;
    for (uint64_t i = 0; i < *n; ++i) {
      const auto group = number();
      if (!group || *group >= names_.size() || (before && *group <= *before)) return std::nullopt;
      const auto counted = read_counted();
      if (!counted) return std::nullopt;
      counts[names_[*group]] = *counted;
      before = group;
    }
    return counts;
  }
  bool read_names() {
    if (left_.empty()) return true;
    const auto n = number();
    for (uint64_t i = 0; n && i < *n; ++i) {
      const auto length = number();
      if (!length || *length > left_.size()) return false;
      std::string name(left_.substr(0, *length));
      left_.remove_prefix(*length);
      if (!names_.empty() && name <= names_.back()) return false;
      names_.push_back(std::move(name));
    }
    return n.has_value();
  }

  std::string_view left_;
  RunLayout layout_;
  std::vector<std::string> names_;
};

CountMerger::Refill refill_of(const std::vector<std::string>& sections, size_t chunk) {
  auto at = std::make_shared<std::vector<size_t>>(sections.size());
  return [&sections, chunk, at](size_t source, std::string& out) {
    size_t& from = (*at)[source];
    out = sections[source].substr(from, chunk);
    out.shrink_to_fit();
    from += out.size();
  };
}

Rows rows_of(const CountColumns& columns, const CountMerger& merger, RunLayout layout) {
  Rows rows;
  const size_t n = columns.offsets.size() - 1;
  std::string before;
  for (size_t i = 0; i < n; ++i) {
    const std::string key(columns.keys.begin() + columns.offsets[i],
                          columns.keys.begin() + columns.offsets[i + 1]);
    check(i == 0 || before < key, "merged keys ascend");
    before = key;
    std::map<std::string, Counted>& counts = rows[key];
    if (!layout.groups) {
      counts[""] = {columns.counts[i], layout.documents ? columns.documents[i] : 0};
      continue;
    }
    for (int64_t k = columns.group_offsets[i]; k < columns.group_offsets[i + 1]; ++k) {
      counts[merger.names()[static_cast<size_t>(columns.groups[k])]] = {
          columns.group_counts[k], layout.documents ? columns.group_documents[k] : 0};
    }
  }
  return rows;
}

struct Merged {
  std::optional<Rows> rows;
  std::string packed;
};

Merged merge(const std::vector<std::string>& sections, size_t chunk, RunLayout layout,
             size_t rows_of_call) {
  Merged merged;
  try {
    CountMerger merger(sections.size(), refill_of(sections, chunk), layout);
    Rows rows;
    for (;;) {
      const CountColumns columns = merger.read({rows_of_call, 1 << 16, 1 << 16});
      if (columns.offsets.size() == 1) break;
      rows.merge(rows_of(columns, merger, layout));
    }
    merged.rows = std::move(rows);
    CountMerger again(sections.size(), refill_of(sections, 1 << 16), layout);
    merged.packed = again.header();
    for (;;) {
      const std::string part = again.read_packed({rows_of_call, 1 << 16, 1 << 16});
      if (part.empty()) break;
      merged.packed += part;
    }
  } catch (const std::invalid_argument&) {
    merged.rows.reset();
  } catch (const std::overflow_error&) {
    merged.rows.reset();
  }
  return merged;
}

bool add(int64_t& sum, int64_t more) { return !__builtin_add_overflow(sum, more, &sum); }

// The rows of all sections together, or nothing if one is damaged or a sum has too many bits.
std::optional<Rows> read_simply(const std::vector<std::string>& sections, RunLayout layout) {
  Rows sums;
  for (const std::string& section : sections) {
    const std::optional<Rows> rows = SimpleReader(section, layout).read();
    if (!rows) return std::nullopt;
    for (const auto& [key, counts] : *rows) {
      for (const auto& [name, counted] : counts) {
        Counted& sum = sums[key][name];
        if (!add(sum.count, counted.count)) return std::nullopt;
        sum.documents += counted.documents;
      }
    }
  }
  std::map<std::string, std::pair<int64_t, int64_t>> totals;  // pre-tokens and bytes
  for (const auto& [key, counts] : sums) {
    int64_t of_key = 0;
    for (const auto& [name, counted] : counts) {
      auto& [pretokens, bytes] = totals[name];
      int64_t more = 0;
      if (!add(of_key, counted.count)) return std::nullopt;
      if (!layout.groups) continue;
      if (__builtin_mul_overflow(counted.count, static_cast<int64_t>(key.size()), &more) ||
          !add(pretokens, counted.count) || !add(bytes, more)) {
        return std::nullopt;
      }
    }
  }
  return sums;
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  const uint8_t options = input.byte();
  const RunLayout layout{(options & 1) != 0, (options & 2) != 0};
  const size_t chunk = 1 + input.below(16);
  const size_t rows_of_call = 1 + input.below(3);
  std::vector<std::string> sections;
  for (size_t left = input.below(3); left > 0; --left) sections.emplace_back(input.text());
  sections.emplace_back(input.rest());

  const std::optional<Rows> expected = read_simply(sections, layout);
  const Merged merged = merge(sections, 1 << 16, layout, 1000);
  check(merged.rows == expected, "a merger equals a simple reader");
  check(merge(sections, chunk, layout, rows_of_call).rows == expected, "chunks change nothing");
  if (expected && !expected->empty()) {
    const std::vector<std::string> packed = {merged.packed};
    check(merge(packed, chunk, layout, 1000).rows == expected, "packed rows are read again");
  }
  return 0;
}
