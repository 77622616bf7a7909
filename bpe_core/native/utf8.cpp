#include "utf8.hpp"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

namespace bpe {
namespace {

// Number of ASCII bytes that text[0, size) begins with, rounded down to whole groups of 8.
size_t ascii_prefix(const uint8_t* text, size_t size) {
  size_t i = 0;
  for (; i + 8 <= size; i += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, text + i, 8);
    if ((bytes & 0x8080808080808080) != 0) break;
  }
  return i;
}

// The same if text[0, begin) is known to be valid and complete.
size_t valid_prefix_from(const uint8_t* text, size_t size, size_t begin) {
  size_t i = begin;
  while (i < size) {
    if (text[i] < 0x80) {
      const size_t skipped = ascii_prefix(text + i, size - i);
      i += skipped == 0 ? 1 : skipped;
      continue;
    }
    const DecodedCharacter character = decode_utf8(text + i, size - i);
    if (character.code_point == kInvalidCodePoint) return i;
    i += character.size;
  }
  return size;
}

size_t valid_prefix_portable(const uint8_t* text, size_t size) {
  return valid_prefix_from(text, size, 0);
}

#if defined(__x86_64__) || defined(__aarch64__)

// Validation by table lookup, after Keiser and Lemire, "Validating UTF-8 in less than one
// instruction per byte" (2020). Every error except a missing third or fourth byte shows in two
// adjacent bytes, in three of their four halves: each half looks up the errors that it allows, and
// an error that all three allow is one.
struct Mistake {
  uint8_t bit;
  uint16_t first_high;  // sets of half bytes, a bit for each
  uint16_t first_low;
  uint16_t second_high;
};

constexpr uint16_t halves(unsigned from, unsigned to) {
  return static_cast<uint16_t>((2u << to) - (1u << from));
}

constexpr uint16_t kAnyHalf = halves(0, 15);
constexpr uint16_t kContinuation = halves(8, 11);

// Not an error if a third or fourth byte is due.
constexpr uint8_t kTwoContinuations = 0x80;

constexpr Mistake kMistakes[] = {
    {0x01, halves(12, 15), kAnyHalf, halves(0, 7) | halves(12, 15)},     // first byte alone
    {0x02, halves(0, 7), kAnyHalf, kContinuation},                       // continuation of ASCII
    {0x04, halves(12, 12), halves(0, 1), kContinuation},                 // overlong, 2 bytes
    {0x08, halves(14, 14), halves(0, 0), halves(8, 9)},                  // overlong, 3 bytes
    {0x10, halves(14, 14), halves(13, 13), halves(10, 11)},              // surrogates
    {0x20, halves(15, 15), halves(4, 15), halves(9, 11)},                // above U+10FFFF
    {0x40, halves(15, 15), halves(0, 0) | halves(5, 15), halves(8, 8)},  // overlong, or far above
    {kTwoContinuations, kContinuation, kAnyHalf, kContinuation},
};

using HalfTable = std::array<uint8_t, 16>;

constexpr HalfTable half_table(uint16_t Mistake::* half) {
  HalfTable table = {};
  for (const Mistake& mistake : kMistakes) {
    for (unsigned value = 0; value < 16; ++value) {
      if ((mistake.*half >> value & 1) != 0) table[value] |= mistake.bit;
    }
  }
  return table;
}

constexpr HalfTable kFirstHigh = half_table(&Mistake::first_high);
constexpr HalfTable kFirstLow = half_table(&Mistake::first_low);
constexpr HalfTable kSecondHigh = half_table(&Mistake::second_high);

// The same if text[0, begin) is known to be valid, except for a character that continues there.
size_t valid_prefix_after(const uint8_t* text, size_t size, size_t begin) {
  for (size_t back = 1; back <= 3 && back <= begin; ++back) {
    if ((text[begin - back] & 0xC0) == 0x80) continue;
    if (text[begin - back] >= 0xC0) return valid_prefix_from(text, size, begin - back);
    break;
  }
  return valid_prefix_from(text, size, begin);
}

#endif

#if defined(__x86_64__)

#define BPE_AVX2 __attribute__((target("avx2")))

BPE_AVX2 inline __m256i look_up(const HalfTable& table, const __m256i& half_bytes) {
  const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table.data()));
  return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), half_bytes);
}

// Not zero if a byte is wrong, given the 32 bytes before these.
BPE_AVX2 inline __m256i find_mistakes(const __m256i& bytes, const __m256i& before) {
  const __m256i low_half = _mm256_set1_epi8(0x0F);
  const __m256i straddling = _mm256_permute2x128_si256(before, bytes, 0x21);
  const __m256i back1 = _mm256_alignr_epi8(bytes, straddling, 15);
  const __m256i back2 = _mm256_alignr_epi8(bytes, straddling, 14);
  const __m256i back3 = _mm256_alignr_epi8(bytes, straddling, 13);
  const __m256i high1 = _mm256_and_si256(_mm256_srli_epi16(back1, 4), low_half);
  const __m256i low1 = _mm256_and_si256(back1, low_half);
  const __m256i high2 = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low_half);
  const __m256i pairs =
      _mm256_and_si256(_mm256_and_si256(look_up(kFirstHigh, high1), look_up(kFirstLow, low1)),
                       look_up(kSecondHigh, high2));
  // The subtractions leave the highest bit to the first bytes of 3, or 4, and more.
  const __m256i third = _mm256_subs_epu8(back2, _mm256_set1_epi8(static_cast<char>(0xE0 - 0x80)));
  const __m256i fourth = _mm256_subs_epu8(back3, _mm256_set1_epi8(static_cast<char>(0xF0 - 0x80)));
  const __m256i due = _mm256_and_si256(_mm256_or_si256(third, fourth),
                                       _mm256_set1_epi8(static_cast<char>(kTwoContinuations)));
  return _mm256_xor_si256(pairs, due);
}

BPE_AVX2 size_t valid_prefix_avx2(const uint8_t* text, size_t size) {
  __m256i before = _mm256_setzero_si256();
  size_t i = 0;
  for (; size - i >= 64; i += 64) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text + i + 32));
    const __m256i all = _mm256_or_si256(_mm256_or_si256(low, high), before);
    if (_mm256_movemask_epi8(all) != 0) {
      const __m256i mistakes =
          _mm256_or_si256(find_mistakes(low, before), find_mistakes(high, low));
      if (!_mm256_testz_si256(mistakes, mistakes)) break;
    }
    before = high;
  }
  return valid_prefix_after(text, size, i);
}

#elif defined(__aarch64__)

inline uint8x16_t look_up(const HalfTable& table, uint8x16_t half_bytes) {
  return vqtbl1q_u8(vld1q_u8(table.data()), half_bytes);
}

// Not zero if a byte is wrong, given the 16 bytes before these.
inline uint8x16_t find_mistakes(uint8x16_t bytes, uint8x16_t before) {
  const uint8x16_t back1 = vextq_u8(before, bytes, 15);
  const uint8x16_t back2 = vextq_u8(before, bytes, 14);
  const uint8x16_t back3 = vextq_u8(before, bytes, 13);
  const uint8x16_t pairs = vandq_u8(vandq_u8(look_up(kFirstHigh, vshrq_n_u8(back1, 4)),
                                             look_up(kFirstLow, vandq_u8(back1, vdupq_n_u8(0x0F)))),
                                    look_up(kSecondHigh, vshrq_n_u8(bytes, 4)));
  // The subtractions leave the highest bit to the first bytes of 3, or 4, and more.
  const uint8x16_t third = vqsubq_u8(back2, vdupq_n_u8(0xE0 - 0x80));
  const uint8x16_t fourth = vqsubq_u8(back3, vdupq_n_u8(0xF0 - 0x80));
  return veorq_u8(pairs, vandq_u8(vorrq_u8(third, fourth), vdupq_n_u8(kTwoContinuations)));
}

size_t valid_prefix_neon(const uint8_t* text, size_t size) {
  uint8x16_t before = vdupq_n_u8(0);
  size_t i = 0;
  for (; size - i >= 64; i += 64) {
    const uint8x16_t parts[4] = {vld1q_u8(text + i), vld1q_u8(text + i + 16),
                                 vld1q_u8(text + i + 32), vld1q_u8(text + i + 48)};
    const uint8x16_t all =
        vorrq_u8(vorrq_u8(vorrq_u8(parts[0], parts[1]), before), vorrq_u8(parts[2], parts[3]));
    if (vmaxvq_u8(all) >= 0x80) {
      uint8x16_t mistakes = vdupq_n_u8(0);
      for (const uint8x16_t& part : parts) {
        mistakes = vorrq_u8(mistakes, find_mistakes(part, before));
        before = part;
      }
      if (vmaxvq_u8(mistakes) != 0) break;
    }
    before = parts[3];
  }
  return valid_prefix_after(text, size, i);
}

#endif

size_t (*fastest_valid_prefix())(const uint8_t*, size_t) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2")) return valid_prefix_avx2;
#elif defined(__aarch64__)
  return valid_prefix_neon;
#endif
  return valid_prefix_portable;
}

}  // namespace

size_t utf8_valid_prefix(const uint8_t* text, size_t size) {
  static const auto valid_prefix = fastest_valid_prefix();
  return valid_prefix(text, size);
}

}  // namespace bpe
