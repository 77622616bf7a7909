// Special tokens are found as by a search of each at each place. The input: tokens with flags, then
// the text. Rows of training examples: pieces are packed as by a simple search.
#include "fuzz.hpp"
#include "packing.hpp"
#include "special_matcher.hpp"
#include "utf8.hpp"

using namespace bpe;
using fuzz::check;

namespace {

struct Token {
  std::string text;
  uint8_t flags;
};

using Match = std::pair<std::pair<size_t, size_t>, uint32_t>;

bool is_word(uint32_t code_point) {
  return (code_point >= 'a' && code_point <= 'z') || code_point == 0xE9;
}

bool is_space(uint32_t code_point) {
  return code_point < 0x110000 && (class_of_code_point(code_point) & kWhiteSpace) != 0;
}

// The character that ends at a place, or no character.
uint32_t before(const fuzz::Bytes& text, size_t at) {
  for (size_t size = 1; size <= 4 && size <= at; ++size) {
    const DecodedCharacter character = decode_utf8(text.data() + at - size, size);
    if (character.size == size && character.code_point != kInvalidCodePoint) {
      return character.code_point;
    }
  }
  return kInvalidCodePoint;
}

uint32_t behind(const fuzz::Bytes& text, size_t at) {
  return at < text.size() ? decode_utf8(text.data() + at, text.size() - at).code_point
                          : kInvalidCodePoint;
}

std::vector<Match> find_all(const fuzz::Bytes& text, const std::vector<Token>& tokens) {
  std::vector<Match> matches;
  size_t last = 0;
  for (size_t at = 0; at < text.size();) {
    size_t longest = 0;
    size_t found = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i].text.size() > longest && text.view().substr(at).starts_with(tokens[i].text)) {
        longest = tokens[i].text.size();
        found = i;
      }
    }
    if (longest == 0) {
      ++at;
      continue;
    }
    size_t begin = at;
    size_t end = at + longest;
    at = end;
    const uint8_t flags = tokens[found].flags;
    if ((flags & kSingleWord) != 0 &&
        (is_word(before(text, begin)) || is_word(behind(text, end)))) {
      continue;
    }
    while ((flags & kTakesSpaceBefore) != 0 && begin > last && is_space(before(text, begin))) {
      uint8_t bytes[4];
      const size_t size = encode_utf8(before(text, begin), bytes);
      if (begin - last < size) break;
      begin -= size;
    }
    while ((flags & kTakesSpaceAfter) != 0 && is_space(behind(text, end))) {
      end += decode_utf8(text.data() + end, text.size() - end).size;
    }
    matches.push_back({{begin, end}, static_cast<uint32_t>(found)});
    last = at = end;
  }
  return matches;
}

void pack(fuzz::Input& input) {
  const int64_t capacity = 1 + input.byte();
  std::vector<int64_t> lengths;
  while (!input.empty()) lengths.push_back(1 + input.byte() % capacity);
  std::vector<int64_t> rows(lengths.size());
  const size_t begun = best_fit_rows(lengths.data(), lengths.size(), capacity, rows.data());
  std::vector<size_t> order(lengths.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t i) { return lengths[i]; });
  std::vector<int64_t> space;
  std::vector<size_t> row_of(lengths.size());
  for (const size_t piece : order) {
    size_t best = space.size();
    for (size_t row = 0; row < space.size(); ++row) {
      if (space[row] < lengths[piece]) continue;
      if (best == space.size() || space[row] < space[best]) best = row;
    }
    if (best == space.size()) space.push_back(capacity);
    space[best] -= lengths[piece];
    row_of[piece] = best;
  }
  check(begun == space.size(), "the number of rows");
  std::vector<int64_t> numbers(space.size(), -1);
  int64_t next = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    int64_t& number = numbers[row_of[i]];
    if (number < 0) number = next++;
    check(rows[i] == number, "the row of a piece");
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  if (size > 600) return 0;
  fuzz::Input input(data, size);
  const uint8_t options = input.byte();
  if (options % 8 == 7) {
    pack(input);
    return 0;
  }
  std::vector<Token> tokens;
  std::vector<std::string> texts;
  std::vector<uint8_t> flags;
  for (size_t left = input.below(20); left > 0; --left) {
    const auto flag = static_cast<uint8_t>(options % 8 < 4 ? 0 : input.below(8));
    const std::string text(input.take(1 + input.below(12)));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
    if (text.empty() || std::ranges::count(texts, text) != 0 ||
        utf8_valid_prefix(bytes, text.size()) != text.size()) {
      continue;
    }
    tokens.push_back({text, flag});
    texts.push_back(text);
    flags.push_back(flag);
  }
  const SpecialMatcher matcher(texts, options % 8 < 4 ? std::vector<uint8_t>() : flags,
                               {{'a', 'z' + 1}, {0xE9, 0xEA}});
  const fuzz::Bytes text(input.rest());
  const std::vector<Match> expected = find_all(text, tokens);
  std::vector<Match> found;
  SpecialMatch match;
  for (size_t from = 0; matcher.find(text.data(), text.size(), from, match); from = match.end) {
    check(match.end > from, "a search goes on");
    found.push_back({{match.begin, match.end}, match.index});
  }
  check(found == expected, "special tokens are found as by a simple search");
  return 0;
}
