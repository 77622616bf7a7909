// The loop around scanner_masks.hpp: blocks of 64 bytes, each starting at the start of a pre-token.
// So a block needs no information from the previous one, and a scan can continue anywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scanner.hpp"
#include "scanner_masks.hpp"
#include "scanner_portable.hpp"

// Functions that an instruction set's are inlined into need its target.
#if defined(__x86_64__)
#define BPE_SCAN_TARGET __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))
#else
#define BPE_SCAN_TARGET
#endif

namespace bpe {

// A scanner with AVX2 and BMI2, or nullptr if it is not faster than the portable one. On CPUs that
// gather and scatter bits slowly (AMD before Zen 3) it leaves non-ASCII text to that one.
Scanner::Scan avx2_scan_for(Pattern pattern, Splitting splitting, bool extracts_fast);
// The same with NEON, which every 64-bit ARM has: no instruction there gathers or scatters bits.
Scanner::Scan neon_scan_for(Pattern pattern, Splitting splitting);
bool cpu_has_avx2();
bool cpu_has_avx2_and_aes();
bool cpu_extracts_fast();

#if defined(__aarch64__)
inline constexpr bool kHasNeon = true;
#else
inline constexpr bool kHasNeon = false;
#endif

// Properties of 64 bytes that an instruction set finds, one bit per byte.
struct ByteMasks {
  uint64_t non_ascii;
  uint64_t first;       // ASCII, or the first byte of a longer character
  uint64_t first_of_3;  // the first byte of a character of 3 bytes or more
  uint64_t first_of_4;  // the first byte of a character of 4 bytes
  uint64_t letter;
  uint64_t lower;
  uint64_t number;
  uint64_t control_space;  // tab to carriage return
  uint64_t space;
  uint64_t line_break;
  uint64_t apostrophe;
  uint64_t slash;
  uint64_t visible;  // ASCII, neither white space nor a control character
};

inline constexpr uint32_t kMaxCodePoint = 0x10FFFF;
inline constexpr size_t kBlockBytes = 64;
// After the block, as many bytes can be read as a character may have.
inline constexpr size_t kReadableBytes = kBlockBytes + 4;

// Adds the classes of the non-ASCII characters, whose first bytes are given, to masks with one bit
// per byte. Returns false if one is not a code point.
template <Pattern pattern, typename Isa>
BPE_SCAN_TARGET BPE_ALWAYS_INLINE bool add_multibyte_classes(const uint8_t* block, uint64_t firsts,
                                                             ClassMasks& masks) {
  uint32_t largest = 0;
  for (; firsts != 0; firsts &= firsts - 1) {
    const unsigned bit = static_cast<unsigned>(__builtin_ctzll(firsts));
    const uint32_t code_point = Isa::code_point(block + bit);
    largest = std::max(largest, code_point);
    const uint64_t char_class = class_of_code_point(std::min(code_point, kMaxCodePoint));
    masks.letter |= (char_class / kLetter & 1) << bit;
    if constexpr (pattern == Pattern::deepseek_v3) {
      masks.letter |= (char_class / kWordHead & char_class / kWordTail & 1) << bit;
      masks.symbol |= (char_class / kSymbol & 1) << bit;
      masks.han_or_kana |= (char_class / kHanOrKana & 1) << bit;
    }
    if constexpr (pattern == Pattern::o200k) {
      masks.head |= (char_class / kWordHead & 1) << bit;
      masks.tail |= (char_class / kWordTail & 1) << bit;
    }
    if ((char_class & (kNumber | kWhiteSpace)) != 0) [[unlikely]] {
      masks.number |= (char_class / kNumber & 1) << bit;
      masks.white_space |= (char_class / kWhiteSpace & 1) << bit;
    }
  }
  return largest <= kMaxCodePoint;
}

// Converts bits of bytes to bits of characters.
template <typename Isa>
BPE_SCAN_TARGET BPE_ALWAYS_INLINE void compress(ClassMasks& masks, uint64_t firsts) {
  masks.letter = Isa::extract(masks.letter, firsts);
  masks.number = Isa::extract(masks.number, firsts);
  masks.white_space = Isa::extract(masks.white_space, firsts);
  masks.space = Isa::extract(masks.space, firsts);
  masks.line_break = Isa::extract(masks.line_break, firsts);
  masks.apostrophe = Isa::extract(masks.apostrophe, firsts);
  masks.slash = Isa::extract(masks.slash, firsts);
  masks.head = Isa::extract(masks.head, firsts);
  masks.tail = Isa::extract(masks.tail, firsts);
  masks.symbol = Isa::extract(masks.symbol, firsts);
  masks.ascii_letter = Isa::extract(masks.ascii_letter, firsts);
  masks.ascii_symbol = Isa::extract(masks.ascii_symbol, firsts);
  masks.han_or_kana = Isa::extract(masks.han_or_kana, firsts);
  masks.count = static_cast<unsigned>(__builtin_popcountll(firsts));
}

// Converts a bit of characters to one of bytes.
template <typename Isa>
BPE_SCAN_TARGET BPE_ALWAYS_INLINE uint64_t expand(uint64_t bits, uint64_t firsts, bool is_ascii) {
  if constexpr (Isa::kExtractsFast) {
    if (!is_ascii) return Isa::deposit(bits, firsts);
  }
  return bits;
}

// Starts of pre-tokens in text[pos, pos + 64), one bit per byte, without the one at pos, as far as
// they can be determined from this block, which is a copy of those bytes and of the following ones.
// With kEndsText the text ends in the block, and its end counts as a start.
template <Pattern pattern, Splitting splitting, typename Isa, bool kEndsText>
BPE_SCAN_TARGET BPE_ALWAYS_INLINE uint64_t block_starts(const uint8_t* text, size_t size,
                                                        size_t pos, const uint8_t* block,
                                                        uint32_t max_digits) {
  const unsigned length = kEndsText ? static_cast<unsigned>(size - pos) : kBlockBytes;
  const ByteMasks bytes = Isa::load(block);
  ClassMasks masks;
  masks.letter = bytes.letter;
  masks.number = bytes.number;
  masks.white_space = bytes.control_space | bytes.space;
  masks.space = bytes.space;
  masks.line_break = bytes.line_break;
  masks.apostrophe = bytes.apostrophe;
  masks.slash = bytes.slash;
  masks.head = bytes.letter & ~bytes.lower;
  masks.tail = bytes.lower;
  masks.ascii_letter = bytes.letter;
  masks.symbol = masks.ascii_symbol = bytes.visible & ~bytes.letter & ~bytes.number;
  masks.han_or_kana = 0;
  masks.count = length;
  masks.ends_text = kEndsText;
  const uint64_t firsts = bytes.first & low_bits(length);
  const bool is_ascii = bytes.non_ascii == 0;
  if (!is_ascii) {
    if constexpr (Isa::kExtractsFast) {
      const uint64_t continuations =
          (bytes.non_ascii & firsts) << 1 | bytes.first_of_3 << 2 | bytes.first_of_4 << 3;
      if (continuations != ~bytes.first) return 0;
      if (!add_multibyte_classes<pattern, Isa>(block, bytes.non_ascii & firsts, masks)) return 0;
      compress<Isa>(masks, firsts);
      if (masks.count <= kLookahead) return 0;
    } else {
      return 0;
    }
  }
  StartMasks result = pretoken_starts<pattern, splitting>(masks, max_digits);
  const PortableScan<pattern> scan(text, size);
  for (uint64_t left = result.apostrophes & result.known; left != 0; left &= left - 1) {
    const uint64_t bit = left & -left;
    const size_t at =
        pos + static_cast<size_t>(__builtin_ctzll(expand<Isa>(bit, firsts, is_ascii)));
    const size_t bytes_long = scan.contraction_end(at) - at;
    if (bytes_long == 0) continue;
    // In characters: the long s has two bytes.
    const uint64_t end = bit << (text[at + 1] < 0x80 ? bytes_long : 2);
    if constexpr (pattern == Pattern::o200k) {
      if ((end & (masks.apostrophe | masks.head | masks.tail)) != 0) [[unlikely]] {
        result.known &= bit - 1;
        break;
      }
      // Neither the apostrophe nor a change of case after it starts a pre-token.
      result.starts &= ~(end - bit);
    } else if constexpr (pattern == Pattern::gpt2) {
      result.starts &= ~(bit << 1);
    }
    result.starts |= end;
  }
  uint64_t starts = expand<Isa>(result.starts & result.known & ~uint64_t{1}, firsts, is_ascii);
  // The undetermined rest is scanned again with the next block.
  if (kEndsText && result.known == low_bits(masks.count)) starts |= uint64_t{1} << length;
  return starts;
}

template <Pattern pattern, Splitting splitting, typename Isa>
BPE_SCAN_TARGET BPE_ALWAYS_INLINE size_t scan_blocks(const uint8_t* text, size_t size, size_t pos,
                                                     size_t* ends, size_t capacity,
                                                     uint32_t max_digits) {
  const PortableScan<pattern, splitting> scan(text, size, max_digits);
  size_t count = 0;
  while (count < capacity && pos < size) {
    uint64_t starts = 0;
    if (size - pos >= kReadableBytes) [[likely]] {
      starts =
          block_starts<pattern, splitting, Isa, false>(text, size, pos, text + pos, max_digits);
    } else {
      uint8_t padded[kReadableBytes] = {};
      std::memcpy(padded, text + pos, size - pos);
      if (size - pos >= kBlockBytes) {
        starts = block_starts<pattern, splitting, Isa, false>(text, size, pos, padded, max_digits);
      } else if (pattern != Pattern::cl100k_tiktoken) {
        starts = block_starts<pattern, splitting, Isa, true>(text, size, pos, padded, max_digits);
      }
    }
    if (starts == 0) {
      size_t block_end = pos + 1;
      if (!Isa::kExtractsFast && size - pos >= kBlockBytes) {
        // Blocks that start before the last non-ASCII byte would determine no more than this one.
        block_end = pos + 64 - static_cast<size_t>(__builtin_clzll(Isa::non_ascii(text + pos) | 1));
      }
      do {
        pos = scan.pretoken_end(pos);
        ends[count++] = pos;
      } while (pos < block_end && count < capacity);
      continue;
    }
    if (capacity - count >= kBlockBytes) {
      Isa::write_positions(starts, pos, ends + count);
      count += static_cast<size_t>(__builtin_popcountll(starts));
      pos += 63 - static_cast<size_t>(__builtin_clzll(starts));
      continue;
    }
    const size_t block = pos;
    for (; starts != 0 && count < capacity; starts &= starts - 1) {
      pos = block + static_cast<size_t>(__builtin_ctzll(starts));
      ends[count++] = pos;
    }
  }
  return count;
}

// scan_blocks as a Scanner::Scan.
template <Pattern pattern, Splitting splitting, typename Isa>
BPE_SCAN_TARGET size_t scan_with(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                                 size_t capacity, uint32_t max_digits) {
  return scan_blocks<pattern, splitting, Isa>(text, size, pos, ends, capacity, max_digits);
}

template <Splitting splitting, typename Isa>
Scanner::Scan block_scan_for(Pattern pattern) {
  switch (pattern) {
    case Pattern::gpt2:
      return scan_with<Pattern::gpt2, splitting, Isa>;
    case Pattern::cl100k:
      return scan_with<Pattern::cl100k, splitting, Isa>;
    case Pattern::cl100k_tiktoken:
      return scan_with<Pattern::cl100k_tiktoken, splitting, Isa>;
    case Pattern::o200k:
      return scan_with<Pattern::o200k, splitting, Isa>;
    case Pattern::qwen2:
      if constexpr (splitting != Splitting::as_published) return nullptr;
      return scan_with<Pattern::qwen2, Splitting::as_published, Isa>;
    case Pattern::deepseek_v3:
      if constexpr (splitting != Splitting::as_published) return nullptr;
      return scan_with<Pattern::deepseek_v3, Splitting::as_published, Isa>;
    case Pattern::none:
    case Pattern::whitespace_words:
    case Pattern::marked_words:
      return nullptr;
  }
  return nullptr;
}

// The scanner of an instruction set, or nullptr for a pattern that is not scanned in blocks.
template <typename Isa>
Scanner::Scan block_scan_for(Pattern pattern, Splitting splitting) {
  switch (splitting) {
    case Splitting::as_published:
      return block_scan_for<Splitting::as_published, Isa>(pattern);
    case Splitting::with_max_digits:
      return block_scan_for<Splitting::with_max_digits, Isa>(pattern);
    case Splitting::without_contractions:
      return block_scan_for<Splitting::without_contractions, Isa>(pattern);
    case Splitting::by_category:
      return block_scan_for<Splitting::by_category, Isa>(pattern);
  }
  return nullptr;
}

}  // namespace bpe
