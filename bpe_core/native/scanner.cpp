#include "scanner.hpp"

#include <stdexcept>

#include "scanner_blocks.hpp"
#include "scanner_portable.hpp"
#include "words.hpp"

namespace bpe {
namespace {

// A Scanner that cuts at the ends that `end_of` returns for each pre-token.
template <size_t (*end_of)(const uint8_t* text, size_t size, size_t pos)>
size_t scan_words(const uint8_t* text, size_t size, size_t pos, size_t* ends, size_t capacity,
                  uint32_t) {
  size_t count = 0;
  while (count < capacity && pos < size) {
    pos = end_of(text, size, pos);
    ends[count++] = pos;
  }
  return count;
}

// The scanner of this CPU's vector instructions, or nullptr.
Scanner::Scan vector_scan_for(Pattern pattern, Splitting splitting) {
  if constexpr (kHasNeon) return neon_scan_for(pattern, splitting);
  return cpu_has_avx2() ? avx2_scan_for(pattern, splitting, cpu_extracts_fast()) : nullptr;
}

}  // namespace

Scanner portable_scanner_for(Pattern pattern) {
  switch (pattern) {
    case Pattern::gpt2:
      return Scanner(scan_portable<Pattern::gpt2>);
    case Pattern::cl100k:
      return Scanner(scan_portable<Pattern::cl100k>);
    case Pattern::cl100k_tiktoken:
      return Scanner(scan_portable<Pattern::cl100k_tiktoken>);
    case Pattern::o200k:
      return Scanner(scan_portable<Pattern::o200k>);
    case Pattern::qwen2:
      return Scanner(scan_portable<Pattern::qwen2>);
    case Pattern::deepseek_v3:
      return Scanner(scan_portable<Pattern::deepseek_v3>);
    case Pattern::none:
      return Scanner(scan_portable<Pattern::none>);
    case Pattern::whitespace_words:
      return Scanner(scan_words<word_or_space_end>);
    case Pattern::marked_words:
      return Scanner(scan_words<marked_word_end>);
  }
  throw std::invalid_argument("scanner_for: not a pattern");
}

Scanner scanner_for(Pattern pattern) {
  const Scanner::Scan scan = vector_scan_for(pattern, Splitting::as_published);
  return scan != nullptr ? Scanner(scan) : portable_scanner_for(pattern);
}

namespace {

Splitting splitting_of(PatternRules rules) {
  if (rules.split_categories) return Splitting::by_category;
  return rules.contractions ? Splitting::with_max_digits : Splitting::without_contractions;
}

template <Splitting splitting>
Scanner::Scan portable_scan_with(Pattern pattern) {
  switch (pattern) {
    case Pattern::gpt2:
      return scan_portable<Pattern::gpt2, splitting>;
    case Pattern::cl100k:
      return scan_portable<Pattern::cl100k, splitting>;
    case Pattern::cl100k_tiktoken:
      return scan_portable<Pattern::cl100k_tiktoken, splitting>;
    case Pattern::o200k:
      return scan_portable<Pattern::o200k, splitting>;
    case Pattern::qwen2:
    case Pattern::deepseek_v3:
    case Pattern::none:
    case Pattern::whitespace_words:
    case Pattern::marked_words:
      break;
  }
  throw std::invalid_argument("scanner_for: the pattern has no rules");
}

Scanner::Scan portable_scan(Pattern pattern, Splitting splitting) {
  switch (splitting) {
    case Splitting::as_published:
      break;
    case Splitting::with_max_digits:
      return portable_scan_with<Splitting::with_max_digits>(pattern);
    case Splitting::without_contractions:
      return portable_scan_with<Splitting::without_contractions>(pattern);
    case Splitting::by_category:
      return portable_scan_with<Splitting::by_category>(pattern);
  }
  throw std::invalid_argument("scanner_for: rules are needed");
}

}  // namespace

Scanner portable_scanner_for(Pattern pattern, PatternRules rules) {
  return Scanner(portable_scan(pattern, splitting_of(rules)), rules.max_digits);
}

Scanner scanner_for(Pattern pattern, PatternRules rules) {
  const Scanner::Scan scan = vector_scan_for(pattern, splitting_of(rules));
  return scan != nullptr ? Scanner(scan, rules.max_digits) : portable_scanner_for(pattern, rules);
}

}  // namespace bpe
