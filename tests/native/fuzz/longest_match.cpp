// Longest matches equal a search of each token at each place. The input: options, tokens, then
// words, which are marked as text of characters is.
#include "longest_match.hpp"

#include <map>

#include "fuzz.hpp"
#include "utf8.hpp"
#include "words.hpp"

using namespace bpe;
using fuzz::check;

namespace {

size_t characters(std::string_view token) {
  size_t n = 0;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(token.data());
  for (size_t at = 0; at < token.size(); ++n) {
    at += decode_utf8(bytes + at, token.size() - at).size;
  }
  return n;
}

// Few characters, so that tokens occur: of one to four bytes.
std::string spell(std::string_view bytes) {
  static const char* const alphabet[] = {"a", "b", "é", "漢", "😀", "c"};
  std::string text;
  for (const char byte : bytes) text += alphabet[static_cast<uint8_t>(byte) % 6];
  return text;
}

struct Matcher {
  std::vector<std::string> tokens;  // the longest first
  WordEndMeaning word_end;

  // The length of a token at a place of the text, or 0.
  size_t match(std::string_view text, size_t at, const std::string& token) const {
    if (!text.substr(at).starts_with(token)) return 0;
    const size_t end = at + token.size();
    const bool has_suffix = end < text.size() && text[end] == '\xFF';
    return word_end == WordEndMeaning::suffix && has_suffix ? 0 : token.size();
  }

  void add_unknown(std::string_view text, size_t& at, std::vector<int64_t>& ids) const {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
    const bool is_end = text[at] == '\xFF';
    if (!is_end || word_end == WordEndMeaning::symbol) ids.push_back(LongestMatcher::kUnknown);
    at += decode_utf8(bytes + at, text.size() - at).size;
    const bool has_suffix = at < text.size() && text[at] == '\xFF';
    if (word_end == WordEndMeaning::suffix && has_suffix && !is_end) ++at;
  }

  std::vector<int64_t> left_to_right(std::string_view text) const {
    std::vector<int64_t> ids;
    for (size_t at = 0; at < text.size();) {
      size_t longest = 0;
      int64_t id = 0;
      for (size_t i = 0; i < tokens.size(); ++i) {
        const size_t length = match(text, at, tokens[i]);
        if (length > longest) {
          longest = length;
          id = static_cast<int64_t>(i);
        }
      }
      if (longest == 0) {
        add_unknown(text, at, ids);
      } else {
        ids.push_back(id);
        at += longest;
      }
    }
    return ids;
  }

  void longest_first(std::string_view word, std::vector<int64_t>& ids) const {
    constexpr int64_t kFree = -2;
    std::vector<int64_t> owner(word.size(), kFree);  // a token where one begins
    std::vector<bool> covered(word.size());
    for (size_t i = 0; i < tokens.size(); ++i) {
      for (size_t at = 0; at < word.size(); ++at) {
        const size_t length = match(word, at, tokens[i]);
        if (length == 0 || std::any_of(covered.begin() + static_cast<std::ptrdiff_t>(at),
                                       covered.begin() + static_cast<std::ptrdiff_t>(at + length),
                                       [](bool is) { return is; })) {
          continue;
        }
        std::fill_n(covered.begin() + static_cast<std::ptrdiff_t>(at), length, true);
        owner[at] = static_cast<int64_t>(i);
      }
    }
    for (size_t at = 0; at < word.size();) {
      if (owner[at] != kFree) {
        ids.push_back(owner[at]);
        at += tokens[static_cast<size_t>(owner[at])].size();
      } else {
        add_unknown(word, at, ids);
      }
    }
  }
};

}  // namespace

FUZZ_TARGET(data, size) {
  if (size > 400) return 0;
  fuzz::Input input(data, size);
  Matcher matcher;
  matcher.word_end = static_cast<WordEndMeaning>(input.below(3));
  for (size_t left = input.below(20); left > 0; --left) {
    std::string token = spell(input.take(input.below(6)));
    if (input.flag() && matcher.word_end != WordEndMeaning::gap) token += '\xFF';
    if (token.empty() || std::ranges::count(matcher.tokens, token) != 0) continue;
    // A suffix belongs to the character before it.
    if (matcher.word_end == WordEndMeaning::suffix && token == "\xFF") continue;
    matcher.tokens.push_back(std::move(token));
  }
  std::ranges::stable_sort(matcher.tokens, std::greater<>(),
                           [](const std::string& token) { return characters(token); });
  std::vector<std::string> words;
  std::string text;
  for (const std::string& part : fuzz::split(input.rest(), '\n')) {
    if (part.empty()) continue;
    words.push_back(spell(part) + '\xFF');
    text += words.back();
  }
  const fuzz::Columns columns(matcher.tokens);
  std::vector<int64_t> ids;
  for (size_t i = 0; i < matcher.tokens.size(); ++i) ids.push_back(static_cast<int64_t>(i));
  const LongestMatcher native(columns.bytes.data(), columns.offsets.data(), ids.data(), ids.size(),
                              matcher.word_end);
  const fuzz::Bytes bytes(text);
  const int64_t start = 0;
  const auto end = static_cast<int64_t>(bytes.size());
  int64_t end_of_ids = 0;
  std::vector<int64_t> found;
  native.left_to_right(bytes.data(), &start, &end, 1, {}, found, &end_of_ids);
  check(found == matcher.left_to_right(text), "the longest token at each place");
  found.clear();
  native.longest_first(bytes.data(), &start, &end, 1, {}, found, &end_of_ids);
  std::vector<int64_t> expected;
  for (const std::string& word : words) matcher.longest_first(word, expected);
  check(found == expected, "the longest tokens of a word first");
  return 0;
}
