// Scanners that cut text into pre-tokens like the published split patterns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "splitter.hpp"

namespace bpe {

// llama3 is cl100k; qwen2 is cl100k with single digits. cl100k_tiktoken is tiktoken's rewritten
// form of cl100k: whitespace at the end of the text is one pre-token even if it contains line
// breaks. deepseek_v3 is a chain: numbers in threes and runs of kHanOrKana are cut out before its
// main pattern splits the pieces. none makes the whole text one pre-token. whitespace_words
// separates whitespace and the words between it; marked_words ends a pre-token after each kWordEnd
// (see words.hpp for both).
enum class Pattern {
  gpt2,
  cl100k,
  cl100k_tiktoken,
  o200k,
  qwen2,
  deepseek_v3,
  none,
  whitespace_words,
  marked_words,
};

// Rules that change gpt2, cl100k, cl100k_tiktoken or o200k.
struct PatternRules {
  // Letters, numbers and other characters are never in the same pre-token; a space before them
  // stays as in the pattern. o200k treats marks as letters.
  bool split_categories = false;
  bool contractions = true;  // as in the pattern, unless categories are split
  uint32_t max_digits = 0;   // numbers in a pre-token; 0: no limit
};

// The part of a scanner's behaviour that is known when it is compiled.
enum class Splitting {
  as_published,
  with_max_digits,       // another limit of digits than the pattern's own
  without_contractions,  // with such a limit
  by_category,           // PatternRules::split_categories, with such a limit
};

// Writes the ends of the next pre-tokens of text[pos, size) into ends (ascending, each greater than
// pos, at most capacity of them) and returns their number, which is 0 only at pos == size or
// capacity == 0. text[0, size) is one segment: a document, or the text between two special
// tokens. pos must be 0 or an end given before. Bytes that are not UTF-8 count as characters that
// are neither letters nor numbers nor white space; overlong forms and surrogates count as the
// characters that they spell. All calls for a segment together take time linear in its size.
class Scanner {
 public:
  using Scan = size_t (*)(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                          size_t capacity, uint32_t max_digits);

  Scanner(std::nullptr_t) {}  // represents no scanner
  explicit Scanner(Scan scan, uint32_t max_digits = 0) : scan_(scan), max_digits_(max_digits) {}
  explicit Scanner(std::shared_ptr<const Splitter> splitter) : splitter_(std::move(splitter)) {}

  size_t operator()(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                    size_t capacity) const {
    if (scan_ == nullptr) return splitter_->scan(text, size, pos, ends, capacity);
    return scan_(text, size, pos, ends, capacity, max_digits_);
  }

  bool operator==(std::nullptr_t) const { return scan_ == nullptr && splitter_ == nullptr; }

 private:
  Scan scan_ = nullptr;
  uint32_t max_digits_ = 0;                   // of a pattern with rules
  std::shared_ptr<const Splitter> splitter_;  // used if scan_ is null
};

// The fastest scanner for the pattern on this CPU.
Scanner scanner_for(Pattern pattern);

// The scanner that uses no instructions beyond the baseline: the reference for the others.
Scanner portable_scanner_for(Pattern pattern);

// The same for a pattern with rules. Throws std::invalid_argument for a pattern that has none.
Scanner scanner_for(Pattern pattern, PatternRules rules);
Scanner portable_scanner_for(Pattern pattern, PatternRules rules);

}  // namespace bpe
