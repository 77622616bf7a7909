// Arguments and results shared by the bindings, which are the only code here that knows Python.
// Every long call releases the interpreter lock.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "encoder.hpp"
#include "id_buffer.hpp"
#include "normalizer.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"

namespace py = pybind11;

namespace bpe {

using namespace py::literals;

using Int64Array = py::array_t<int64_t, py::array::c_style | py::array::forcecast>;

// Holds the lock of an object that its calls change, with the interpreter's lock released: a call
// that needs that one to finish would otherwise wait for a call that waits for it.
class Exclusive {
 public:
  explicit Exclusive(std::mutex& mutex) : lock_(mutex) {}

 private:
  py::gil_scoped_release release_;
  std::lock_guard<std::mutex> lock_;
};

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
inline DocumentSpans checked_spans(const BytesView& data, const Int64Array& starts,
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
inline void check_key_offsets(const BytesView& data, const Int64Array& offsets, py::ssize_t n) {
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

// An array that owns the vector from which it is made: nothing is copied.
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

inline Pattern pattern_from_name(const std::string& name) {
  if (name == "gpt2") return Pattern::gpt2;
  if (name == "cl100k") return Pattern::cl100k;
  if (name == "cl100k_tiktoken") return Pattern::cl100k_tiktoken;
  if (name == "o200k") return Pattern::o200k;
  if (name == "qwen2") return Pattern::qwen2;
  if (name == "deepseek_v3") return Pattern::deepseek_v3;
  if (name == "none") return Pattern::none;
  if (name == "whitespace_words") return Pattern::whitespace_words;
  if (name == "marked_words") return Pattern::marked_words;
  throw std::invalid_argument("no native scanner is called " + name);
}

// A pattern's name, or one with rules: "gpt2/max_digits=3", "gpt2/split_categories/max_digits=0".
inline Scanner scanner_from_name(const std::string& name, bool portable = false) {
  const size_t rules_at = name.find('/');
  const Pattern pattern = pattern_from_name(name.substr(0, rules_at));
  if (rules_at != std::string::npos) {
    PatternRules rules;
    rules.split_categories = name.find("/split_categories", rules_at) != std::string::npos;
    rules.contractions = name.find("/no_contractions", rules_at) == std::string::npos;
    const size_t digits_at = name.rfind('=') + 1;
    rules.max_digits = static_cast<uint32_t>(std::stoul(name.substr(digits_at)));
    return portable ? portable_scanner_for(pattern, rules) : scanner_for(pattern, rules);
  }
  return portable ? portable_scanner_for(pattern) : scanner_for(pattern);
}

// Python's name for a way of splitting: a native scanner, or a splitter made at run time.
using PatternArgument = std::variant<std::string, std::shared_ptr<Splitter>>;

inline Scanner scanner_from_argument(const PatternArgument& pattern, bool portable = false) {
  const auto* const name = std::get_if<std::string>(&pattern);
  return name != nullptr ? scanner_from_name(*name, portable)
                         : Scanner(std::get<std::shared_ptr<Splitter>>(pattern));
}

inline Scanner scanner_from_argument(const std::optional<PatternArgument>& pattern,
                                     bool portable = false) {
  return pattern ? scanner_from_argument(*pattern, portable) : Scanner(nullptr);
}

// None stands for a normalizer that changes nothing.
inline Normalizer normalizer_or_none(const Normalizer* normalizer) {
  return normalizer != nullptr ? *normalizer : Normalizer();
}

// Special tokens with the ids as which they are encoded.
class SpecialSet {
 public:
  using Matches = std::vector<std::tuple<size_t, size_t, uint32_t>>;

  // flags: TokenFlags of each token, or none. normalized: (text, id, flags) of tokens that are
  // found in normalized text. bound: other spellings of these, between whose bytes no cut may
  // stand.
  SpecialSet(std::vector<std::string> tokens, std::vector<uint32_t> ids, std::vector<uint8_t> flags,
             const std::vector<std::tuple<std::string, uint32_t, uint8_t>>& normalized,
             const std::vector<std::string>& bound, const CodePointRanges& word_characters)
      : tokens_{SpecialMatcher(std::move(tokens), std::move(flags), word_characters),
                std::move(ids),
                SpecialMatcher(),
                {}} {
    if (tokens_.ids.size() != tokens_.matcher.tokens().size()) {
      throw std::invalid_argument("as many ids as special tokens are needed");
    }
    std::vector<std::string> texts;
    std::vector<uint8_t> normalized_flags;
    for (const auto& [text, id, bits] : normalized) {
      texts.push_back(text);
      tokens_.normalized_ids.push_back(id);
      normalized_flags.push_back(bits);
    }
    tokens_.normalized =
        SpecialMatcher(std::move(texts), std::move(normalized_flags), word_characters);
    for (const auto& [text, id, bits] : normalized) tokens_.matcher.bind(text, bits);
    for (const std::string& text : bound) {
      if (!text.empty()) tokens_.matcher.bind(text, 0);
    }
  }

  const SpecialTokens& tokens() const { return tokens_; }
  const SpecialMatcher& matcher() const { return tokens_.matcher; }
  const std::vector<uint32_t>& ids() const { return tokens_.ids; }
  const std::vector<uint32_t>& normalized_ids() const { return tokens_.normalized_ids; }
  bool binds(uint8_t before, uint8_t after) const { return matcher().binds(before, after); }

  Matches find_all(const py::buffer& buffer) const { return find_in(buffer, tokens_.matcher); }
  Matches find_normalized(const py::buffer& buffer) const {
    return find_in(buffer, tokens_.normalized);
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
        const uint8_t* const text = documents.data + documents.starts[i];
        if (matcher().find(text, documents.bytes_of(i), 0, match)) {
          first[i] = static_cast<int64_t>(match.begin);
        }
      }
    }
    return to_array(std::move(first));
  }

 private:
  static Matches find_in(const py::buffer& buffer, const SpecialMatcher& matcher) {
    const BytesView data(buffer);
    Matches matches;
    py::gil_scoped_release release;
    SpecialMatch match;
    size_t from = 0;
    while (matcher.find(data.data(), data.size(), from, match)) {
      matches.emplace_back(match.begin, match.end, match.index);
      from = match.end;
    }
    return matches;
  }

  SpecialTokens tokens_;
};

// Each adds the functions and classes of one file to the module.
void bind_text(py::module_& m);
void bind_patterns(py::module_& m);
void bind_documents(py::module_& m);
void bind_counting(py::module_& m);
void bind_learning(py::module_& m);
void bind_encoding(py::module_& m);
void bind_tokenizer_files(py::module_& m);

}  // namespace bpe
