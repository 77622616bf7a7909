// UTF-8 as defined by RFC 3629, and the character classes that the cut rule needs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unicode_tables.hpp"

namespace bpe {

// Length of the longest valid prefix of text[0, size): size itself when all of it is valid. An
// incomplete character at the end is not valid.
size_t utf8_valid_prefix(const uint8_t* text, size_t size);

// Result of decode_utf8 for bytes that are not a character.
inline constexpr uint32_t kInvalidCodePoint = 0xFFFFFFFF;

struct DecodedCharacter {
  uint32_t code_point;  // kInvalidCodePoint if the bytes are not UTF-8
  uint32_t size;        // in bytes; 1 for an invalid byte
};

// The character that begins at text[0]; size must not be 0.
inline DecodedCharacter decode_utf8(const uint8_t* text, size_t size) {
  const auto continues = [&](size_t i) { return (text[i] & 0xC0) == 0x80; };
  const uint32_t first = text[0];
  if (first < 0x80) return {first, 1};
  if (first >= 0xC2 && first < 0xE0) {
    if (size >= 2 && continues(1)) return {(first & 0x1F) << 6 | (text[1] & 0x3Fu), 2};
  } else if (first >= 0xE0 && first < 0xF0) {
    if (size >= 3 && continues(1) && continues(2)) {
      const uint32_t code_point = (first & 0x0F) << 12 | (text[1] & 0x3Fu) << 6 | (text[2] & 0x3Fu);
      const bool is_surrogate = code_point >= 0xD800 && code_point < 0xE000;
      if (code_point >= 0x800 && !is_surrogate) return {code_point, 3};
    }
  } else if (first >= 0xF0 && first < 0xF5) {
    if (size >= 4 && continues(1) && continues(2) && continues(3)) {
      const uint32_t code_point = (first & 0x07) << 18 | (text[1] & 0x3Fu) << 12 |
                                  (text[2] & 0x3Fu) << 6 | (text[3] & 0x3Fu);
      if (code_point >= 0x10000 && code_point < 0x110000) return {code_point, 4};
    }
  }
  return {kInvalidCodePoint, 1};
}

// Writes a character, in 1 to 4 bytes; their number.
inline size_t encode_utf8(uint32_t code_point, uint8_t* out) {
  size_t size = 1;
  if (code_point < 0x80) {
    out[0] = static_cast<uint8_t>(code_point);
  } else if (code_point < 0x800) {
    out[0] = static_cast<uint8_t>(0xC0 | code_point >> 6);
    size = 2;
  } else if (code_point < 0x10000) {
    out[0] = static_cast<uint8_t>(0xE0 | code_point >> 12);
    size = 3;
  } else {
    out[0] = static_cast<uint8_t>(0xF0 | code_point >> 18);
    size = 4;
  }
  for (size_t i = 1; i < size; ++i) {
    out[i] = static_cast<uint8_t>(0x80 | (code_point >> 6 * (size - 1 - i) & 0x3F));
  }
  return size;
}

// General category L*.
inline bool is_letter(uint32_t code_point) {
  return code_point < 0x110000 && (class_of_code_point(code_point) & kLetter) != 0;
}

// The property White_Space or general category Cc, which is fixed.
inline bool is_blank_character(uint32_t code_point) {
  if (code_point < 0x20 || (code_point >= 0x7F && code_point < 0xA0)) return true;
  return code_point < 0x110000 && (class_of_code_point(code_point) & kWhiteSpace) != 0;
}

// True if the text consists of such characters. Incomplete UTF-8 does not.
inline bool is_blank(std::string_view text) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    const DecodedCharacter character = decode_utf8(bytes + at, text.size() - at);
    if (!is_blank_character(character.code_point)) return false;
    at += character.size;
  }
  return !text.empty();
}

// General category M*.
inline bool is_mark(uint32_t code_point) {
  return code_point < 0x110000 &&
         (class_of_code_point(code_point) & (kLetter | kWordHead)) == kWordHead;
}

}  // namespace bpe
