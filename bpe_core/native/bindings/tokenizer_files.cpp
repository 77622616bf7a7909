// Files of tokenizers: their merges and vocabularies, read as columns and written from columns.
#include <pybind11/critical_section.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "arguments.hpp"
#include "merge_texts.hpp"
#include "stand_ins.hpp"
#include "token_files.hpp"

namespace bpe {
namespace {

// (begin, end, merges) of the array at model.merges, or None.
py::object find_merges_in(const py::buffer& json) {
  const BytesView data(json);
  std::optional<FoundMerges> found;
  {
    py::gil_scoped_release release;
    found = find_merges(data.data(), data.size());
  }
  if (!found) return py::none();
  return py::make_tuple(found->begin, found->end, std::move(found->merges));
}

// ((begin, end) of model.vocab, (begin, end) of model.merges, largest id of the vocabulary), or
// None.
py::object outline_in(const py::buffer& json) {
  const BytesView data(json);
  std::optional<TokenizerOutline> found;
  {
    py::gil_scoped_release release;
    found = outline_of(data.data(), data.size());
  }
  if (!found) return py::none();
  return py::make_tuple(py::make_tuple(found->vocab_begin, found->vocab_end),
                        py::make_tuple(found->merges_begin, found->merges_end), found->largest_id);
}

// int64[m, 3], or None if a merge is not of these tokens.
py::object rows_of(const MergeTexts& merges, const py::buffer& buffer, const Int64Array& offsets,
                   const Int64Array& ids, bool stand_ins) {
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, ids.size());
  std::optional<std::vector<int64_t>> rows;
  {
    py::gil_scoped_release release;
    const auto n = static_cast<size_t>(ids.size());
    rows = merges.rows({keys.data(), offsets.data(), n}, ids.data(), stand_ins);
  }
  if (!rows) return py::none();
  const auto num_rows = static_cast<py::ssize_t>(rows->size() / 3);
  return to_array(std::move(*rows)).reshape({num_rows, py::ssize_t{3}});
}

// Appends the bytes that a text of stand-ins means; false if it is none.
bool append_bytes_of(PyObject* text, std::vector<uint8_t>& bytes) {
  const auto kind = PyUnicode_KIND(text);
  const void* const data = PyUnicode_DATA(text);
  const Py_ssize_t n = PyUnicode_GET_LENGTH(text);
  for (Py_ssize_t i = 0; i < n; ++i) {
    const int byte = byte_of_stand_in(PyUnicode_READ(kind, data, i));
    if (byte < 0) return false;
    bytes.push_back(static_cast<uint8_t>(byte));
  }
  return true;
}

// (ids int64[n] ascending, buffer, offsets int32[n + 1]): the entries of a vocabulary in stand-ins
// that are not left out. None if an entry is not of this kind, or an id occurs twice.
py::object entries_in_stand_ins(const py::dict& entries, const py::object& left_out,
                                int64_t max_id) {
  struct Entry {
    int64_t id;
    size_t begin;
    size_t end;
  };
  std::vector<Entry> found;
  found.reserve(entries.size());
  std::vector<uint8_t> bytes;
  PyObject* key;
  PyObject* value;
  Py_ssize_t position = 0;
  const py::scoped_critical_section nobody_else_changes(entries);
  while (PyDict_Next(entries.ptr(), &position, &key, &value)) {
    if (!PyUnicode_Check(key) || !PyLong_CheckExact(value)) return py::none();
    int overflow = 0;
    const int64_t id = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow != 0 || id < 0 || id > max_id) return py::none();
    const int is_left_out = PySequence_Contains(left_out.ptr(), key);
    if (is_left_out < 0) throw py::error_already_set();
    if (is_left_out != 0) continue;
    const size_t begin = bytes.size();
    if (!append_bytes_of(key, bytes)) return py::none();
    found.push_back({id, begin, bytes.size()});
  }
  if (bytes.size() > INT32_MAX) return py::none();
  std::ranges::sort(found, {}, &Entry::id);
  std::vector<int64_t> ids(found.size());
  std::vector<int32_t> offsets(found.size() + 1, 0);
  std::vector<uint8_t> sorted(bytes.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const Entry& entry = found[i];
    if (i > 0 && ids[i - 1] == entry.id) return py::none();
    ids[i] = entry.id;
    offsets[i + 1] = offsets[i] + static_cast<int32_t>(entry.end - entry.begin);
    std::copy(bytes.begin() + static_cast<std::ptrdiff_t>(entry.begin),
              bytes.begin() + static_cast<std::ptrdiff_t>(entry.end), sorted.begin() + offsets[i]);
  }
  return py::make_tuple(to_array(std::move(ids)), to_array(std::move(sorted)),
                        to_array(std::move(offsets)));
}

// The first merge whose sides, tokens by index, do not make its result, or -1.
int64_t find_wrong_merge(const py::buffer& buffer, const Int64Array& offsets,
                         const Int64Array& left, const Int64Array& right,
                         const Int64Array& result) {
  const BytesView keys(buffer);
  const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
  check_key_offsets(keys, offsets, n);
  if (right.size() != left.size() || result.size() != left.size()) {
    throw std::invalid_argument("left, right and result must be equally long");
  }
  py::gil_scoped_release release;
  const auto begin_of = [&](int64_t i) { return keys.data() + offsets.data()[i]; };
  const auto length_of = [&](int64_t i) {
    return static_cast<size_t>(offsets.data()[i + 1] - offsets.data()[i]);
  };
  for (py::ssize_t i = 0; i < left.size(); ++i) {
    const int64_t sides[3] = {left.data()[i], right.data()[i], result.data()[i]};
    for (const int64_t side : sides) {
      if (side < 0 || side >= n) throw std::invalid_argument("a merge is not of these tokens");
    }
    const size_t length = length_of(sides[0]);
    const uint8_t* const made = begin_of(sides[2]);
    if (length + length_of(sides[1]) != length_of(sides[2]) ||
        std::memcmp(made, begin_of(sides[0]), length) != 0 ||
        std::memcmp(made + length, begin_of(sides[1]), length_of(sides[1])) != 0) {
      return i;
    }
  }
  return -1;
}

// Texts of tokens, by row: keys[offsets[i], offsets[i + 1]).
class TextColumn {
 public:
  TextColumn(const py::buffer& buffer, Int64Array offsets)
      : keys_(buffer), offsets_(std::move(offsets)) {
    check_key_offsets(keys_, offsets_, std::max<py::ssize_t>(offsets_.size() - 1, 0));
  }
  KeySpans spans() const { return {keys_.data(), offsets_.data(), size()}; }
  size_t size() const { return static_cast<size_t>(offsets_.size() - 1); }
  void check_rows(const Int64Array& rows) const {
    const auto n = static_cast<int64_t>(size());
    for (py::ssize_t i = 0; i < rows.size(); ++i) {
      if (rows.data()[i] < 0 || rows.data()[i] >= n) {
        throw std::invalid_argument("row " + std::to_string(rows.data()[i]) + " of " +
                                    std::to_string(n) + " does not exist");
      }
    }
  }
  void check_ids(const Int64Array& ids) const {
    if (static_cast<size_t>(ids.size()) != size()) {
      throw std::invalid_argument("there must be an id for each token");
    }
  }

 private:
  BytesView keys_;
  Int64Array offsets_;
};

// Returns what `write` makes, with the interpreter's lock released meanwhile.
template <class Write>
py::bytes write_text(const Write& write) {
  std::string text;
  {
    py::gil_scoped_release release;
    text = write();
  }
  return py::bytes(text);
}

py::tuple stand_ins_of_tokens(const py::buffer& keys, const Int64Array& offsets) {
  const TextColumn tokens(keys, offsets);
  TokenTexts texts;
  {
    py::gil_scoped_release release;
    texts = stand_ins_of(tokens.spans());
  }
  return py::make_tuple(py::bytes(texts.text), to_array(std::move(texts.offsets)));
}

py::bytes write_vocabulary(const py::buffer& keys, const Int64Array& offsets, const Int64Array& ids,
                           const Int64Array& rows) {
  const TextColumn texts(keys, offsets);
  texts.check_ids(ids);
  texts.check_rows(rows);
  return write_text([&] {
    return vocabulary_json(texts.spans(), ids.data(), rows.data(),
                           static_cast<size_t>(rows.size()));
  });
}

template <auto write>
py::bytes write_merges(const py::buffer& keys, const Int64Array& offsets, const Int64Array& left,
                       const Int64Array& right) {
  const TextColumn texts(keys, offsets);
  texts.check_rows(left);
  texts.check_rows(right);
  if (left.size() != right.size()) {
    throw std::invalid_argument("left and right must be equally long");
  }
  return write_text([&] {
    return write(texts.spans(), {left.data(), right.data(), static_cast<size_t>(left.size())});
  });
}

py::bytes write_ranks(const py::buffer& keys, const Int64Array& offsets, const Int64Array& ids) {
  const TextColumn tokens(keys, offsets);
  tokens.check_ids(ids);
  return write_text([&] { return rank_lines(tokens.spans(), ids.data()); });
}

}  // namespace

void bind_tokenizer_files(py::module_& m) {
  py::class_<MergeTexts>(m, "MergeTexts")
      .def("__len__", &MergeTexts::size)
      .def("rows", &rows_of, "keys"_a, "offsets"_a, "ids"_a, "stand_ins"_a);
  m.def("find_merges", &find_merges_in, "json"_a);
  m.def("find_outline", &outline_in, "json"_a);
  m.def("entries_in_stand_ins", &entries_in_stand_ins, "entries"_a, "left_out"_a, "max_id"_a);
  m.def(
      "has_equal_keys",
      [](const py::buffer& buffer, const Int64Array& offsets) {
        const BytesView keys(buffer);
        const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
        check_key_offsets(keys, offsets, n);
        py::gil_scoped_release release;
        return has_equal_keys({keys.data(), offsets.data(), static_cast<size_t>(n)});
      },
      "keys"_a, "offsets"_a);
  m.def("find_wrong_merge", &find_wrong_merge, "keys"_a, "offsets"_a, "left"_a, "right"_a,
        "result"_a);
  m.def("stand_ins_of", &stand_ins_of_tokens, "keys"_a, "offsets"_a);
  m.def("vocabulary_json", &write_vocabulary, "keys"_a, "offsets"_a, "ids"_a, "rows"_a);
  m.def("merges_json", &write_merges<merges_json>, "keys"_a, "offsets"_a, "left"_a, "right"_a);
  m.def("merge_lines", &write_merges<merge_lines>, "keys"_a, "offsets"_a, "left"_a, "right"_a);
  m.def("rank_lines", &write_ranks, "keys"_a, "offsets"_a, "ids"_a);
}

}  // namespace bpe
