// Counting pre-tokens.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "count_runs.hpp"
#include "ordered_pretokens.hpp"
#include "pretoken_table.hpp"
#include "pretoken_tables.hpp"
#include "superword_runs.hpp"

namespace bpe {
namespace {

using Int32Array = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

py::bytes bytes_of(const std::string& text) { return py::bytes(text); }

py::list to_list(const std::vector<std::string>& texts) {
  py::list list;
  for (const std::string& text : texts) list.append(bytes_of(text));
  return list;
}

py::tuple to_columns(std::vector<uint8_t> keys, std::vector<int64_t> offsets,
                     std::vector<int64_t> counts) {
  return py::make_tuple(to_array(std::move(keys)), to_array(std::move(offsets)),
                        to_array(std::move(counts)));
}

class PyPretokenTable {
 public:
  PyPretokenTable(const std::optional<PatternArgument>& pattern,
                  std::vector<std::string> special_tokens, size_t max_pretoken_bytes, bool portable,
                  const Normalizer* normalizer, std::shared_ptr<const SuperwordRuns> runs,
                  bool counts_documents)
      : tables_(portable, counts_documents),
        rules_{scanner_from_argument(pattern, portable), normalizer_or_none(normalizer),
               SpecialMatcher(std::move(special_tokens)), max_pretoken_bytes, std::move(runs)} {}

  py::tuple add_documents(const py::buffer& buffer, const Int64Array& starts,
                          const Int64Array& ends, size_t first, size_t memory_limit,
                          const std::optional<Int32Array>& groups, bool continues) {
    if (rules_.scanner == nullptr) {
      throw std::invalid_argument("a table without a native pattern takes pre-tokens: add_spans");
    }
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    if (groups) check_groups(*groups, documents.n);
    std::vector<LongPretoken> too_long;
    size_t next;
    {
      const Exclusive exclusive(mutex_);
      next = tables_.add_documents(documents, groups ? groups->data() : nullptr, continues, first,
                                   rules_, memory_limit, too_long);
    }
    py::list places;
    for (const LongPretoken& place : too_long) {
      places.append(py::make_tuple(place.document, place.begin, place.length));
    }
    return py::make_tuple(next, places);
  }

  void start_document(size_t group) {
    const Exclusive exclusive(mutex_);
    tables_.table(group).start_document();
  }

  void add_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends,
                 size_t group) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    const Exclusive exclusive(mutex_);
    PretokenTable& table = tables_.table(group);
    for (size_t i = 0; i < spans.n; ++i) {
      table.add(spans.data + spans.starts[i], spans.bytes_of(i), 1);
    }
  }

  void add_counts(const py::buffer& buffer, const Int64Array& offsets, const Int64Array& counts) {
    const BytesView keys(buffer);
    check_key_offsets(keys, offsets, counts.size());
    const size_t n = static_cast<size_t>(counts.size());
    const int64_t* at = offsets.data();
    const Exclusive exclusive(mutex_);
    PretokenTable& table = tables_.table(0);
    for (size_t i = 0; i < n; ++i) {
      table.add(keys.data() + at[i], static_cast<size_t>(at[i + 1] - at[i]), counts.data()[i]);
    }
  }

  void add_table(const PyPretokenTable& other, size_t group) {
    py::gil_scoped_release release;
    std::unique_lock mine(mutex_, std::defer_lock);
    std::unique_lock theirs(other.mutex_, std::defer_lock);
    if (&other == this) {
      mine.lock();
    } else {
      std::lock(mine, theirs);
    }
    tables_.table(group).add_table(other.tables_.tables().front());
  }

  void clear() {
    const Exclusive exclusive(mutex_);
    tables_.clear();
  }

  size_t size() const {
    const Exclusive exclusive(mutex_);
    return tables_.size();
  }
  size_t memory_bytes() const {
    const Exclusive exclusive(mutex_);
    return tables_.memory_bytes();
  }
  int64_t total() const {
    const Exclusive exclusive(mutex_);
    return tables_.total();
  }

  py::list pack(size_t shards, const std::optional<std::vector<std::string>>& names) const {
    if (shards == 0) throw std::invalid_argument("shards must be at least 1");
    std::vector<std::string> sections;
    {
      const Exclusive exclusive(mutex_);
      if (names && names->size() < tables_.tables().size()) {
        throw std::invalid_argument("there are more groups than names");
      }
      sections = names ? pack_grouped_sections(tables_.tables(), *names, shards)
                       : pack_sections(tables_.tables().front(), shards);
    }
    return to_list(sections);
  }

  py::tuple columns() const {
    CountColumns rows;
    {
      const Exclusive exclusive(mutex_);
      const PretokenTable& table = tables_.tables().front();
      ShortKey buffer;
      for (const PretokenTable::SortedEntry& entry : table.sorted(table.shards(1).front())) {
        const PretokenTable::Row row = table.row(entry, buffer);
        rows.keys.insert(rows.keys.end(), row.key, row.key + row.length);
        rows.offsets.push_back(static_cast<int64_t>(rows.keys.size()));
        rows.counts.push_back(row.count);
      }
    }
    return to_columns(std::move(rows.keys), std::move(rows.offsets), std::move(rows.counts));
  }

 private:
  static void check_groups(const Int32Array& groups, size_t documents) {
    if (groups.ndim() != 1 || static_cast<size_t>(groups.size()) != documents) {
      throw std::invalid_argument("groups must have one entry for each document");
    }
    for (size_t i = 0; i < documents; ++i) {
      const int32_t group = groups.data()[i];
      if (group < 0 || group >= kMaxGroups) {
        throw std::invalid_argument("group " + std::to_string(group) + " is not from 0 to " +
                                    std::to_string(kMaxGroups - 1));
      }
    }
  }

  static constexpr int32_t kMaxGroups = 1 << 16;

  mutable std::mutex mutex_;
  PretokenTables tables_;
  SplitRules rules_;
};

std::shared_ptr<SuperwordRuns> make_superword_runs(const PatternArgument& words,
                                                   const PatternArgument& chunks,
                                                   const py::buffer& tokens,
                                                   const Int64Array& offsets, size_t most_words) {
  const BytesView data(tokens);
  const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
  check_key_offsets(data, offsets, n);
  return std::make_shared<SuperwordRuns>(scanner_from_argument(words),
                                         scanner_from_argument(chunks), data.data(), offsets.data(),
                                         static_cast<size_t>(n), most_words);
}

class PyOrderedPretokens {
 public:
  PyOrderedPretokens(const std::optional<PatternArgument>& pattern,
                     std::vector<std::string> special_tokens, const Normalizer* normalizer)
      : scanner_(scanner_from_argument(pattern)),
        normalizer_(normalizer_or_none(normalizer)),
        specials_(std::move(special_tokens)) {}

  void add_documents(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends) {
    if (scanner_ == nullptr) {
      throw std::invalid_argument("without a native pattern pre-tokens are needed: add_spans");
    }
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    const Exclusive exclusive(mutex_);
    for (size_t i = 0; i < documents.n; ++i) {
      pretokens_.add_document(documents.data + documents.starts[i],
                              static_cast<size_t>(documents.ends[i] - documents.starts[i]),
                              scanner_, normalizer_, specials_);
    }
  }

  void add_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    const Exclusive exclusive(mutex_);
    for (size_t i = 0; i < spans.n; ++i) {
      pretokens_.add(spans.data + spans.starts[i],
                     static_cast<size_t>(spans.ends[i] - spans.starts[i]));
    }
  }

  size_t size() const {
    const Exclusive exclusive(mutex_);
    return pretokens_.size();
  }
  size_t memory_bytes() const {
    const Exclusive exclusive(mutex_);
    return pretokens_.memory_bytes();
  }

  py::tuple columns() const {
    CountColumns rows;
    {
      const Exclusive exclusive(mutex_);
      rows.keys = pretokens_.keys();
      rows.offsets = pretokens_.offsets();
      rows.counts = pretokens_.counts();
    }
    return to_columns(std::move(rows.keys), std::move(rows.offsets), std::move(rows.counts));
  }

 private:
  mutable std::mutex mutex_;
  OrderedPretokens pretokens_;
  Scanner scanner_;
  Normalizer normalizer_;
  SpecialMatcher specials_;
};

class PyCountMerger {
  template <auto get>
  auto copy() const {
    const Exclusive exclusive(mutex_);
    return ((*merger_).*get)();
  }

 public:
  PyCountMerger(size_t sources, py::function refill, bool groups, bool documents,
                bool same_document)
      : refill_(std::move(refill)) {
    py::gil_scoped_release release;
    merger_.emplace(
        sources,
        [this](size_t source, std::string& chunk) {
          py::gil_scoped_acquire acquire;
          chunk = refill_(source).cast<std::string>();
        },
        RunLayout{groups, documents}, same_document);
  }

  py::tuple read(size_t max_rows, size_t max_bytes, size_t max_entries) {
    CountColumns rows;
    {
      const Exclusive exclusive(mutex_);
      rows = merger_->read({max_rows, max_bytes, max_entries});
    }
    return py::make_tuple(to_array(std::move(rows.keys)), to_array(std::move(rows.offsets)),
                          to_array(std::move(rows.counts)), to_array(std::move(rows.documents)),
                          to_array(std::move(rows.group_offsets)), to_array(std::move(rows.groups)),
                          to_array(std::move(rows.group_counts)),
                          to_array(std::move(rows.group_documents)));
  }

  py::bytes read_packed(size_t max_rows, size_t max_bytes, size_t max_entries) {
    std::string packed;
    {
      const Exclusive exclusive(mutex_);
      packed = merger_->read_packed({max_rows, max_bytes, max_entries});
    }
    return bytes_of(packed);
  }

  py::bytes header() const { return bytes_of(copy<&CountMerger::header>()); }
  py::list names() const { return to_list(copy<&CountMerger::names>()); }

  py::list totals() const {
    py::list list;
    for (const GroupTotals& totals : copy<&CountMerger::totals>()) {
      list.append(py::make_tuple(totals.rows, totals.pretokens, totals.bytes));
    }
    return list;
  }

 private:
  py::function refill_;
  mutable std::mutex mutex_;
  std::optional<CountMerger> merger_;
};

// Counts times numerator / denominator, rounded, halves to even; -1 for those that need more than
// 64 bits.
py::array_t<int64_t> scale_counts(const Int64Array& counts, int64_t numerator,
                                  int64_t denominator) {
  if (numerator < 0 || denominator < 1) {
    throw std::invalid_argument("a count is multiplied by a fraction of at least 0");
  }
  const size_t n = static_cast<size_t>(counts.size());
  const int64_t* const from = counts.data();
  std::vector<int64_t> scaled(n);
  {
    py::gil_scoped_release release;
    for (size_t i = 0; i < n; ++i) {
      if (from[i] < 0) throw std::invalid_argument("a count must not be negative");
      // Below 2^126, since both factors are below 2^63.
      const unsigned __int128 product =
          static_cast<unsigned __int128>(from[i]) * static_cast<unsigned __int128>(numerator);
      const auto divisor = static_cast<unsigned __int128>(denominator);
      unsigned __int128 quotient = product / divisor;
      const unsigned __int128 twice = product % divisor * 2;
      quotient += twice > divisor || (twice == divisor && quotient % 2 == 1);
      scaled[i] = quotient > INT64_MAX ? -1 : static_cast<int64_t>(quotient);
    }
  }
  return to_array(std::move(scaled));
}

}  // namespace

void bind_counting(py::module_& m) {
  py::class_<SuperwordRuns, std::shared_ptr<SuperwordRuns>>(m, "SuperwordRuns")
      .def(py::init(&make_superword_runs), "words"_a, "chunks"_a, "tokens"_a, "offsets"_a,
           "most_words"_a);
  py::class_<PyPretokenTable>(m, "PretokenTable")
      .def(py::init<std::optional<PatternArgument>, std::vector<std::string>, size_t, bool,
                    const Normalizer*, std::shared_ptr<SuperwordRuns>, bool>(),
           "pattern"_a, "special_tokens"_a, "max_pretoken_bytes"_a = 0, "portable"_a = false,
           "normalizer"_a = py::none(), "runs"_a = py::none(), "counts_documents"_a = false)
      .def("add_documents", &PyPretokenTable::add_documents, "data"_a, "starts"_a, "ends"_a,
           "first"_a = 0, "memory_limit"_a = 0, "groups"_a = py::none(), "continues"_a = false)
      .def("start_document", &PyPretokenTable::start_document, "group"_a = 0)
      .def("add_spans", &PyPretokenTable::add_spans, "data"_a, "starts"_a, "ends"_a, "group"_a = 0)
      .def("add_counts", &PyPretokenTable::add_counts, "keys"_a, "offsets"_a, "counts"_a)
      .def("add_table", &PyPretokenTable::add_table, "other"_a, "group"_a = 0)
      .def("clear", &PyPretokenTable::clear)
      .def("__len__", &PyPretokenTable::size)
      .def_property_readonly("memory_bytes", &PyPretokenTable::memory_bytes)
      .def("total", &PyPretokenTable::total)
      .def("pack_sections", &PyPretokenTable::pack, "shards"_a, "names"_a = py::none())
      .def("columns", &PyPretokenTable::columns);

  py::class_<PyOrderedPretokens>(m, "OrderedPretokens")
      .def(py::init<std::optional<PatternArgument>, std::vector<std::string>, const Normalizer*>(),
           "pattern"_a, "special_tokens"_a = std::vector<std::string>{},
           "normalizer"_a = py::none())
      .def("add_documents", &PyOrderedPretokens::add_documents, "data"_a, "starts"_a, "ends"_a)
      .def("add_spans", &PyOrderedPretokens::add_spans, "data"_a, "starts"_a, "ends"_a)
      .def("__len__", &PyOrderedPretokens::size)
      .def_property_readonly("memory_bytes", &PyOrderedPretokens::memory_bytes)
      .def("columns", &PyOrderedPretokens::columns);

  py::class_<PyCountMerger>(m, "CountMerger")
      .def(py::init<size_t, py::function, bool, bool, bool>(), "sources"_a, "refill"_a,
           "groups"_a = false, "documents"_a = false, "same_document"_a = false)
      .def("read", &PyCountMerger::read, "max_rows"_a, "max_bytes"_a, "max_entries"_a = SIZE_MAX)
      .def("read_packed", &PyCountMerger::read_packed, "max_rows"_a, "max_bytes"_a,
           "max_entries"_a = SIZE_MAX)
      .def("header", &PyCountMerger::header)
      .def("names", &PyCountMerger::names)
      .def("totals", &PyCountMerger::totals);

  m.def("scale_counts", &scale_counts, "counts"_a, "numerator"_a, "denominator"_a);
}

}  // namespace bpe
