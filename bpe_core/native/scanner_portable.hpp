// The patterns, one pre-token at a time. Fast enough on its own, and called by the scanners with
// bit masks where these do not apply.
#pragma once

#include <cstddef>
#include <cstdint>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "scanner.hpp"
#include "unicode_tables.hpp"

namespace bpe {

inline constexpr uint8_t kWord = kLetter | kWordHead | kWordTail;  // letters and marks

// Not \s, not \p{L}, not \p{N}: symbols, punctuation, marks, controls, unassigned.
inline bool is_other(uint8_t char_class) {
  return (char_class & (kLetter | kNumber | kWhiteSpace)) == 0;
}

inline bool is_line_break(uint8_t byte) { return byte == '\n' || byte == '\r'; }

struct ClassifiedCharacter {
  uint8_t char_class;  // 0 for a byte that is not UTF-8
  uint8_t size;        // in bytes
};

// Class and size of the character that starts with a byte above 0x7F at text[pos]. Accepts some
// sequences that are not UTF-8 (surrogates, overlong forms), always within text[pos, size).
inline ClassifiedCharacter classify_multibyte(const uint8_t* text, size_t size, size_t pos) {
  const uint8_t* bytes = text + pos;
  const size_t left = size - pos;
  const auto continues = [bytes](size_t i) { return (bytes[i] & 0xC0) == 0x80; };
  const uint32_t first = bytes[0];
  if (first < 0xE0) {
    if (first < 0xC0 || left < 2 || !continues(1)) return {0, 1};
    return {kClassBlocks[kClassBlockNumbers[first & 0x1F]][bytes[1] & 0x3F], 2};
  }
  if (first < 0xF0) {
    if (left < 3 || !continues(1) || !continues(2)) return {0, 1};
    const uint32_t block = (first & 0x0F) << 6 | (bytes[1] & 0x3Fu);
    return {kClassBlocks[kClassBlockNumbers[block]][bytes[2] & 0x3F], 3};
  }
  if (left < 4 || !continues(1) || !continues(2) || !continues(3)) return {0, 1};
  const uint32_t block = (first & 0x0F) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
  if (block >= kNumClassBlocks) return {0, 1};
  return {kClassBlocks[kClassBlockNumbers[block]][bytes[3] & 0x3F], 4};
}

// Class and size of the character at text[pos], where pos < size.
inline ClassifiedCharacter classify(const uint8_t* text, size_t size, size_t pos) {
  const uint8_t char_class = kByteClasses[text[pos]];
  if (char_class != kNonAscii) [[likely]] {
    return {char_class, 1};
  }
  return classify_multibyte(text, size, pos);
}

// One pass over a segment. Every member takes a position and returns the end of an item there.
template <Pattern pattern, Splitting splitting = Splitting::as_published>
class PortableScan {
 public:
  PortableScan(const uint8_t* text, size_t size, uint32_t max_digits = 0)
      : text_(text), size_(size), max_digits_(max_digits) {}

  // End of the pre-token that starts at pos, where pos < size.
  size_t pretoken_end(size_t pos) const {
    if constexpr (pattern == Pattern::none) {
      return size_;
    } else if constexpr (pattern == Pattern::gpt2) {
      return gpt2_end(pos);
    } else if constexpr (pattern == Pattern::o200k) {
      return o200k_end(pos);
    } else if constexpr (pattern == Pattern::deepseek_v3) {
      return deepseek_v3_end(pos);
    } else {
      return cl100k_end(pos);
    }
  }

  // End of the contraction that starts with the apostrophe at pos, or pos without one.
  size_t contraction_end(size_t pos) const {
    if (size_ - pos < 2) return pos;
    constexpr uint8_t kCaseBit = kIgnoresCase ? 0x20 : 0;
    const uint8_t first = text_[pos + 1] | kCaseBit;
    if (first == 's' || first == 't' || first == 'd' || first == 'm') return pos + 2;
    if (size_ - pos < 3) return pos;
    const uint8_t second = text_[pos + 2] | kCaseBit;
    if ((first == 'l' && second == 'l') || ((first == 'v' || first == 'r') && second == 'e')) {
      return pos + 3;
    }
    // U+017F, the long s, matches s if case is ignored.
    if (kIgnoresCase && text_[pos + 1] == 0xC5 && text_[pos + 2] == 0xBF) return pos + 3;
    return pos;
  }

 private:
  static constexpr bool kIgnoresCase = pattern != Pattern::gpt2;
  static constexpr size_t kMaxDigits = pattern == Pattern::gpt2    ? 0
                                       : pattern == Pattern::qwen2 ? 1
                                                                   : 3;
  static constexpr bool kByCategory = splitting == Splitting::by_category;
  static constexpr bool kContracts =
      splitting == Splitting::as_published || splitting == Splitting::with_max_digits;
  static constexpr bool kSlashEndsOther = pattern == Pattern::o200k;

  ClassifiedCharacter at(size_t pos) const { return classify(text_, size_, pos); }

  // End of the longest run from pos of characters for which holds(class).
  template <typename Predicate>
  size_t run_end(size_t pos, Predicate holds) const {
    while (pos < size_) {
      const ClassifiedCharacter character = at(pos);
      if (!holds(character.char_class)) break;
      pos += character.size;
    }
    return pos;
  }

  // End of the run from pos of characters whose class has a bit of kClass: kLetter, or kWordTail,
  // which in ASCII includes only lower case.
  template <uint8_t kClass>
  size_t long_run_end(size_t pos) const {
    for (;;) {
      pos = ascii_run_end<kClass>(pos);
      if (pos >= size_ || text_[pos] < 0x80) return pos;
      do {
        const ClassifiedCharacter character = classify_multibyte(text_, size_, pos);
        if ((character.char_class & kClass) == 0) return pos;
        pos += character.size;
        if (pos >= size_) return pos;
      } while (text_[pos] >= 0x80);
    }
  }

  template <uint8_t kClass>
  size_t ascii_run_end(size_t pos) const {
    static_assert(kClass == kLetter || kClass == kWordTail);
#if defined(__SSE2__)
    while (pos + 16 <= size_) {
      __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text_ + pos));
      if (kClass == kLetter) bytes = _mm_or_si128(bytes, _mm_set1_epi8(0x20));
      // 'a' to 'z' become the 26 smallest signed values.
      const __m128i shifted = _mm_add_epi8(bytes, _mm_set1_epi8(static_cast<char>(0x80 - 'a')));
      const __m128i inside = _mm_cmplt_epi8(shifted, _mm_set1_epi8(-128 + 26));
      const uint32_t outside = static_cast<uint32_t>(_mm_movemask_epi8(inside)) ^ 0xFFFF;
      if (outside != 0) return pos + static_cast<size_t>(__builtin_ctz(outside));
      pos += 16;
    }
#endif
    while (pos < size_ && (kByteClasses[text_[pos]] & kClass) != 0) ++pos;
    return pos;
  }

  size_t others_end(size_t pos) const {
    return run_end(pos, [](uint8_t c) { return is_symbol(c); });
  }

  // Neither a letter, a number nor whitespace, nor a character that this pattern treats like
  // letters.
  static bool is_symbol(uint8_t char_class) {
    if (kByCategory && pattern == Pattern::o200k && (char_class & kWord) != 0) return false;
    return is_other(char_class);
  }

  size_t max_digits() const {
    const size_t most = splitting == Splitting::as_published ? kMaxDigits : max_digits_;
    return most == 0 ? SIZE_MAX : most;
  }

  // End of the numbers at pos that belong to one pre-token.
  size_t digits_end(size_t pos) const {
    const size_t most = max_digits();
    for (size_t count = 0; count < most && pos < size_; ++count) {
      const ClassifiedCharacter character = at(pos);
      if ((character.char_class & kNumber) == 0) break;
      pos += character.size;
    }
    return pos;
  }

  // End of the characters that may follow symbols in their pre-token: line breaks, for o200k also
  // slashes.
  size_t others_tail_end(size_t pos) const {
    const auto belongs = [this](size_t i) {
      return is_line_break(text_[i]) || (kSlashEndsOther && text_[i] == '/');
    };
    while (pos < size_ && belongs(pos)) ++pos;
    return pos;
  }

  // \s*[\r\n]+|\s+(?!\S)|\s+ if whitespace starts at pos; gpt2 has no alternative for line breaks.
  // The text that is examined beyond the returned end is, except for one character, the next
  // pre-token, so all calls together stay linear.
  size_t white_space_end(size_t pos) const {
    size_t end = pos;
    size_t last = pos;  // start of the last character of the run
    size_t break_end = 0;
    while (end < size_) {
      const ClassifiedCharacter character = at(end);
      if ((character.char_class & kWhiteSpace) == 0) break;
      last = end;
      end += character.size;
      if (is_line_break(text_[last])) break_end = end;
    }
    if (pattern == Pattern::cl100k_tiktoken && end == size_) return end;
    if (pattern != Pattern::gpt2 && break_end != 0) return break_end;
    if (pattern == Pattern::deepseek_v3 && end < size_ &&
        (at(end).char_class & (kNumber | kHanOrKana)) != 0) {
      return end;
    }
    return end == size_ || last == pos ? end : last;
  }

  size_t gpt2_end(size_t pos) const {
    const uint8_t byte = text_[pos];
    if (kContracts && byte == '\'') {
      const size_t end = contraction_end(pos);
      if (end != pos) return end;
    }
    size_t start = pos;
    ClassifiedCharacter first = at(pos);
    if (byte == ' ' && pos + 1 < size_) {
      const ClassifiedCharacter next = at(pos + 1);
      if ((next.char_class & kWhiteSpace) == 0) {
        first = next;
        start = pos + 1;
      }
    }
    if ((first.char_class & kLetter) != 0) return long_run_end<kLetter>(start);
    if ((first.char_class & kNumber) != 0) return digits_end(start);
    if ((first.char_class & kWhiteSpace) != 0) return white_space_end(pos);
    return others_end(start + first.size);
  }

  size_t cl100k_end(size_t pos) const {
    if (kContracts && text_[pos] == '\'') {
      const size_t end = contraction_end(pos);
      if (end != pos) return end;
    }
    const ClassifiedCharacter first = at(pos);
    const size_t next = pos + first.size;
    if ((first.char_class & kLetter) != 0) return long_run_end<kLetter>(next);
    if ((first.char_class & kNumber) != 0) return digits_end(pos);
    const bool may_lead = kByCategory ? text_[pos] == ' ' : !is_line_break(text_[pos]);
    if (may_lead && next < size_) {
      const uint8_t next_class = at(next).char_class;
      if ((next_class & kLetter) != 0) return long_run_end<kLetter>(next);
    }
    return others_or_white_space_end(pos, first);
  }

  // The alternatives after those for words and numbers, of cl100k and o200k.
  size_t others_or_white_space_end(size_t pos, ClassifiedCharacter first) const {
    const size_t next = pos + first.size;
    if (is_symbol(first.char_class)) return others_tail_end(others_end(next));
    if (text_[pos] == ' ') {
      const size_t end = others_end(next);
      if (end != next) return others_tail_end(end);
    }
    return white_space_end(pos);
  }

  size_t o200k_end(size_t pos) const {
    const ClassifiedCharacter first = at(pos);
    if ((first.char_class & kNumber) != 0) return digits_end(pos);
    if (!is_line_break(text_[pos])) {
      const size_t end = word_end(pos, first);
      if (end != pos) {
        const bool may_contract = kContracts && end < size_ && text_[end] == '\'';
        return may_contract ? contraction_end(end) : end;
      }
    }
    return others_or_white_space_end(pos, first);
  }

  // End of the word at pos without its contraction, or pos if none starts there. A word is H*T+, or
  // else H+T*, of heads H and tails T (marks and letters without case are both), after at most one
  // character that is not a letter, or by category a space. The backtracking is that of the
  // pattern: T+ needs a tail, so H* gives back the part after the last tail in its run. This part
  // contains no tail, so the next word consists of all of it, and no text is examined a third time.
  size_t word_end(size_t pos, ClassifiedCharacter first) const {
    const bool leads = kByCategory ? text_[pos] == ' ' : (first.char_class & kLetter) == 0;
    const size_t start = leads ? pos + first.size : pos;
    size_t end = start;
    size_t last_tail_end = start;
    while (end < size_) {
      const ClassifiedCharacter character = at(end);
      if ((character.char_class & kWordHead) == 0) {
        if ((character.char_class & kWordTail) == 0) break;
        return long_run_end<kWordTail>(end + character.size);
      }
      end += character.size;
      if ((character.char_class & kWordTail) != 0) last_tail_end = end;
    }
    if (last_tail_end != start) return last_tail_end;
    // Only heads. A mark before them is a separate word: the first alternative matches it alone,
    // before the second could use it as the preceding character.
    if ((first.char_class & kWord) == (kWordHead | kWordTail)) return start;
    return end == start ? pos : end;
  }

  // Like the pattern, sees nothing beyond an edge: see deepseek_v3_starts.
  size_t deepseek_v3_end(size_t pos) const {
    const ClassifiedCharacter first = at(pos);
    if ((first.char_class & kNumber) != 0) return digits_end(pos);
    const auto is_beside = [&](uint8_t char_class) {
      return ((char_class ^ first.char_class) & kHanOrKana) == 0;
    };
    // The class of the character at `next`, or that of a number if an edge is before it.
    const auto class_at = [&](size_t next) -> uint8_t {
      if (next == size_) return kNumber;
      const uint8_t found = at(next).char_class;
      return is_beside(found) ? found : uint8_t{kNumber};
    };
    const auto words_end = [&](size_t from) {
      return run_end(from, [&](uint8_t c) { return (c & kWord) != 0 && is_beside(c); });
    };
    const auto symbols_end = [&](size_t from) {
      const size_t end =
          run_end(from, [&](uint8_t c) { return (c & kSymbol) != 0 && is_beside(c); });
      return is_beside(0) ? others_tail_end(end) : end;
    };
    const size_t next = pos + first.size;
    const uint8_t next_class = class_at(next);
    if ((first.char_class & kSymbol) != 0) {
      if (text_[pos] < 0x80 && next < size_ && text_[next] < 0x80 && (next_class & kLetter) != 0) {
        return ascii_run_end<kLetter>(next);
      }
      return symbols_end(next);
    }
    const bool is_word = (first.char_class & kWord) != 0;
    if (is_word || ((next_class & kWord) != 0 && !is_line_break(text_[pos]))) {
      return words_end(next);
    }
    if (text_[pos] == ' ' && (next_class & kSymbol) != 0) return symbols_end(next);
    if ((first.char_class & kWhiteSpace) != 0) return white_space_end(pos);
    // Not matched, up to where a match begins.
    size_t end = next;
    while ((class_at(end) & (kWord | kNumber | kSymbol | kWhiteSpace)) == 0) {
      const size_t after = end + at(end).size;
      if ((class_at(after) & kWord) != 0) break;
      end = after;
    }
    return end;
  }

  const uint8_t* text_;
  size_t size_;
  uint32_t max_digits_;
};

// A Scanner that only uses PortableScan.
template <Pattern pattern, Splitting splitting = Splitting::as_published>
size_t scan_portable(const uint8_t* text, size_t size, size_t pos, size_t* ends, size_t capacity,
                     uint32_t max_digits) {
  const PortableScan<pattern, splitting> scan(text, size, max_digits);
  size_t count = 0;
  while (count < capacity && pos < size) {
    pos = scan.pretoken_end(pos);
    ends[count++] = pos;
  }
  return count;
}

}  // namespace bpe
