#include "utf8.hpp"

#include <cstring>

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

}  // namespace

size_t utf8_valid_prefix(const uint8_t* text, size_t size) {
  size_t i = 0;
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

}  // namespace bpe
