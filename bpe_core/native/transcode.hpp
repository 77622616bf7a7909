// Texts of one, two or four bytes a character, as Python holds them, in UTF-8.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "scanner_blocks.hpp"
#include "utf8.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bpe {

// Bytes after the written ones that may be overwritten.
inline constexpr size_t kUtf8Slack = 16;

// At most as many bytes as a unit has in UTF-8.
template <class Unit>
inline constexpr size_t kMostUtf8Bytes = sizeof(Unit) == 4 ? 4 : sizeof(Unit) + 1;

#if defined(__x86_64__)

// By which of four words are of one byte, and which of three: where their bytes stand together.
inline constexpr auto kWordBytes = [] {
  struct Packing {
    uint8_t places[16];
    uint8_t bytes;
  };
  std::array<Packing, 256> packings{};
  for (size_t mask = 0; mask < 256; ++mask) {
    Packing& packing = packings[mask];
    for (uint8_t& place : packing.places) place = 0x80;
    for (size_t word = 0; word < 4; ++word) {
      const size_t bytes = (mask >> word & 1) != 0 ? 1 : 2 + (mask >> (4 + word) & 1);
      for (size_t i = 0; i < bytes; ++i) {
        packing.places[packing.bytes++] = static_cast<uint8_t>(4 * word + i);
      }
    }
  }
  return packings;
}();

// Writes characters eight at a time, up to a surrogate or the last seven; returns their number.
// May be called only where cpu_has_avx2().
__attribute__((target("avx2,popcnt"))) inline size_t write_utf8_avx2(const uint16_t* text, size_t n,
                                                                     uint8_t*& out) {
  const __m256i low_six = _mm256_set1_epi32(0x3F);
  size_t i = 0;
  while (i + 8 <= n) {
    if (i + 32 <= n) {
      const auto* const at = reinterpret_cast<const __m256i*>(text + i);
      const __m256i front = _mm256_loadu_si256(at);
      const __m256i back = _mm256_loadu_si256(at + 1);
      if (_mm256_testz_si256(_mm256_or_si256(front, back),
                             _mm256_set1_epi16(static_cast<short>(0xFF80)))) {
        const __m256i packed = _mm256_packus_epi16(front, back);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                            _mm256_permute4x64_epi64(packed, 0b11011000));
        i += 32;
        out += 32;
        continue;
      }
    }
    const __m128i units = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + i));
    if (_mm_testz_si128(units, _mm_set1_epi16(static_cast<short>(0xFF80)))) {
      _mm_storel_epi64(reinterpret_cast<__m128i*>(out), _mm_packus_epi16(units, units));
      i += 8;
      out += 8;
      continue;
    }
    const __m256i c = _mm256_cvtepu16_epi32(units);
    const __m256i surrogates = _mm256_cmpeq_epi32(_mm256_and_si256(c, _mm256_set1_epi32(0xF800)),
                                                  _mm256_set1_epi32(0xD800));
    if (!_mm256_testz_si256(surrogates, surrogates)) break;
    const __m256i is_one = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x80), c);
    const __m256i is_three = _mm256_cmpgt_epi32(c, _mm256_set1_epi32(0x7FF));
    const __m256i last = _mm256_and_si256(c, low_six);
    const __m256i second = _mm256_srli_epi32(c, 6);
    const __m256i two = _mm256_or_si256(_mm256_or_si256(second, _mm256_set1_epi32(0x80C0)),
                                        _mm256_slli_epi32(last, 8));
    const __m256i three =
        _mm256_or_si256(_mm256_or_si256(_mm256_srli_epi32(c, 12), _mm256_set1_epi32(0x8080E0)),
                        _mm256_or_si256(_mm256_slli_epi32(_mm256_and_si256(second, low_six), 8),
                                        _mm256_slli_epi32(last, 16)));
    const __m256i words = _mm256_blendv_epi8(_mm256_blendv_epi8(two, three, is_three), c, is_one);
    const auto ones = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(is_one)));
    const auto threes = static_cast<unsigned>(_mm256_movemask_ps(_mm256_castsi256_ps(is_three)));
    const auto write = [&](__m128i four, unsigned mask) __attribute__((target("avx2"))) {
      const auto& packing = kWordBytes[mask];
      const __m128i places = _mm_loadu_si128(reinterpret_cast<const __m128i*>(packing.places));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_shuffle_epi8(four, places));
      out += packing.bytes;
    };
    write(_mm256_castsi256_si128(words), (ones & 15) | (threes & 15) << 4);
    write(_mm256_extracti128_si256(words, 1), ones >> 4 | (threes & 0xF0));
    i += 8;
  }
  return i;
}

#endif

// Writes the first characters that are ASCII, eight at a time; returns their number.
template <class Unit>
inline size_t write_ascii(const Unit* text, size_t n, uint8_t* out) {
  size_t i = 0;
  for (; i + 8 <= n; i += 8) {
    uint32_t all = 0;
    for (size_t k = 0; k < 8; ++k) all |= text[i + k];
    if (all >= 0x80) break;
    for (size_t k = 0; k < 8; ++k) out[i + k] = static_cast<uint8_t>(text[i + k]);
  }
  return i;
}

// Writes n characters in UTF-8 and returns where they end; kUtf8Slack bytes more may be written to.
// A pair of surrogates becomes its character, a lone one U+FFFD.
template <class Unit>
uint8_t* write_utf8(const Unit* text, size_t n, uint8_t* out) {
  [[maybe_unused]] static const bool has_avx2 = cpu_has_avx2();  // a virtual machine is slow to say
  for (size_t i = 0; i < n;) {
#if defined(__x86_64__)
    if constexpr (sizeof(Unit) == 2) {
      if (has_avx2) i += write_utf8_avx2(text + i, n - i, out);
    }
#endif
    const size_t ascii = write_ascii(text + i, n - i, out);
    i += ascii;
    out += ascii;
    // As many characters as stand in a block, whatever they are: text changes rarely.
    for (const size_t end = n - i < 16 ? n : i + 16; i < end; ++i) {
      const uint32_t c = text[i];
      if (sizeof(Unit) == 1 || c < 0x800) {
        const uint32_t two = 0x80C0 | c >> 6 | (c & 0x3F) << 8;
        const uint16_t word = static_cast<uint16_t>(c < 0x80 ? c : two);
        std::memcpy(out, &word, sizeof word);
        out += 1 + (c >= 0x80);
      } else if (c - 0xD800 >= 0x800 && c < 0x10000) {
        const uint32_t word = 0x8080E0 | c >> 12 | (c >> 6 & 0x3F) << 8 | (c & 0x3F) << 16;
        std::memcpy(out, &word, sizeof word);
        out += 3;
      } else if (c >= 0x10000) {
        out += encode_utf8(c, out);
      } else {
        const uint32_t next = i + 1 < n ? text[i + 1] : 0;
        const bool is_pair = c < 0xDC00 && next - 0xDC00 < 0x400;
        out +=
            encode_utf8(is_pair ? 0x10000 + ((c - 0xD800) << 10 | (next - 0xDC00)) : 0xFFFD, out);
        if (is_pair) ++i;
      }
    }
  }
  return out;
}

}  // namespace bpe
