// Text: pre-tokens, normalization, special tokens, words.
#include <cstdint>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "id_buffer.hpp"
#include "normalizer.hpp"
#include "scanner.hpp"
#include "transcode.hpp"
#include "utf8.hpp"
#include "words.hpp"
#include "xxh3.hpp"

namespace bpe {
namespace {

Int64Array split_pretokens(const PatternArgument& pattern, const py::buffer& buffer,
                           size_t capacity, bool portable) {
  const Scanner scanner = scanner_from_argument(pattern, portable);
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

Normalizer make_normalizer(const std::optional<std::string>& form, bool quotes) {
  if (!form) return Normalizer(NormalizationForm::none, quotes);
  if (*form == "nfc") return Normalizer(NormalizationForm::nfc, quotes);
  if (*form == "nfkc") return Normalizer(NormalizationForm::nfkc, quotes);
  throw std::invalid_argument("no normalization form is called " + *form);
}

WordRule word_rule_from_name(const std::string& name) {
  if (name == "whitespace") return WordRule::whitespace;
  if (name == "bert") return WordRule::bert;
  if (name == "whole_text") return WordRule::whole;
  throw std::invalid_argument("no rule for words is called " + name);
}

// A str or bytes object as bytes; other objects are none of these.
class TextSource {
 public:
  explicit TextSource(PyObject* text) : text_(text) {
    if (PyBytes_Check(text)) {
      bytes_ = static_cast<size_t>(PyBytes_GET_SIZE(text));
    } else if (PyUnicode_Check(text)) {
      with_units([&]<class Unit>(const Unit*, size_t n) {
        bytes_ = PyUnicode_IS_ASCII(text_) ? n : n * kMostUtf8Bytes<Unit>;
      });
    } else {
      is_text_ = false;
    }
  }
  bool is_text() const { return is_text_; }
  // Maximum size of what write() writes; up to kUtf8Slack more bytes may be overwritten.
  size_t most_bytes() const { return bytes_; }
  uint8_t* write(uint8_t* out) const {
    if (PyBytes_Check(text_)) {
      std::memcpy(out, PyBytes_AS_STRING(text_), bytes_);
      return out + bytes_;
    }
    with_units([&](const auto* units, size_t n) {
      if (PyUnicode_IS_ASCII(text_)) {
        std::memcpy(out, units, n);
        out += n;
      } else {
        out = write_utf8(units, n, out);
      }
    });
    return out;
  }

 private:
  template <class Visit>
  void with_units(Visit visit) const {
    const auto n = static_cast<size_t>(PyUnicode_GET_LENGTH(text_));
    switch (PyUnicode_KIND(text_)) {
      case PyUnicode_1BYTE_KIND:
        return visit(PyUnicode_1BYTE_DATA(text_), n);
      case PyUnicode_2BYTE_KIND:
        return visit(PyUnicode_2BYTE_DATA(text_), n);
      default:
        return visit(PyUnicode_4BYTE_DATA(text_), n);
    }
  }

  PyObject* text_;
  size_t bytes_ = 0;
  bool is_text_ = true;
};

// (buffer, offsets): text i in UTF-8 is buffer[offsets[i], offsets[i + 1]). None if one is neither
// str nor bytes.
py::object join_texts(const py::list& texts) {
  const size_t n = texts.size();
  std::vector<TextSource> sources;
  sources.reserve(n);
  size_t bytes = 0;
  for (size_t i = 0; i < n; ++i) {
    sources.emplace_back(PyList_GET_ITEM(texts.ptr(), static_cast<py::ssize_t>(i)));
    if (!sources.back().is_text()) return py::none();
    bytes += sources.back().most_bytes();
  }
  ByteBuffer buffer;
  buffer.reserve_more(bytes + kUtf8Slack);
  std::vector<int64_t> offsets(n + 1, 0);
  uint8_t* const begin = buffer.end();
  uint8_t* end = begin;
  for (size_t i = 0; i < n; ++i) {
    end = sources[i].write(end);
    offsets[i + 1] = end - begin;
  }
  buffer.advance(static_cast<size_t>(end - begin));
  return py::make_tuple(to_array(std::move(buffer)), to_array(std::move(offsets)));
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

}  // namespace

void bind_text(py::module_& m) {
  py::class_<Splitter, std::shared_ptr<Splitter>>(m, "Splitter")
      .def_property_readonly("has_cuts", &Splitter::has_cuts);
  m.def("split_pretokens", &split_pretokens, "pattern"_a, "data"_a, "capacity"_a = 256,
        "portable"_a = false);
  m.def("join_texts", &join_texts, "texts"_a);
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

  py::class_<SpecialSet>(m, "SpecialSet")
      .def(py::init<std::vector<std::string>, std::vector<uint32_t>, std::vector<uint8_t>,
                    std::vector<std::tuple<std::string, uint32_t, uint8_t>>,
                    std::vector<std::string>, CodePointRanges>(),
           "tokens"_a, "ids"_a, "flags"_a = std::vector<uint8_t>{},
           "normalized"_a = std::vector<std::tuple<std::string, uint32_t, uint8_t>>{},
           "bound"_a = std::vector<std::string>{}, "word_characters"_a = CodePointRanges{})
      .def_property_readonly("ids", &SpecialSet::ids)
      .def_property_readonly("normalized_ids", &SpecialSet::normalized_ids)
      .def("binds", &SpecialSet::binds, "before"_a, "after"_a)
      .def("find_normalized", &SpecialSet::find_normalized, "data"_a)
      .def("find_all", &SpecialSet::find_all, "data"_a)
      .def("find_first", &SpecialSet::find_first, "data"_a, "starts"_a, "ends"_a);

  m.def("mark_words", &mark_words_of, "data"_a, "starts"_a, "ends"_a, "rule"_a, "specials"_a);
}

}  // namespace bpe
