// Starts of pre-tokens for up to 64 characters at a time, by arithmetic on bit masks.
//
// Every mask has one bit per character; `mask << 1` is the property of the previous character. The
// masks begin at the start of a pre-token, so nothing before them matters. A run of ones is skipped
// in one step by adding its first bit to it: the carry appears at the end of the run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "scanner.hpp"

#if defined(__GNUC__)
#define BPE_ALWAYS_INLINE inline __attribute__((always_inline))
#else
#define BPE_ALWAYS_INLINE inline
#endif

namespace bpe {

// Classes of up to 64 characters. Bits from `count` on are clear. Unless the text ends there, the
// class of the last character is not used: it may be incomplete.
struct ClassMasks {
  uint64_t letter;
  uint64_t number;
  uint64_t white_space;
  uint64_t space;       // U+0020
  uint64_t line_break;  // carriage return, line feed
  uint64_t apostrophe;
  uint64_t slash;
  uint64_t head;  // kWordHead; only for o200k
  uint64_t tail;  // kWordTail; only for o200k
  // Only for deepseek_v3, for which marks are letters too.
  uint64_t symbol;
  uint64_t ascii_letter;
  uint64_t ascii_symbol;
  uint64_t han_or_kana;
  unsigned count;
  bool ends_text;  // nothing follows the last character
};

struct StartMasks {
  uint64_t starts;
  // Apostrophes that may start a contraction.
  uint64_t apostrophes;
  // The characters for which it is known if they start a pre-token: ones without gaps from bit 0
  // up.
  uint64_t known;
};

// The starts depend on no more following characters than this, except in runs.
inline constexpr unsigned kLookahead = 4;

// The lowest n bits, n <= 64.
BPE_ALWAYS_INLINE uint64_t low_bits(unsigned n) {
  return n >= 64 ? ~uint64_t{0} : (uint64_t{1} << n) - 1;
}

// Bits below the lowest bit of mask; all if it is 0.
BPE_ALWAYS_INLINE uint64_t bits_below(uint64_t mask) { return (mask - 1) & ~mask; }

BPE_ALWAYS_INLINE uint64_t known_at_first(const ClassMasks& masks) {
  return low_bits(masks.ends_text ? masks.count : masks.count - kLookahead);
}

// The same for patterns whose whitespace depends on where it ends: if it continues after the last
// character, only its start is known.
BPE_ALWAYS_INLINE uint64_t known_before_white(const ClassMasks& masks) {
  const uint64_t known = known_at_first(masks);
  if (masks.ends_text || (masks.white_space >> (masks.count - 1)) == 0) return known;
  const uint64_t black = low_bits(masks.count) & ~masks.white_space;
  return black == 0 ? 0 : known & low_bits(65 - static_cast<unsigned>(__builtin_clzll(black)));
}

template <Splitting splitting>
inline constexpr bool kContracts =
    splitting == Splitting::as_published || splitting == Splitting::with_max_digits;

// The starts of pre-tokens in a mask of numbers: the first of each run, and then every nth. Without
// a limit (0) only the first; limits beyond a block are left to the scalar scanner.
BPE_ALWAYS_INLINE uint64_t number_starts_by(uint64_t number, uint32_t max_digits) {
  if (max_digits == 1) return number;
  uint64_t starts = number & ~(number << 1);
  if (max_digits == 0 || max_digits > 63) return starts;
  uint64_t follows = number;  // number of preceding numbers
  for (unsigned i = 1; i <= max_digits && follows != 0; ++i) follows &= number << i;
  for (uint64_t next = starts << max_digits & follows; next != 0;
       next = next << max_digits & follows) {
    starts |= next;
  }
  return starts;
}

// ` ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`: a change of class starts a pre-token unless
// it follows a space; the last character of whitespace always does.
template <Splitting splitting>
BPE_ALWAYS_INLINE StartMasks gpt2_starts(const ClassMasks& masks, uint32_t max_digits) {
  const uint64_t all = low_bits(masks.count);
  const uint64_t white = masks.white_space;
  const uint64_t black = all & ~white;
  const uint64_t other = black & ~masks.letter & ~masks.number;
  const uint64_t same = (masks.letter & masks.letter << 1) | (masks.number & masks.number << 1) |
                        (other & other << 1) | (white & white << 1);
  const uint64_t joins_space = black & masks.space << 1;
  StartMasks result;
  result.starts = (~same & ~joins_space) | ((black & white << 1) >> 1);
  if constexpr (splitting != Splitting::as_published) {
    result.starts |= number_starts_by(masks.number, max_digits) & masks.number << 1;
  }
  result.apostrophes = kContracts<splitting> ? masks.apostrophe & result.starts : 0;
  result.known = known_at_first(masks);
  return result;
}

// Starts in a mask of digits: every digit for qwen2, otherwise every third one of a run.
template <Pattern pattern, Splitting splitting>
BPE_ALWAYS_INLINE uint64_t number_starts(uint64_t number, uint32_t max_digits) {
  if (splitting != Splitting::as_published) return number_starts_by(number, max_digits);
  if (pattern == Pattern::qwen2) return number;
  uint64_t starts = number & ~(number << 1);
  const uint64_t fourth = number & number << 1 & number << 2 & number << 3;
  if (fourth != 0) [[unlikely]] {
    for (uint64_t next = starts << 3 & fourth; next != 0; next = next << 3 & fourth) {
      starts |= next;
    }
  }
  return starts;
}

// Starts in whitespace after the last line break of its run: those characters in `candidates`
// (blanks after a line break) whose run of blanks has no line break at its end.
BPE_ALWAYS_INLINE uint64_t starts_after_breaks(uint64_t candidates, uint64_t blank,
                                               uint64_t line_break) {
  uint64_t run_ends = (blank + candidates) & ~blank & line_break;
  while (run_ends != 0) [[unlikely]] {
    const uint64_t below = candidates & bits_below(run_ends);
    candidates &= ~(uint64_t{1} << (63 - __builtin_clzll(below)));
    run_ends &= run_ends - 1;
  }
  return candidates;
}

// cl100k, qwen2 and o200k: they share everything but the definition of a word.
template <Pattern pattern, Splitting splitting>
BPE_ALWAYS_INLINE StartMasks cl100k_starts(const ClassMasks& masks, uint32_t max_digits) {
  constexpr bool kIsO200k = pattern == Pattern::o200k;
  constexpr bool kByCategory = splitting == Splitting::by_category;
  const uint64_t all = low_bits(masks.count);
  const uint64_t white = masks.white_space;
  const uint64_t line_break = masks.line_break;
  const uint64_t blank = white & ~line_break;
  const uint64_t black = all & ~white;
  const uint64_t word = kIsO200k ? masks.head | masks.tail : masks.letter;
  const uint64_t symbol = black & ~word & ~masks.number;

  // Line breaks (for o200k then also slashes) after symbols belong to these.
  const uint64_t tail_set = kIsO200k ? line_break | masks.slash : line_break;
  const uint64_t tail_first = line_break & symbol << 1;
  const uint64_t tail_sum = tail_set + tail_first;
  const uint64_t tails = (tail_set & ~tail_sum) | tail_first;
  const uint64_t after_tails = tail_sum & ~tail_set;
  const uint64_t other = symbol & ~tails;

  const uint64_t other_starts = other & ~(other << 1) & ~(masks.space << 1);
  // One blank or one symbol before a word belongs to it; by category only a space.
  const uint64_t leads = kByCategory ? masks.space : blank | other_starts;
  const uint64_t word_starts = word & ~(word << 1) & ~(leads << 1);
  const uint64_t white_starts = (white & ~(white << 1) & ~tails) |
                                starts_after_breaks(blank & line_break << 1, blank, line_break) |
                                (blank & black >> 1);
  StartMasks result;
  result.starts = white_starts | after_tails | other_starts | word_starts |
                  number_starts<pattern, splitting>(masks.number, max_digits);
  result.apostrophes = kContracts<splitting> ? masks.apostrophe & other_starts : 0;
  result.known = known_before_white(masks);
  return result;
}

// deepseek_v3. A piece ends at an edge: around numbers, in threes, and around runs of kHanOrKana;
// nothing beyond an edge is seen. A piece is split by
//   [!-/:-@[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|
//   \s*[\r\n]+|\s+(?!\S)|\s+
// and what that does not match is a pre-token too.
BPE_ALWAYS_INLINE StartMasks deepseek_v3_starts(const ClassMasks& masks) {
  const uint64_t all = low_bits(masks.count);
  const uint64_t white = masks.white_space;
  const uint64_t line_break = masks.line_break;
  const uint64_t blank = white & ~line_break;
  const uint64_t black = all & ~white;
  const uint64_t word = masks.letter;
  const uint64_t number = masks.number;
  const uint64_t symbol = masks.symbol;
  const uint64_t unmatched = black & ~word & ~number & ~symbol;  // unless a word follows
  const uint64_t edges = (masks.han_or_kana ^ masks.han_or_kana << 1) | (number ^ number << 1);
  const uint64_t inside = ~edges;
  const auto after = [inside](uint64_t mask) { return mask << 1 & inside; };
  const auto before = [inside](uint64_t mask) { return (mask & inside) >> 1; };

  const uint64_t tail_first = line_break & after(symbol);
  const uint64_t tail_sum = line_break + tail_first;
  const uint64_t tails = (line_break & ~tail_sum) | tail_first;
  const uint64_t after_tails = tail_sum & ~line_break;

  const uint64_t symbol_starts = symbol & ~after(symbol) & ~after(masks.space);
  const uint64_t joined = masks.ascii_letter & after(symbol_starts & masks.ascii_symbol);
  const uint64_t after_joined = (masks.ascii_letter + joined) & ~masks.ascii_letter & word;
  const uint64_t word_starts = word & ~after(word | blank | unmatched) & ~joined;
  const uint64_t unmatched_starts = unmatched & (~after(unmatched) | before(word));
  const uint64_t white_starts = (white & ~(white << 1) & ~tails) |
                                starts_after_breaks(blank & line_break << 1, blank, line_break) |
                                (blank & before(black));
  StartMasks result;
  result.starts = edges | white_starts | after_tails | symbol_starts | word_starts | after_joined |
                  unmatched_starts |
                  number_starts<Pattern::deepseek_v3, Splitting::as_published>(number, 0);
  result.apostrophes = 0;
  result.known = known_before_white(masks);
  return result;
}

// Adds the starts inside runs of letters and marks, where o200k separates words by case.
template <Splitting splitting>
BPE_ALWAYS_INLINE void add_case_starts(const ClassMasks& masks, StartMasks& result) {
  const uint64_t word = masks.head | masks.tail;
  const uint64_t upper = masks.head & ~masks.tail;
  const uint64_t lower = masks.tail & ~masks.head;
  result.starts |= upper & lower << 1;
  const uint64_t either = masks.head & masks.tail;
  if (either == 0) [[likely]] {
    return;
  }
  if constexpr (splitting != Splitting::by_category) {
    // A mark that does not follow a letter may be a symbol.
    const uint64_t lone_marks = either & ~masks.letter & ~(word << 1);
    if (lone_marks != 0) result.known &= bits_below(lone_marks);
  }
  // Letters without case and marks belong to the preceding character.
  const uint64_t after_lower = either & lower << 1;
  result.starts |= (either + after_lower) & ~either & upper;
  // Upper case after them up to the end of the word: the first alternative gives it back.
  for (uint64_t firsts = upper & either << 1; firsts != 0; firsts &= firsts - 1) {
    const uint64_t first = firsts & -firsts;
    const uint64_t end = (upper + first) & ~upper & -first;
    const uint64_t end_bit = end & -end;
    if (!masks.ends_text && (end_bit & low_bits(masks.count - 1)) == 0) {
      result.known &= first - 1;
      return;
    }
    if ((end_bit & word) == 0) result.starts |= first;
  }
}

template <Pattern pattern, Splitting splitting>
BPE_ALWAYS_INLINE StartMasks pretoken_starts(const ClassMasks& masks, uint32_t max_digits) {
  if constexpr (pattern == Pattern::gpt2) {
    return gpt2_starts<splitting>(masks, max_digits);
  } else if constexpr (pattern == Pattern::deepseek_v3) {
    return deepseek_v3_starts(masks);
  } else {
    StartMasks result = cl100k_starts<pattern, splitting>(masks, max_digits);
    if constexpr (pattern == Pattern::o200k) {
      // A contraction belongs to a word only, after its end.
      if constexpr (kContracts<splitting>) {
        result.apostrophes = masks.apostrophe & (masks.head | masks.tail) << 1;
      }
      add_case_starts<splitting>(masks, result);
    }
    return result;
  }
}

}  // namespace bpe
