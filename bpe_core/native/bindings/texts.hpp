// Texts of Python, read in place: str and bytes.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "encoder.hpp"
#include "id_buffer.hpp"
#include "transcode.hpp"

namespace bpe {

namespace py = pybind11;

// A str or bytes object as bytes; other objects are none of these. What a str contains never
// changes, so it may be read without the global lock.
class TextSource {
 public:
  explicit TextSource(PyObject* text) : text_(text) {
    if (PyBytes_Check(text)) {
      bytes_ = static_cast<size_t>(PyBytes_GET_SIZE(text));
      in_place_ = reinterpret_cast<const uint8_t*>(PyBytes_AS_STRING(text));
    } else if (PyUnicode_Check(text)) {
      with_units([&]<class Unit>(const Unit* units, size_t n) {
        const bool is_ascii = PyUnicode_IS_ASCII(text_);
        bytes_ = is_ascii ? n : n * kMostUtf8Bytes<Unit>;
        if (is_ascii) in_place_ = reinterpret_cast<const uint8_t*>(units);
      });
    } else {
      is_text_ = false;
    }
  }
  bool is_text() const { return is_text_; }
  // The text where it is already UTF-8, else null.
  const uint8_t* in_place() const { return in_place_; }
  // Maximum size of what write() writes, exact if in_place(); up to kUtf8Slack more bytes may be
  // overwritten.
  size_t most_bytes() const { return bytes_; }
  uint8_t* write(uint8_t* out) const {
    if (in_place_ != nullptr) {
      std::memcpy(out, in_place_, bytes_);
      return out + bytes_;
    }
    with_units([&](const auto* units, size_t n) { out = write_utf8(units, n, out); });
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
  const uint8_t* in_place_ = nullptr;
  size_t bytes_ = 0;
  bool is_text_ = true;
};

// The texts of a list, or none if an item is neither str nor bytes.
inline std::optional<std::vector<TextSource>> text_sources(const py::sequence& texts) {
  const size_t n = texts.size();
  std::vector<TextSource> sources;
  sources.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    sources.emplace_back(PySequence_Fast_GET_ITEM(texts.ptr(), static_cast<py::ssize_t>(i)));
    if (!sources.back().is_text()) return std::nullopt;
  }
  return sources;
}

// Texts as documents, for encode_in_threads.
struct TextSpans {
  const TextSource* texts;
  size_t n;

  size_t bytes_of(size_t i) const { return texts[i].most_bytes(); }
  TextSpans slice(size_t from, size_t to) const { return {texts + from, to - from}; }

  // Calls visit(documents, i) with a few texts at a time from text i on, in UTF-8. Only short ones
  // and those that are not ASCII are copied.
  template <class Visit>
  void for_each_part(const Visit& visit) const {
    IdBuffer<uint8_t> copy;
    std::vector<int64_t> bounds;
    for (size_t from = 0, to; from < n; from = to) {
      size_t bytes = bytes_of(from);
      to = from + 1;
      if (texts[from].in_place() != nullptr && bytes > kMostCopied) {
        const int64_t span[] = {0, static_cast<int64_t>(bytes)};
        visit(DocumentSpans{texts[from].in_place(), bytes, span, span + 1, 1}, from);
        continue;
      }
      while (to < n && bytes + bytes_of(to) <= kMostCopied) bytes += bytes_of(to++);
      copy.clear();
      copy.reserve_more(bytes + kUtf8Slack);
      bounds.assign(1, 0);
      uint8_t* const begin = copy.end();
      uint8_t* end = begin;
      for (size_t i = from; i < to; ++i) {
        end = texts[i].write(end);
        bounds.push_back(end - begin);
      }
      copy.advance(static_cast<size_t>(end - begin));
      visit(DocumentSpans{begin, copy.size(), bounds.data(), bounds.data() + 1, to - from}, from);
    }
  }

 private:
  static constexpr size_t kMostCopied = size_t{1} << 16;  // stays in the nearer caches
};

}  // namespace bpe
