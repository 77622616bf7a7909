#include "special_matcher.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <numeric>
#include <set>
#include <stdexcept>

#include "scanner_blocks.hpp"
#include "utf8.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bpe {

namespace {

// The bytes that characters of White_Space begin with, and those that they end with: so do others.
constexpr std::string_view kSpaceBegins = "\t\n\v\f\r \xC2\xE1\xE2\xE3";
constexpr std::string_view kSpaceEnds =
    "\t\n\v\f\r \x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8A\x9F\xA0\xA8\xA9\xAF";

bool is_white_space(uint32_t code_point) {
  return code_point < 0x110000 && (class_of_code_point(code_point) & kWhiteSpace) != 0;
}

// The character that ends at text[end], above `from`.
DecodedCharacter character_before(const uint8_t* text, size_t from, size_t end) {
  size_t begin = end - 1;
  while (begin > from && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
  const DecodedCharacter character = decode_utf8(text + begin, end - begin);
  if (character.size != end - begin) return {kInvalidCodePoint, 1};
  return character;
}

}  // namespace

SpecialMatcher::SpecialMatcher(std::vector<std::string> tokens, std::vector<uint8_t> flags,
                               CodePointRanges word_characters)
    : tokens_(std::move(tokens)),
      flags_(std::move(flags)),
      word_characters_(std::move(word_characters)) {
  if (!flags_.empty() && flags_.size() != tokens_.size()) {
    throw std::invalid_argument("as many flags as special tokens are needed");
  }
  if (std::ranges::all_of(flags_, [](uint8_t bits) { return bits == 0; })) flags_.clear();
  std::set<std::string> seen;
  for (const std::string& token : tokens_) {
    if (token.empty()) throw std::invalid_argument("a special token must not be empty");
    if (!seen.insert(token).second) {
      throw std::invalid_argument("special token given twice: " + token);
    }
    max_bytes_ = std::max(max_bytes_, token.size());
  }
  sorted_.resize(tokens_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::ranges::sort(sorted_, {},
                    [&](uint32_t index) -> const std::string& { return tokens_[index]; });
  const auto first_byte = [&](uint32_t index) { return static_cast<uint8_t>(tokens_[index][0]); };
  for (uint32_t index : sorted_) ++first_of_byte_[first_byte(index) + 1];
  std::partial_sum(first_of_byte_.begin(), first_of_byte_.end(), first_of_byte_.begin());
  if (!tokens_.empty() && first_byte(sorted_.front()) == first_byte(sorted_.back())) {
    only_first_byte_ = first_byte(sorted_.front());
  }
  static const bool has_avx2 = cpu_has_avx2();
  has_blocks_ = has_avx2 && !tokens_.empty() && only_first_byte_ < 0;
  for (const std::string& token : tokens_) {
    first_bytes_.add(static_cast<uint8_t>(token[0]));
    if (token.size() > 1) {
      second_bytes_.add(static_cast<uint8_t>(token[1]));
    } else {
      for (int byte = 0; byte < 256; ++byte) second_bytes_.add(static_cast<uint8_t>(byte));
    }
  }
  for (size_t i = 0; i < flags_.size(); ++i) {
    if ((flags_[i] & kSingleWord) != 0) bind(tokens_[i], flags_[i]);
    if ((flags_[i] & kTakesSpaceBefore) != 0) bind_spaces();
  }
}

void SpecialMatcher::bind(std::string_view token, uint8_t flags) {
  bound_.resize(256 * 256 / 64);
  const auto byte_at = [&](size_t i) { return static_cast<uint8_t>(token[i]); };
  for (size_t i = 1; i < token.size(); ++i) bind_pair(byte_at(i - 1), byte_at(i));
  const uint8_t first = byte_at(0);
  const uint8_t last = byte_at(token.size() - 1);
  if ((flags & (kTakesSpaceBefore | kTakesSpaceAfter)) != 0) bind_spaces();
  if ((flags & kTakesSpaceBefore) != 0) {
    for (const char space : kSpaceEnds) bind_pair(static_cast<uint8_t>(space), first);
  }
  if ((flags & kTakesSpaceAfter) != 0) {
    for (const char space : kSpaceBegins) bind_pair(last, static_cast<uint8_t>(space));
  }
  for (int byte = 0; (flags & kSingleWord) != 0 && byte < 256; ++byte) {
    bind_pair(last, static_cast<uint8_t>(byte));
    bind_pair(static_cast<uint8_t>(byte), first);
  }
}

// White space that a token includes may be long; its end cannot be seen from within.
void SpecialMatcher::bind_spaces() {
  bound_.resize(256 * 256 / 64);
  for (const char end : kSpaceEnds) {
    for (const char begin : kSpaceBegins) {
      bind_pair(static_cast<uint8_t>(end), static_cast<uint8_t>(begin));
    }
  }
}

bool SpecialMatcher::is_word_character(uint32_t code_point) const {
  const auto after = std::ranges::upper_bound(word_characters_, code_point, {},
                                              [](const auto& range) { return range.first; });
  return after != word_characters_.begin() && code_point < std::prev(after)->second;
}

// Adds the white space that a token takes; false if it is not to be found here. What was found
// before ends at `from`.
bool SpecialMatcher::widen(const uint8_t* text, size_t size, size_t from,
                           SpecialMatch& match) const {
  const uint8_t flags = flags_[match.index];
  if ((flags & kSingleWord) != 0) {
    if (match.begin > 0 && is_word_character(character_before(text, 0, match.begin).code_point)) {
      return false;
    }
    if (match.end < size &&
        is_word_character(decode_utf8(text + match.end, size - match.end).code_point)) {
      return false;
    }
  }
  while ((flags & kTakesSpaceBefore) != 0 && match.begin > from) {
    const DecodedCharacter before = character_before(text, from, match.begin);
    if (!is_white_space(before.code_point)) break;
    match.begin -= before.size;
  }
  while ((flags & kTakesSpaceAfter) != 0 && match.end < size) {
    const DecodedCharacter after = decode_utf8(text + match.end, size - match.end);
    if (!is_white_space(after.code_point)) break;
    match.end += after.size;
  }
  return true;
}

bool SpecialMatcher::match_at(const uint8_t* text, size_t size, size_t at,
                              SpecialMatch& match) const {
  // The tokens that begin with the `length` bytes at this place: fewer with each byte, however many
  // begin alike.
  const uint32_t* first = sorted_.data() + first_of_byte_[text[at]];
  const uint32_t* last = sorted_.data() + first_of_byte_[text[at] + 1];
  bool found = false;
  for (size_t length = 1; first != last; ++length) {
    if (tokens_[*first].size() == length) {
      match = {at, at + length, *first++};
      found = true;
    }
    if (length == size - at) break;
    if (last - first == 1) {
      const std::string& token = tokens_[*first];
      if (token.size() > size - at || std::memcmp(text + at, token.data(), token.size()) != 0)
        break;
      match = {at, at + token.size(), *first};
      return true;
    }
    const auto next = std::ranges::equal_range(
        first, last, text[at + length], {},
        [&](uint32_t index) { return static_cast<uint8_t>(tokens_[index][length]); });
    first = next.begin();
    last = next.end();
  }
  return found;
}

#if defined(__x86_64__)

// Looks at 32 places at a time, at most as far as all have a byte behind them. Returns the place of
// the match, or that from which nothing was looked at.
__attribute__((target("avx2,bmi"))) size_t SpecialMatcher::find_in_blocks(
    const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const {
  const auto rows = [&](const std::array<uint8_t, 16>& half) __attribute__((target("avx2"))) {
    return _mm256_broadcastsi128_si256(
        _mm_load_si128(reinterpret_cast<const __m128i*>(half.data())));
  };
  const __m256i first_low = rows(first_bytes_.low_rows);
  const __m256i first_high = rows(first_bytes_.high_rows);
  const __m256i second_low = rows(second_bytes_.low_rows);
  const __m256i second_high = rows(second_bytes_.high_rows);
  const __m256i bits = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201u));
  const __m256i index_bits = _mm256_set1_epi8(static_cast<char>(0x8F));
  const __m256i top = _mm256_set1_epi8(static_cast<char>(0x80));
  // Bytes not in the set are zero. A shuffle gives zero where the top bit of an index is set.
  const auto in_set = [&](__m256i bytes, __m256i low,
                          __m256i high) __attribute__((target("avx2"))) {
    const __m256i index = _mm256_and_si256(bytes, index_bits);
    const __m256i row = _mm256_or_si256(_mm256_shuffle_epi8(low, index),
                                        _mm256_shuffle_epi8(high, _mm256_xor_si256(index, top)));
    const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), _mm256_set1_epi8(7));
    return _mm256_and_si256(row, _mm256_shuffle_epi8(bits, upper));
  };
  for (; from + 33 <= size; from += 32) {
    const auto load = [&](size_t at) __attribute__((target("avx2"))) {
      return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + at));
    };
    const __m256i none = _mm256_setzero_si256();
    const __m256i no_first = _mm256_cmpeq_epi8(in_set(load(from), first_low, first_high), none);
    const __m256i no_second =
        _mm256_cmpeq_epi8(in_set(load(from + 1), second_low, second_high), none);
    auto places =
        ~static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_or_si256(no_first, no_second)));
    for (; places != 0; places &= places - 1) {
      const size_t at = from + static_cast<size_t>(__builtin_ctz(places));
      if (match_at(text, size, at, match)) return at;
    }
  }
  return from;
}

#else

size_t SpecialMatcher::find_in_blocks(const uint8_t*, size_t, size_t from, SpecialMatch&) const {
  return from;
}

#endif

// As find(), without regard to flags.
bool SpecialMatcher::find_plain(const uint8_t* text, size_t size, size_t from,
                                SpecialMatch& match) const {
  if (tokens_.empty()) return false;
  if (only_first_byte_ >= 0) {
    while (from < size) {
      const void* hit = std::memchr(text + from, only_first_byte_, size - from);
      if (hit == nullptr) return false;
      const size_t at = static_cast<size_t>(static_cast<const uint8_t*>(hit) - text);
      if (match_at(text, size, at, match)) return true;
      from = at + 1;
    }
    return false;
  }
  if (has_blocks_) {
    match.end = 0;
    from = find_in_blocks(text, size, from, match);
    if (match.end != 0) return true;
  }
  for (; from < size; ++from) {
    if (first_of_byte_[text[from]] == first_of_byte_[text[from] + 1]) continue;
    if (match_at(text, size, from, match)) return true;
  }
  return false;
}

}  // namespace bpe
