// The extension bpe_core._native: the only file that knows Python. Every long call runs without
// the interpreter lock.
#include <pybind11/functional.h>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "count_runs.hpp"
#include "document_sums.hpp"
#include "documents.hpp"
#include "encode_parallel.hpp"
#include "encoder.hpp"
#include "id_counts.hpp"
#include "json_fields.hpp"
#include "longest_match.hpp"
#include "merge_learner.hpp"
#include "normalizer.hpp"
#include "ordered_pretokens.hpp"
#include "packing.hpp"
#include "pretoken_table.hpp"
#include "rank_joins.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "utf8.hpp"
#include "words.hpp"
#include "xxh3.hpp"

namespace py = pybind11;

namespace bpe {
namespace {

using Int64Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

// ---------------------------------------------------------------------------------------------
// Arguments and results

// The bytes of any contiguous buffer (bytes, memoryview, numpy uint8), kept alive by this object.
class BytesView {
 public:
  explicit BytesView(const py::buffer& buffer) : info_(buffer.request()) {
    const py::ssize_t size = info_.size * info_.itemsize;
    if (info_.ndim > 1 ||
        (info_.ndim == 1 && info_.size > 1 && info_.strides[0] != info_.itemsize)) {
      throw std::invalid_argument("expected one contiguous buffer of bytes");
    }
    data_ = static_cast<const uint8_t*>(info_.ptr);
    size_ = static_cast<size_t>(size);
  }
  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  py::buffer_info info_;
  const uint8_t* data_;
  size_t size_;
};

// Spans data[starts[i], ends[i]), checked to lie inside the data.
DocumentSpans checked_spans(const BytesView& data, const Int64Array& starts,
                            const Int64Array& ends) {
  if (starts.ndim() != 1 || ends.ndim() != 1 || starts.size() != ends.size()) {
    throw std::invalid_argument("starts and ends must be one-dimensional and equally long");
  }
  const size_t n = static_cast<size_t>(starts.size());
  const int64_t size = static_cast<int64_t>(data.size());
  for (size_t i = 0; i < n; ++i) {
    if (starts.data()[i] < 0 || starts.data()[i] > ends.data()[i] || ends.data()[i] > size) {
      throw std::invalid_argument("document " + std::to_string(i) + " lies outside of the data: [" +
                                  std::to_string(starts.data()[i]) + ", " +
                                  std::to_string(ends.data()[i]) + ") of " + std::to_string(size) +
                                  " bytes");
    }
  }
  return {data.data(), data.size(), starts.data(), ends.data(), n};
}

// Keys data[offsets[i], offsets[i + 1]), checked to lie inside the data; there are n.
void check_key_offsets(const BytesView& data, const Int64Array& offsets, py::ssize_t n) {
  if (offsets.ndim() != 1 || offsets.size() != n + 1) {
    throw std::invalid_argument("offsets must have one entry more than there are keys");
  }
  for (py::ssize_t i = 0; i < n; ++i) {
    const int64_t begin = offsets.data()[i];
    const int64_t end = offsets.data()[i + 1];
    if (begin < 0 || begin > end || end > static_cast<int64_t>(data.size())) {
      throw std::invalid_argument("key " + std::to_string(i) + " lies outside of the data");
    }
  }
}

// An array that owns the vector it is made from: nothing is copied.
template <class T>
py::array_t<T> to_array(std::vector<T>&& values) {
  auto* owned = new std::vector<T>(std::move(values));
  py::capsule owner(owned, [](void* p) { delete static_cast<std::vector<T>*>(p); });
  return py::array_t<T>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

template <class Id>
py::array_t<Id> to_array(IdBuffer<Id>&& ids) {
  auto* owned = new IdBuffer<Id>(std::move(ids));
  py::capsule owner(owned, [](void* p) { delete static_cast<IdBuffer<Id>*>(p); });
  return py::array_t<Id>(static_cast<py::ssize_t>(owned->size()), owned->data(), owner);
}

Pattern pattern_from_name(const std::string& name) {
  if (name == "gpt2") return Pattern::gpt2;
  if (name == "cl100k") return Pattern::cl100k;
  if (name == "cl100k_tiktoken") return Pattern::cl100k_tiktoken;
  if (name == "o200k") return Pattern::o200k;
  if (name == "qwen2") return Pattern::qwen2;
  if (name == "none") return Pattern::none;
  if (name == "whitespace_words") return Pattern::whitespace_words;
  if (name == "marked_words") return Pattern::marked_words;
  throw std::invalid_argument("no native scanner is called " + name);
}

// A pattern's name, or one with rules: "gpt2/max_digits=3", "gpt2/split_categories/max_digits=0".
Scanner scanner_from_name(const std::string& name, bool portable = false) {
  const size_t rules_at = name.find('/');
  const Pattern pattern = pattern_from_name(name.substr(0, rules_at));
  if (rules_at != std::string::npos) {
    PatternRules rules;
    rules.split_categories = name.find("/split_categories", rules_at) != std::string::npos;
    const size_t digits_at = name.rfind('=') + 1;
    rules.max_digits = static_cast<uint32_t>(std::stoul(name.substr(digits_at)));
    return portable ? portable_scanner_for(pattern, rules) : scanner_for(pattern, rules);
  }
  return portable ? portable_scanner_for(pattern) : scanner_for(pattern);
}

Normalizer make_normalizer(const std::optional<std::string>& form, bool quotes) {
  if (!form) return Normalizer(NormalizationForm::none, quotes);
  if (*form == "nfc") return Normalizer(NormalizationForm::nfc, quotes);
  if (*form == "nfkc") return Normalizer(NormalizationForm::nfkc, quotes);
  throw std::invalid_argument("no normalization form is called " + *form);
}

// None stands for a normalizer that changes nothing.
Normalizer normalizer_or_none(const Normalizer* normalizer) {
  return normalizer != nullptr ? *normalizer : Normalizer();
}

void raise_from_errors(const char* class_name, const std::string& message) {
  const py::object type = py::module_::import("bpe_core.errors").attr(class_name);
  PyErr_SetString(type.ptr(), message.c_str());
}

void translate_exception(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const UnknownByte& unknown) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02X", unknown.byte);
    raise_from_errors("UnknownTokenError", "byte " + std::string(hex) +
                                               " of the text has no id in this vocabulary; add a "
                                               "token for it or give unknown_id");
  } catch (const std::overflow_error& error) {
    raise_from_errors("CountOverflowError", error.what());
  }
}

// ---------------------------------------------------------------------------------------------
// Text

Int64Array split_pretokens(const std::string& pattern, const py::buffer& buffer, size_t capacity,
                           bool portable) {
  const Scanner scanner = scanner_from_name(pattern, portable);
  if (capacity == 0) throw std::invalid_argument("capacity must be at least 1");
  const BytesView data(buffer);
  std::vector<int64_t> result;
  {
    py::gil_scoped_release release;
    std::vector<size_t> ends(capacity);
    size_t pos = 0;
    while (pos < data.size()) {
      const size_t found = scanner(data.data(), data.size(), pos, ends.data(), capacity);
      result.insert(result.end(), ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(found));
      pos = ends[found - 1];
    }
  }
  return to_array(std::move(result));
}

py::tuple last_joins_of(const py::buffer& tokens, const Int64Array& offsets) {
  const BytesView data(tokens);
  const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
  check_key_offsets(data, offsets, n);
  for (py::ssize_t i = 0; i < n; ++i) {
    const int64_t length = offsets.data()[i + 1] - offsets.data()[i];
    if (length < 1 || length > INT32_MAX) {
      throw std::invalid_argument("token " + std::to_string(i) + " must have 1 to 2**31 - 1 bytes");
    }
  }
  LastJoins joins;
  {
    py::gil_scoped_release release;
    joins = last_joins(data.data(), offsets.data(), static_cast<size_t>(n));
  }
  return py::make_tuple(to_array(std::move(joins.left)), to_array(std::move(joins.right)));
}

// Special tokens with the ids they are encoded as.
class SpecialSet {
 public:
  SpecialSet(std::vector<std::string> tokens, std::vector<uint32_t> ids)
      : matcher_(std::move(tokens)), ids_(std::move(ids)) {
    if (ids_.size() != matcher_.tokens().size()) {
      throw std::invalid_argument("as many ids as special tokens are needed");
    }
  }

  const SpecialMatcher& matcher() const { return matcher_; }
  const std::vector<uint32_t>& ids() const { return ids_; }

  std::vector<std::tuple<size_t, size_t, uint32_t>> find_all(const py::buffer& buffer) const {
    const BytesView data(buffer);
    std::vector<std::tuple<size_t, size_t, uint32_t>> matches;
    py::gil_scoped_release release;
    SpecialMatch match;
    size_t from = 0;
    while (matcher_.find(data.data(), data.size(), from, match)) {
      matches.emplace_back(match.begin, match.end, match.index);
      from = match.end;
    }
    return matches;
  }

  Int64Array find_first(const py::buffer& buffer, const Int64Array& starts,
                        const Int64Array& ends) const {
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    std::vector<int64_t> first(documents.n, -1);
    {
      py::gil_scoped_release release;
      for (size_t i = 0; i < documents.n; ++i) {
        SpecialMatch match;
        if (matcher_.find(documents.data + documents.starts[i],
                          static_cast<size_t>(documents.ends[i] - documents.starts[i]), 0, match)) {
          first[i] = static_cast<int64_t>(match.begin);
        }
      }
    }
    return to_array(std::move(first));
  }

 private:
  SpecialMatcher matcher_;
  std::vector<uint32_t> ids_;
};

// ---------------------------------------------------------------------------------------------
// Documents

// One separator or several.
using SeparatorArgument = std::variant<std::string, std::vector<std::string>>;

std::vector<std::string> separator_list(const SeparatorArgument& argument) {
  if (const auto* one = std::get_if<std::string>(&argument)) return {*one};
  return std::get<std::vector<std::string>>(argument);
}

py::tuple find_separators_of(const py::buffer& buffer, const SeparatorArgument& separator,
                             size_t from, size_t limit, bool at_end) {
  const BytesView data(buffer);
  const Separators separators(separator_list(separator));
  SeparatorPlaces places;
  {
    py::gil_scoped_release release;
    places = find_separators(data.data(), data.size(), separators, from, limit, at_end);
  }
  return py::make_tuple(to_array(std::move(places.begins)), to_array(std::move(places.ends)));
}

py::tuple split_documents_of(const py::buffer& buffer, const SeparatorArgument& separator,
                             size_t start, size_t from, size_t begin_before, size_t max_bytes,
                             size_t max_documents, bool at_end) {
  const BytesView data(buffer);
  const Separators separators(separator_list(separator));
  DocumentSplit split;
  {
    py::gil_scoped_release release;
    split = split_documents(data.data(), data.size(), separators, start, from,
                            {begin_before, max_bytes, max_documents}, at_end);
  }
  return py::make_tuple(to_array(std::move(split.starts)), to_array(std::move(split.ends)),
                        split.empty, split.rest, split.resume, split.stopped);
}

Int64Array count_characters_of(const py::buffer& buffer, const Int64Array& starts,
                               const Int64Array& ends) {
  const BytesView data(buffer);
  const DocumentSpans documents = checked_spans(data, starts, ends);
  std::vector<int64_t> counts(documents.n);
  {
    py::gil_scoped_release release;
    for (size_t i = 0; i < documents.n; ++i) {
      counts[i] = static_cast<int64_t>(
          count_characters(documents.data + documents.starts[i], documents.bytes_of(i)));
    }
  }
  return to_array(std::move(counts));
}

py::tuple scan_documents_of(const py::buffer& buffer, const Int64Array& starts,
                            const Int64Array& ends) {
  const BytesView data(buffer);
  const DocumentSpans documents = checked_spans(data, starts, ends);
  std::vector<int64_t> valid(documents.n);
  std::vector<uint64_t> hashes(documents.n * 2);
  {
    py::gil_scoped_release release;
    scan_documents(documents.data, documents.size, documents.starts, documents.ends, documents.n,
                   valid.data(), hashes.data());
  }
  const auto n = static_cast<py::ssize_t>(documents.n);
  return py::make_tuple(to_array(std::move(valid)),
                        to_array(std::move(hashes)).reshape(std::vector<py::ssize_t>{n, 2}));
}

py::tuple find_json_fields(const JsonFields& fields, const py::buffer& buffer,
                           const Int64Array& starts, const Int64Array& ends) {
  const BytesView data(buffer);
  const DocumentSpans lines = checked_spans(data, starts, ends);
  JsonSpans spans;
  {
    py::gil_scoped_release release;
    spans = fields.find(lines.data, lines.starts, lines.ends, lines.n);
  }
  const std::vector<py::ssize_t> shape = {static_cast<py::ssize_t>(fields.size()),
                                          static_cast<py::ssize_t>(lines.n)};
  return py::make_tuple(to_array(std::move(spans.starts)).reshape(shape),
                        to_array(std::move(spans.ends)).reshape(shape),
                        to_array(std::move(spans.kinds)).reshape(shape));
}

Int64Array unescape_json_of(py::array_t<uint8_t, py::array::c_style>& data,
                            const Int64Array& starts, const Int64Array& ends) {
  const DocumentSpans texts = checked_spans(BytesView(data), starts, ends);
  uint8_t* const bytes = data.mutable_data();
  std::vector<int64_t> new_ends(texts.ends, texts.ends + texts.n);
  {
    py::gil_scoped_release release;
    unescape_json(bytes, texts.starts, new_ends.data(), texts.n);
  }
  return to_array(std::move(new_ends));
}

template <class Id>
void add_id_counts_of(const py::array_t<Id, py::array::c_style>& ids,
                      py::array_t<int64_t, py::array::c_style>& counts) {
  const auto n = static_cast<size_t>(ids.size());
  const auto size = static_cast<size_t>(counts.size());
  int64_t* of_ids = counts.mutable_data();
  size_t done = 0;
  {
    py::gil_scoped_release release;
    done = add_id_counts(ids.data(), n, of_ids, size);
  }
  if (done < n) {
    throw std::invalid_argument("expected ids below " + std::to_string(size) + ", found " +
                                std::to_string(ids.data()[done]));
  }
}

using Int64s = py::array_t<int64_t, py::array::c_style>;

DocumentHistogram histogram_of(Int64s& sums) {
  if (sums.ndim() != 2 || sums.shape(0) != 3 || sums.shape(1) == 0) {
    throw std::invalid_argument("expected a histogram of three rows");
  }
  return {sums.mutable_data(), static_cast<size_t>(sums.shape(1))};
}

void add_document_sums_of(const Int64s& tokens, const Int64s& bytes, Int64s& lengths,
                          Int64s& ratios, uint64_t steps) {
  if (tokens.size() != bytes.size()) throw std::invalid_argument("expected equally many numbers");
  const DocumentHistogram by_length = histogram_of(lengths);
  const DocumentHistogram by_ratio = histogram_of(ratios);
  py::gil_scoped_release release;
  add_document_sums(tokens.data(), bytes.data(), static_cast<size_t>(tokens.size()), by_length,
                    by_ratio, steps);
}

std::optional<int64_t> safe_cut_of(const py::buffer& buffer, bool at_end, size_t limit,
                                   const SpecialSet& specials, const Normalizer* normalizer,
                                   bool before_white_space) {
  const BytesView text(buffer);
  py::gil_scoped_release release;
  const int64_t cut = safe_cut(text.data(), text.size(), at_end, limit, specials.matcher(),
                               normalizer_or_none(normalizer), before_white_space);
  if (cut == kNoCut) return std::nullopt;
  return cut;
}

// ---------------------------------------------------------------------------------------------
// Counting

class PyPretokenTable {
 public:
  PyPretokenTable(const std::optional<std::string>& pattern,
                  std::vector<std::string> special_tokens, size_t max_pretoken_bytes, bool portable,
                  const Normalizer* normalizer)
      : table_(portable),
        scanner_(pattern ? scanner_from_name(*pattern, portable) : nullptr),
        normalizer_(normalizer_or_none(normalizer)),
        specials_(std::move(special_tokens)),
        max_pretoken_bytes_(max_pretoken_bytes) {}

  py::tuple add_documents(const py::buffer& buffer, const Int64Array& starts,
                          const Int64Array& ends, size_t first, size_t memory_limit) {
    if (scanner_ == nullptr) {
      throw std::invalid_argument("a table without a native pattern takes pre-tokens: add_spans");
    }
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    std::vector<LongPretoken> too_long;
    size_t next;
    {
      py::gil_scoped_release release;
      next = table_.add_documents(documents.data, documents.size, documents.starts, documents.ends,
                                  documents.n, first, scanner_, normalizer_, specials_,
                                  memory_limit, max_pretoken_bytes_, too_long);
    }
    py::list places;
    for (const LongPretoken& place : too_long) {
      places.append(py::make_tuple(place.document, place.begin, place.length));
    }
    return py::make_tuple(next, places);
  }

  void add_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    py::gil_scoped_release release;
    for (size_t i = 0; i < spans.n; ++i) {
      table_.add(spans.data + spans.starts[i], static_cast<size_t>(spans.ends[i] - spans.starts[i]),
                 1);
    }
  }

  void add_counts(const py::buffer& buffer, const Int64Array& offsets, const Int64Array& counts) {
    const BytesView keys(buffer);
    check_key_offsets(keys, offsets, counts.size());
    const size_t n = static_cast<size_t>(counts.size());
    const int64_t* at = offsets.data();
    py::gil_scoped_release release;
    for (size_t i = 0; i < n; ++i) {
      table_.add(keys.data() + at[i], static_cast<size_t>(at[i + 1] - at[i]), counts.data()[i]);
    }
  }

  void add_table(const PyPretokenTable& other) {
    py::gil_scoped_release release;
    table_.add_table(other.table_);
  }

  void clear() {
    py::gil_scoped_release release;
    table_.clear();
  }

  size_t size() const { return table_.size(); }
  size_t memory_bytes() const { return table_.memory_bytes(); }
  int64_t total() const {
    py::gil_scoped_release release;
    return table_.total();
  }

  py::list pack_sections(size_t shards) const {
    if (shards == 0) throw std::invalid_argument("shards must be at least 1");
    py::list sections;
    std::vector<std::vector<uint32_t>> order;
    {
      py::gil_scoped_release release;
      order = table_.sorted_shards(shards);
    }
    for (std::vector<uint32_t>& entries : order) {
      std::string packed;
      {
        py::gil_scoped_release release;
        packed = pack_section(table_, entries);
        std::vector<uint32_t>().swap(entries);
      }
      sections.append(py::bytes(packed));
    }
    return sections;
  }

  py::tuple columns() const {
    CountColumns rows;
    {
      py::gil_scoped_release release;
      const std::vector<uint32_t> order = std::move(table_.sorted_shards(1).front());
      for (uint32_t entry : order) {
        const PretokenTable::Row row = table_.row(entry);
        rows.keys.insert(rows.keys.end(), row.key, row.key + row.length);
        rows.offsets.push_back(static_cast<int64_t>(rows.keys.size()));
        rows.counts.push_back(row.count);
      }
    }
    return to_columns(std::move(rows));
  }

  static py::tuple to_columns(CountColumns&& rows) {
    return py::make_tuple(to_array(std::move(rows.keys)), to_array(std::move(rows.offsets)),
                          to_array(std::move(rows.counts)));
  }

 private:
  PretokenTable table_;
  Scanner scanner_;
  Normalizer normalizer_;
  SpecialMatcher specials_;
  size_t max_pretoken_bytes_;
};

class PyOrderedPretokens {
 public:
  PyOrderedPretokens(const std::optional<std::string>& pattern,
                     std::vector<std::string> special_tokens, const Normalizer* normalizer)
      : scanner_(pattern ? scanner_from_name(*pattern) : nullptr),
        normalizer_(normalizer_or_none(normalizer)),
        specials_(std::move(special_tokens)) {}

  void add_documents(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends) {
    if (scanner_ == nullptr) {
      throw std::invalid_argument("without a native pattern pre-tokens are needed: add_spans");
    }
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    py::gil_scoped_release release;
    for (size_t i = 0; i < documents.n; ++i) {
      pretokens_.add_document(documents.data + documents.starts[i],
                              static_cast<size_t>(documents.ends[i] - documents.starts[i]),
                              scanner_, normalizer_, specials_);
    }
  }

  void add_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    py::gil_scoped_release release;
    for (size_t i = 0; i < spans.n; ++i) {
      pretokens_.add(spans.data + spans.starts[i],
                     static_cast<size_t>(spans.ends[i] - spans.starts[i]));
    }
  }

  size_t size() const { return pretokens_.size(); }
  size_t memory_bytes() const { return pretokens_.memory_bytes(); }

  py::tuple columns() const {
    return PyPretokenTable::to_columns(
        {pretokens_.keys(), pretokens_.offsets(), pretokens_.counts()});
  }

 private:
  OrderedPretokens pretokens_;
  Scanner scanner_;
  Normalizer normalizer_;
  SpecialMatcher specials_;
};

class PyCountMerger {
 public:
  PyCountMerger(size_t sources, py::function refill) : refill_(std::move(refill)) {
    py::gil_scoped_release release;
    merger_.emplace(sources, [this](size_t source, std::string& chunk) {
      py::gil_scoped_acquire acquire;
      chunk = refill_(source).cast<std::string>();
    });
  }

  py::tuple read(size_t max_rows, size_t max_bytes) {
    CountColumns rows;
    {
      py::gil_scoped_release release;
      rows = merger_->read(max_rows, max_bytes);
    }
    return PyPretokenTable::to_columns(std::move(rows));
  }

 private:
  py::function refill_;
  std::optional<CountMerger> merger_;
};

// ---------------------------------------------------------------------------------------------
// Learning merges

MergeLearnerOptions learner_options(const std::string& tie_break, int64_t min_frequency,
                                    size_t max_token_bytes,
                                    std::vector<std::string> forbidden_tokens, bool always_new,
                                    bool forbid_whitespace_tokens) {
  MergeLearnerOptions options;
  if (tie_break == "lexicographic") {
    options.tie_break = TieBreak::lexicographic;
  } else if (tie_break == "first_id") {
    options.tie_break = TieBreak::first_id;
  } else if (tie_break == "huggingface") {
    options.tie_break = TieBreak::huggingface;
  } else if (tie_break == "first_seen") {
    options.tie_break = TieBreak::first_seen;
  } else {
    throw std::invalid_argument("no tie-break is called " + tie_break);
  }
  options.min_frequency = min_frequency;
  options.max_token_bytes = max_token_bytes;
  options.forbidden_tokens = std::move(forbidden_tokens);
  options.always_new = always_new;
  options.forbid_whitespace_tokens = forbid_whitespace_tokens;
  return options;
}

MergeLearner make_merge_learner(const py::buffer& buffer, const Int64Array& offsets,
                                const Int64Array& counts, const std::string& tie_break,
                                int64_t min_frequency, size_t max_token_bytes,
                                std::vector<std::string> forbidden_tokens, bool always_new,
                                bool forbid_whitespace_tokens) {
  MergeLearnerOptions options =
      learner_options(tie_break, min_frequency, max_token_bytes, std::move(forbidden_tokens),
                      always_new, forbid_whitespace_tokens);
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, counts.size());
  const size_t n = static_cast<size_t>(counts.size());
  py::gil_scoped_release release;
  return MergeLearner(keys.data(), offsets.data(), counts.data(), n, std::move(options));
}

MergeLearner merge_learner_from_symbols(const std::vector<std::string>& symbols,
                                        const py::array_t<uint32_t, py::array::c_style>& words,
                                        const Int64Array& offsets, const Int64Array& counts,
                                        const std::string& tie_break, int64_t min_frequency,
                                        size_t max_token_bytes,
                                        std::vector<std::string> forbidden_tokens, bool always_new,
                                        bool forbid_whitespace_tokens) {
  MergeLearnerOptions options =
      learner_options(tie_break, min_frequency, max_token_bytes, std::move(forbidden_tokens),
                      always_new, forbid_whitespace_tokens);
  const size_t n = static_cast<size_t>(counts.size());
  if (offsets.ndim() != 1 || offsets.size() != counts.size() + 1 || offsets.at(0) != 0 ||
      offsets.at(counts.size()) != words.size()) {
    throw std::invalid_argument(
        "offsets must have one entry more than there are counts, from 0 to the number of symbols "
        "in words");
  }
  py::gil_scoped_release release;
  return MergeLearner::from_symbols(symbols, words.data(), offsets.data(), counts.data(), n,
                                    std::move(options));
}

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::vocab_size_reached:
      return "vocab_size_reached";
    case StopReason::below_min_frequency:
      return "below_min_frequency";
    case StopReason::no_pairs_left:
      return "no_pairs_left";
  }
  return "";
}

py::tuple merge_columns(const MergeLearner& learner) {
  const std::vector<LearnedMerge>& merges = learner.merges();
  std::vector<uint32_t> left, right, result;
  std::vector<int64_t> count;
  for (const LearnedMerge& merge : merges) {
    left.push_back(merge.left);
    right.push_back(merge.right);
    result.push_back(merge.result);
    count.push_back(merge.count);
  }
  return py::make_tuple(to_array(std::move(left)), to_array(std::move(right)),
                        to_array(std::move(result)), to_array(std::move(count)));
}

py::tuple symbol_columns(const MergeLearner& learner) {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> offsets = {0};
  if (learner.symbol_bytes() > INT32_MAX)
    throw std::overflow_error("the symbols have more than 2^31 - 1 bytes");
  bytes.reserve(learner.symbol_bytes());
  for (uint32_t i = 0; i < learner.num_symbols(); ++i) {
    const std::string symbol = learner.symbol(i);
    bytes.insert(bytes.end(), symbol.begin(), symbol.end());
    offsets.push_back(static_cast<int32_t>(bytes.size()));
  }
  return py::make_tuple(to_array(std::move(bytes)), to_array(std::move(offsets)));
}

// ---------------------------------------------------------------------------------------------
// Encoding

std::vector<MergeRule> rules_from_columns(const py::array_t<uint32_t, py::array::c_style>& left,
                                          const py::array_t<uint32_t, py::array::c_style>& right,
                                          const py::array_t<uint32_t, py::array::c_style>& result) {
  const size_t n = static_cast<size_t>(left.size());
  if (static_cast<size_t>(right.size()) != n || static_cast<size_t>(result.size()) != n) {
    throw std::invalid_argument("left, right and result must be equally long");
  }
  std::vector<MergeRule> rules(n);
  for (size_t i = 0; i < n; ++i) {
    rules[i] = {left.data()[i], right.data()[i], result.data()[i]};
  }
  return rules;
}

// Memory that the allocator has at hand when it is released, since nobody else could use it. It is
// not written to, so it is addresses more than memory.
class Reserve {
 public:
  Reserve() {
    take();
    fence_ = std::malloc(kBlock);
  }
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;
  ~Reserve() {
    release();
    std::free(fence_);
  }
  void take() {
    for (void*& block : blocks_) {
      if (block == nullptr) block = std::malloc(kBlock);
    }
  }
  void release() {
    for (void*& block : blocks_) std::free(std::exchange(block, nullptr));
  }

 private:
  static constexpr size_t kBlock = size_t{100} << 10;  // larger ones would be given to the system
  std::array<void*, 4> blocks_{};
  void* fence_;  // behind them: what is free at the very end would be given to the system too
};

class PyEncoder {
 public:
  PyEncoder(const Int64Array& byte_ids, std::vector<MergeRule> rules, int64_t unknown_id,
            const std::optional<std::string>& pattern, size_t cache_entries, bool portable,
            const Normalizer* normalizer)
      : encoder_(MergeRules(checked_byte_ids(byte_ids), rules, unknown_id),
                 pattern ? scanner_from_name(*pattern, portable) : nullptr,
                 normalizer_or_none(normalizer), portable),
        native_(pattern.has_value()),
        workspaces_(cache_entries) {}

  void set_whole_tokens(const py::buffer& buffer, const Int64Array& offsets,
                        const py::array_t<uint32_t, py::array::c_style>& ids) {
    const BytesView keys(buffer);
    check_key_offsets(keys, offsets, ids.size());
    WholeTokens whole;
    for (py::ssize_t i = 0; i < ids.size(); ++i) {
      const int64_t begin = offsets.data()[i];
      whole.emplace(std::string(reinterpret_cast<const char*>(keys.data()) + begin,
                                static_cast<size_t>(offsets.data()[i + 1] - begin)),
                    ids.data()[i]);
    }
    encoder_.set_whole_tokens(std::move(whole));
  }

  // (ids, offsets): uint16 or uint32 ids of all documents, int64 offsets of n + 1.
  py::tuple encode_documents(const py::buffer& buffer, const Int64Array& starts,
                             const Int64Array& ends, const SpecialSet& specials,
                             const std::vector<uint32_t>& prepend,
                             const std::vector<uint32_t>& append, int bits, int num_threads) {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    const Affixes affixes{prepend, append};
    if (bits == 16) return encode_as<uint16_t>(documents, specials, affixes, num_threads);
    return encode_as<uint32_t>(documents, specials, affixes, num_threads);
  }

  py::list encode_text(const py::object& text, const SpecialSet& specials) {
    return encode_one(text, specials, SIZE_MAX, to_list);
  }

  // The ids as bytes, uint32 each. Takes little memory beyond that of the text and these.
  py::bytes encode_step(const py::object& text, const SpecialSet& specials) {
    return encode_one(text, specials, Workspace::kStreamLines, to_bytes);
  }

  // Around a stream: memory that was kept for it is free meanwhile, for its text and Python's
  // objects.
  void begin_stream() {
    if (streams_++ == 0) reserve_.release();
  }
  void end_stream() {
    if (--streams_ == 0) reserve_.take();
  }

  py::tuple encode_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends,
                         const Int64Array& special_ids) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    if (special_ids.size() != starts.size()) {
      throw std::invalid_argument("as many special ids as spans are needed");
    }
    IdBuffer<uint32_t> ids;
    std::vector<int64_t> offsets(spans.n + 1, 0);
    {
      py::gil_scoped_release release;
      WorkspacePool::Lease lease(workspaces_);
      encoder_.encode_spans(lease.get(), spans, special_ids.data(), ids, offsets.data() + 1);
    }
    return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
  }

 private:
  template <class Result>
  Result encode_one(const py::object& text, const SpecialSet& specials, size_t most_lines,
                    Result (*convert)(const IdBuffer<uint32_t>&)) {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    std::optional<BytesView> view;
    const uint8_t* bytes;
    py::ssize_t size;
    if (PyUnicode_Check(text.ptr())) {
      bytes = reinterpret_cast<const uint8_t*>(PyUnicode_AsUTF8AndSize(text.ptr(), &size));
      if (bytes == nullptr) throw py::error_already_set();
    } else {
      view.emplace(py::reinterpret_borrow<py::buffer>(text));
      bytes = view->data();
      size = static_cast<py::ssize_t>(view->size());
    }
    const int64_t start = 0;
    const int64_t end = size;
    const DocumentSpans documents{bytes, static_cast<size_t>(size), &start, &end, 1};
    WorkspacePool::Lease lease(workspaces_, most_lines);
    Workspace& workspace = lease.get();
    const auto encode_into = [&](IdBuffer<uint32_t>& ids) {
      int64_t offset;
      encoder_.encode_documents(workspace, documents, specials.matcher(), specials.ids(), {}, ids,
                                &offset);
    };
    if (documents.bytes_of(0) <= Workspace::kShortText) {
      workspace.short_ids.clear();
      encode_into(workspace.short_ids);
      return convert(workspace.short_ids);
    }
    IdBuffer<uint32_t> ids;
    {
      py::gil_scoped_release release;
      encode_into(ids);
    }
    return convert(ids);
  }

  static py::bytes to_bytes(const IdBuffer<uint32_t>& ids) {
    const auto size = static_cast<py::ssize_t>(ids.size() * sizeof(uint32_t));
    PyObject* const bytes =
        PyBytes_FromStringAndSize(reinterpret_cast<const char*>(ids.data()), size);
    if (bytes == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(bytes);
  }

  static py::list to_list(const IdBuffer<uint32_t>& ids) {
    const auto size = static_cast<py::ssize_t>(ids.size());
    py::list result = py::reinterpret_steal<py::list>(PyList_New(size));
    if (!result) throw py::error_already_set();
    for (py::ssize_t i = 0; i < size; ++i) {
      PyObject* const id = PyLong_FromLong(ids.data()[i]);
      if (id == nullptr) throw py::error_already_set();
      PyList_SET_ITEM(result.ptr(), i, id);
    }
    return result;
  }

  static std::array<int64_t, 256> checked_byte_ids(const Int64Array& ids) {
    if (ids.size() != 256) throw std::invalid_argument("256 byte ids are needed");
    std::array<int64_t, 256> result;
    std::copy_n(ids.data(), 256, result.begin());
    return result;
  }

  template <class Id>
  py::tuple encode_as(const DocumentSpans& documents, const SpecialSet& specials,
                      const Affixes& affixes, int num_threads) {
    std::vector<int64_t> offsets(documents.n + 1, 0);
    IdBuffer<Id> ids;
    {
      py::gil_scoped_release release;
      const auto encode = [&](const DocumentSpans& part, Workspace& workspace,
                              IdBuffer<Id>& part_ids, int64_t* part_offsets) {
        encoder_.encode_documents(workspace, part, specials.matcher(), specials.ids(), affixes,
                                  part_ids, part_offsets);
      };
      const size_t threads =
          num_threads > 0 ? static_cast<size_t>(num_threads) : std::thread::hardware_concurrency();
      encode_in_threads(encode, workspaces_, documents, encoder_.growth(),
                        affixes.prepend.size() + affixes.append.size(), threads, ids,
                        offsets.data() + 1);
    }
    return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
  }

  Reserve reserve_;
  size_t streams_ = 0;
  Encoder encoder_;
  bool native_;
  WorkspacePool workspaces_;
};

// ---------------------------------------------------------------------------------------------
// Words and tokens of characters

WordRule word_rule_from_name(const std::string& name) {
  if (name == "whitespace") return WordRule::whitespace;
  if (name == "bert") return WordRule::bert;
  if (name == "whole_text") return WordRule::whole;
  throw std::invalid_argument("no rule for words is called " + name);
}

// (marked, offsets): the words of document i are marked[offsets[i], offsets[i + 1]).
py::tuple mark_words_of(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends,
                        const std::string& rule_name, const SpecialSet& specials) {
  const BytesView data(buffer);
  const DocumentSpans documents = checked_spans(data, starts, ends);
  const WordRule rule = word_rule_from_name(rule_name);
  ByteBuffer marked;
  std::vector<int64_t> offsets(documents.n + 1, 0);
  {
    py::gil_scoped_release release;
    for (size_t i = 0; i < documents.n; ++i) {
      mark_words(documents.data + documents.starts[i], documents.bytes_of(i), rule,
                 specials.matcher(), marked);
      offsets[i + 1] = static_cast<int64_t>(marked.size());
    }
  }
  return py::make_tuple(to_array(std::move(marked)), to_array(std::move(offsets)));
}

WordEndMeaning word_end_from_name(const std::string& name) {
  if (name == "gap") return WordEndMeaning::gap;
  if (name == "symbol") return WordEndMeaning::symbol;
  if (name == "suffix") return WordEndMeaning::suffix;
  throw std::invalid_argument("an end of a word is not a " + name);
}

std::unique_ptr<LongestMatcher> make_longest_matcher(const py::buffer& buffer,
                                                     const Int64Array& offsets,
                                                     const Int64Array& ids,
                                                     const std::string& word_end) {
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, ids.size());
  py::gil_scoped_release release;
  return std::make_unique<LongestMatcher>(keys.data(), offsets.data(), ids.data(),
                                          static_cast<size_t>(ids.size()),
                                          word_end_from_name(word_end));
}

// (ids, offsets): int64 ids of all documents, -1 for the unknown, int64 offsets of n + 1.
py::tuple longest_match_ids(const LongestMatcher& matcher, const py::buffer& buffer,
                            const Int64Array& starts, const Int64Array& ends,
                            const std::vector<int64_t>& special_ids, bool longest_first) {
  const BytesView data(buffer);
  const DocumentSpans documents = checked_spans(data, starts, ends);
  std::vector<int64_t> ids;
  std::vector<int64_t> offsets(documents.n + 1, 0);
  {
    py::gil_scoped_release release;
    const auto encode =
        longest_first ? &LongestMatcher::longest_first : &LongestMatcher::left_to_right;
    (matcher.*encode)(documents.data, documents.starts, documents.ends, documents.n, special_ids,
                      ids, offsets.data() + 1);
  }
  return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
}

// ---------------------------------------------------------------------------------------------
// Packing

// (rows int64[n], number of rows).
py::tuple best_fit_rows_of(const Int64Array& lengths, int64_t capacity) {
  if (lengths.ndim() != 1) throw std::invalid_argument("lengths must be one-dimensional");
  const size_t n = static_cast<size_t>(lengths.size());
  for (size_t i = 0; i < n; ++i) {
    if (lengths.data()[i] < 1 || lengths.data()[i] > capacity) {
      throw std::invalid_argument("piece " + std::to_string(i) + " has a length of " +
                                  std::to_string(lengths.data()[i]) + ", not within 1 and " +
                                  std::to_string(capacity));
    }
  }
  std::vector<int64_t> rows(n);
  size_t begun = 0;
  {
    py::gil_scoped_release release;
    begun = best_fit_rows(lengths.data(), n, capacity, rows.data());
  }
  return py::make_tuple(to_array(std::move(rows)), begun);
}

// Copies pieces of one one-dimensional array into another of the same type.
void copy_pieces_of(const py::array& source, const Int64Array& starts, const Int64Array& lengths,
                    py::array& target, const Int64Array& places) {
  if (source.ndim() != 1 || target.ndim() != 1 || !source.dtype().is(target.dtype()) ||
      (source.flags() & target.flags() & py::array::c_style) == 0) {
    throw std::invalid_argument("source and target must be contiguous, and of one type");
  }
  if (starts.ndim() != 1 || starts.size() != lengths.size() || starts.size() != places.size()) {
    throw std::invalid_argument("starts, lengths and places must be equally long");
  }
  const size_t n = static_cast<size_t>(starts.size());
  for (size_t i = 0; i < n; ++i) {
    const int64_t length = lengths.data()[i];
    if (length < 0 || length > source.size() || length > target.size() || starts.data()[i] < 0 ||
        starts.data()[i] > source.size() - length || places.data()[i] < 0 ||
        places.data()[i] > target.size() - length) {
      throw std::invalid_argument("piece " + std::to_string(i) + " lies outside of the ids");
    }
  }
  const auto* from = static_cast<const uint8_t*>(source.data());
  auto* to = static_cast<uint8_t*>(target.mutable_data());
  const size_t item_bytes = static_cast<size_t>(source.itemsize());
  py::gil_scoped_release release;
  copy_pieces(from, starts.data(), lengths.data(), places.data(), n, item_bytes, to);
}

}  // namespace
}  // namespace bpe

PYBIND11_MODULE(_native, m) {
  using namespace bpe;
  using namespace py::literals;

  m.doc() = "The native core of bpe_core; see the modules that use it.";
  py::register_exception_translator(&translate_exception);

  m.def("split_pretokens", &split_pretokens, "pattern"_a, "data"_a, "capacity"_a = 256,
        "portable"_a = false);
  m.def(
      "utf8_valid_prefix",
      [](const py::buffer& buffer) {
        const BytesView data(buffer);
        py::gil_scoped_release release;
        return utf8_valid_prefix(data.data(), data.size());
      },
      "data"_a);
  m.def(
      "xxh3_128",
      [](const py::buffer& buffer) {
        const BytesView data(buffer);
        const Hash128 hash = xxh3_128(data.data(), data.size());
        return std::make_pair(hash.high, hash.low);
      },
      "data"_a);

  py::class_<Normalizer>(m, "Normalizer")
      .def(py::init(&make_normalizer), "form"_a = py::none(), "quotes"_a = false)
      .def(
          "normalize",
          [](const Normalizer& normalizer, const py::bytes& text) {
            const std::string_view source = text;
            std::string buffer;
            std::string_view found;
            {
              py::gil_scoped_release release;
              found = normalizer.normalized(source, buffer);
            }
            return found.data() == source.data() ? text : py::bytes(found.data(), found.size());
          },
          "text"_a);
  m.def("add_id_counts", &add_id_counts_of<uint16_t>, "ids"_a.noconvert(), "counts"_a.noconvert());
  m.def("add_id_counts", &add_id_counts_of<uint32_t>, "ids"_a.noconvert(), "counts"_a.noconvert());
  m.def("add_document_sums", &add_document_sums_of, "tokens"_a.noconvert(), "bytes"_a.noconvert(),
        "lengths"_a.noconvert(), "ratios"_a.noconvert(), "steps"_a);
  m.def("last_joins", &last_joins_of, "data"_a, "offsets"_a);

  py::class_<SpecialSet>(m, "SpecialSet")
      .def(py::init<std::vector<std::string>, std::vector<uint32_t>>(), "tokens"_a, "ids"_a)
      .def_property_readonly("ids", &SpecialSet::ids)
      .def("find_all", &SpecialSet::find_all, "data"_a)
      .def("find_first", &SpecialSet::find_first, "data"_a, "starts"_a, "ends"_a);

  m.def(
      "separator_problem",
      [](const SeparatorArgument& separator) {
        return separator_problem(separator_list(separator));
      },
      "separator"_a);
  m.def("find_separators", &find_separators_of, "data"_a, "separator"_a, "from_"_a, "limit"_a,
        "at_end"_a = true);
  m.def("split_documents", &split_documents_of, "data"_a, "separator"_a, "start"_a, "from_"_a,
        "begin_before"_a, "max_bytes"_a, "max_documents"_a, "at_end"_a = true);
  m.def("count_characters", &count_characters_of, "data"_a, "starts"_a, "ends"_a);
  m.def("scan_documents", &scan_documents_of, "data"_a, "starts"_a, "ends"_a);
  py::class_<JsonFields>(m, "JsonFields")
      .def(py::init<const std::vector<std::vector<std::string>>&, bool>(), "paths"_a,
           "portable"_a = false)
      .def("find", &find_json_fields, "data"_a, "starts"_a, "ends"_a);
  m.def("unescape_json", &unescape_json_of, py::arg("data").noconvert(), "starts"_a, "ends"_a);
  m.def(
      "cut_lookahead", [](const SpecialSet& specials) { return cut_lookahead(specials.matcher()); },
      "specials"_a);
  m.def("safe_cut", &safe_cut_of, "text"_a, "at_end"_a, "limit"_a, "specials"_a,
        "normalizer"_a = py::none(), "before_white_space"_a = false);

  py::class_<PyPretokenTable>(m, "PretokenTable")
      .def(py::init<std::optional<std::string>, std::vector<std::string>, size_t, bool,
                    const Normalizer*>(),
           "pattern"_a, "special_tokens"_a, "max_pretoken_bytes"_a = 0, "portable"_a = false,
           "normalizer"_a = py::none())
      .def("add_documents", &PyPretokenTable::add_documents, "data"_a, "starts"_a, "ends"_a,
           "first"_a = 0, "memory_limit"_a = 0)
      .def("add_spans", &PyPretokenTable::add_spans, "data"_a, "starts"_a, "ends"_a)
      .def("add_counts", &PyPretokenTable::add_counts, "keys"_a, "offsets"_a, "counts"_a)
      .def("add_table", &PyPretokenTable::add_table, "other"_a)
      .def("clear", &PyPretokenTable::clear)
      .def("__len__", &PyPretokenTable::size)
      .def_property_readonly("memory_bytes", &PyPretokenTable::memory_bytes)
      .def("total", &PyPretokenTable::total)
      .def("pack_sections", &PyPretokenTable::pack_sections, "shards"_a)
      .def("columns", &PyPretokenTable::columns);

  py::class_<PyOrderedPretokens>(m, "OrderedPretokens")
      .def(py::init<std::optional<std::string>, std::vector<std::string>, const Normalizer*>(),
           "pattern"_a, "special_tokens"_a = std::vector<std::string>{},
           "normalizer"_a = py::none())
      .def("add_documents", &PyOrderedPretokens::add_documents, "data"_a, "starts"_a, "ends"_a)
      .def("add_spans", &PyOrderedPretokens::add_spans, "data"_a, "starts"_a, "ends"_a)
      .def("__len__", &PyOrderedPretokens::size)
      .def_property_readonly("memory_bytes", &PyOrderedPretokens::memory_bytes)
      .def("columns", &PyOrderedPretokens::columns);

  py::class_<PyCountMerger>(m, "CountMerger")
      .def(py::init<size_t, py::function>(), "sources"_a, "refill"_a)
      .def("read", &PyCountMerger::read, "max_rows"_a, "max_bytes"_a);

  py::class_<MergeLearner>(m, "MergeLearner")
      .def(py::init(&make_merge_learner), "keys"_a, "offsets"_a, "counts"_a, "tie_break"_a,
           "min_frequency"_a = 1, "max_token_bytes"_a = 0,
           "forbidden_tokens"_a = std::vector<std::string>{}, "always_new"_a = false,
           "forbid_whitespace_tokens"_a = false)
      .def_static("from_symbols", &merge_learner_from_symbols, "symbols"_a, "words"_a, "offsets"_a,
                  "counts"_a, "tie_break"_a, "min_frequency"_a = 1, "max_token_bytes"_a = 0,
                  "forbidden_tokens"_a = std::vector<std::string>{}, "always_new"_a = false,
                  "forbid_whitespace_tokens"_a = false)
      .def("learn", &MergeLearner::learn, "symbols"_a, "max_steps"_a,
           py::call_guard<py::gil_scoped_release>())
      .def("merges", &merge_columns)
      .def(
          "symbol",
          [](const MergeLearner& learner, uint32_t symbol) {
            return py::bytes(learner.symbol(symbol));
          },
          "symbol"_a)
      .def("symbols", &symbol_columns)
      .def_property_readonly("num_symbols", &MergeLearner::num_symbols)
      .def_property_readonly("symbol_bytes", &MergeLearner::symbol_bytes)
      .def_property_readonly("memory_bytes", &MergeLearner::memory_bytes)
      .def_property_readonly("stop_reason", [](const MergeLearner& learner) {
        return stop_reason_name(learner.stop_reason());
      });

  py::class_<PyEncoder>(m, "Encoder")
      .def(py::init([](const Int64Array& byte_ids,
                       const py::array_t<uint32_t, py::array::c_style>& left,
                       const py::array_t<uint32_t, py::array::c_style>& right,
                       const py::array_t<uint32_t, py::array::c_style>& result, int64_t unknown_id,
                       const std::optional<std::string>& pattern, size_t cache_entries,
                       bool portable, const Normalizer* normalizer) {
             return std::make_unique<PyEncoder>(byte_ids, rules_from_columns(left, right, result),
                                                unknown_id, pattern, cache_entries, portable,
                                                normalizer);
           }),
           "byte_ids"_a, "left"_a, "right"_a, "result"_a, "unknown_id"_a = -1, "pattern"_a = "gpt2",
           "cache_entries"_a = size_t{1} << 21, "portable"_a = false, "normalizer"_a = py::none())
      .def("set_whole_tokens", &PyEncoder::set_whole_tokens, "keys"_a, "offsets"_a, "ids"_a)
      .def("encode_documents", &PyEncoder::encode_documents, "data"_a, "starts"_a, "ends"_a,
           "specials"_a, "prepend"_a = std::vector<uint32_t>{},
           "append"_a = std::vector<uint32_t>{}, "bits"_a = 32, "num_threads"_a = 1)
      .def("encode_text", &PyEncoder::encode_text, "text"_a, "specials"_a)
      .def("encode_step", &PyEncoder::encode_step, "text"_a, "specials"_a)
      .def("begin_stream", &PyEncoder::begin_stream)
      .def("end_stream", &PyEncoder::end_stream)
      .def("encode_spans", &PyEncoder::encode_spans, "data"_a, "starts"_a, "ends"_a,
           "special_ids"_a);

  m.def("best_fit_rows", &best_fit_rows_of, "lengths"_a, "capacity"_a);
  m.def("copy_pieces", &copy_pieces_of, "source"_a, "starts"_a, "lengths"_a, "target"_a,
        "places"_a);
  m.def("mark_words", &mark_words_of, "data"_a, "starts"_a, "ends"_a, "rule"_a, "specials"_a);
  py::class_<LongestMatcher>(m, "LongestMatcher")
      .def(py::init(&make_longest_matcher), "keys"_a, "offsets"_a, "ids"_a, "word_end"_a)
      .def("encode", &longest_match_ids, "data"_a, "starts"_a, "ends"_a, "special_ids"_a,
           "longest_first"_a);
}
