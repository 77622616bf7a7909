// Documents: their positions, fields of JSON, statistics, and packing into rows.
#include "documents.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "arguments.hpp"
#include "document_sums.hpp"
#include "id_counts.hpp"
#include "json_fields.hpp"
#include "normalizer.hpp"
#include "packing.hpp"

namespace bpe {
namespace {

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

template <class Id>
void add_document_frequency_of(const py::array_t<Id, py::array::c_style>& ids,
                               const Int64s& offsets, const Int64s& document, int64_t first_row,
                               Int64s& documents, Int64s& first, Int64s& last) {
  const auto rows = static_cast<size_t>(document.size());
  const auto n = static_cast<size_t>(ids.size());
  const auto size = static_cast<size_t>(documents.size());
  if (static_cast<size_t>(offsets.size()) != rows + 1 ||
      static_cast<size_t>(first.size()) != size || static_cast<size_t>(last.size()) != size)
    throw std::invalid_argument("expected an offset more than rows, and arrays of one length");
  const int64_t* bounds = offsets.data();
  if (bounds[0] != 0 || static_cast<size_t>(bounds[rows]) != n ||
      !std::is_sorted(bounds, bounds + rows + 1))
    throw std::invalid_argument("expected ascending offsets of all ids");
  const DocumentFrequency found{documents.mutable_data(), first.mutable_data(),
                                last.mutable_data()};
  size_t done = 0;
  {
    py::gil_scoped_release release;
    done =
        add_document_frequency(ids.data(), bounds, document.data(), rows, first_row, found, size);
  }
  if (done < n) {
    throw std::invalid_argument("expected ids below " + std::to_string(size) + ", found " +
                                std::to_string(ids.data()[done]));
  }
}

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
                                   const PatternArgument& pattern, bool after_special) {
  const BytesView text(buffer);
  CutRule rule;
  rule.after_special = after_special;
  if (const auto* const name = std::get_if<std::string>(&pattern)) {
    rule.before_white_space =
        pattern_from_name(name->substr(0, name->find('/'))) == Pattern::whitespace_words;
  } else {
    rule.splitter = std::get<std::shared_ptr<Splitter>>(pattern).get();
  }
  py::gil_scoped_release release;
  const int64_t cut = safe_cut(text.data(), text.size(), at_end, limit, specials.matcher(),
                               normalizer_or_none(normalizer), rule);
  if (cut == kNoCut) return std::nullopt;
  return cut;
}

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

void bind_documents(py::module_& m) {
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
        "normalizer"_a = py::none(), "pattern"_a = PatternArgument("gpt2"),
        "after_special"_a = true);

  m.def("add_id_counts", &add_id_counts_of<uint16_t>, "ids"_a.noconvert(), "counts"_a.noconvert());
  m.def("add_id_counts", &add_id_counts_of<uint32_t>, "ids"_a.noconvert(), "counts"_a.noconvert());
  const auto def_frequency = [&m](auto add) {
    m.def("add_document_frequency", add, "ids"_a.noconvert(), "offsets"_a.noconvert(),
          "document"_a.noconvert(), "first_row"_a, "documents"_a.noconvert(), "first"_a.noconvert(),
          "last"_a.noconvert());
  };
  def_frequency(&add_document_frequency_of<uint16_t>);
  def_frequency(&add_document_frequency_of<uint32_t>);
  m.def("add_document_sums", &add_document_sums_of, "tokens"_a.noconvert(), "bytes"_a.noconvert(),
        "lengths"_a.noconvert(), "ratios"_a.noconvert(), "steps"_a);

  m.def("best_fit_rows", &best_fit_rows_of, "lengths"_a, "capacity"_a);
  m.def("copy_pieces", &copy_pieces_of, "source"_a, "starts"_a, "lengths"_a, "target"_a,
        "places"_a);
}

}  // namespace bpe
