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
#include "texts.hpp"
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

// (buffer, offsets): text i in UTF-8 is buffer[offsets[i], offsets[i + 1]). None if one is neither
// str nor bytes.
py::object join_texts(const py::list& texts) {
  // A tuple keeps the texts while others may change the list.
  const auto kept = py::tuple(texts);
  const std::optional<std::vector<TextSource>> sources = text_sources(kept);
  if (!sources) return py::none();
  const size_t n = sources->size();
  size_t bytes = 0;
  for (const TextSource& source : *sources) bytes += source.most_bytes();
  ByteBuffer buffer;
  buffer.reserve_more(bytes + kUtf8Slack);
  std::vector<int64_t> offsets(n + 1, 0);
  uint8_t* const begin = buffer.end();
  uint8_t* end = begin;
  for (size_t i = 0; i < n; ++i) {
    end = (*sources)[i].write(end);
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
      .def_static(
          "of_table",
          [](const py::bytes& table, bool remove_spaces) {
            return Normalizer(
                std::make_shared<const CharacterMap>(std::string_view(table), remove_spaces));
          },
          "table"_a, "remove_spaces"_a)
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
