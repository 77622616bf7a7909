// GPT-2's printable stand-ins: each byte as one visible character.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace bpe {

// By code point, the byte that it means; -1 for other characters.
inline constexpr auto kStandIns = [] {
  std::array<int16_t, 0x144> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  uint32_t others = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool is_printable =
        (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte < 0xAD) || byte > 0xAD;
    bytes[is_printable ? byte : others++] = static_cast<int16_t>(byte);
  }
  return bytes;
}();

// The byte that a character stands in for, or -1.
constexpr int byte_of_stand_in(uint32_t code_point) {
  return code_point < kStandIns.size() ? kStandIns[code_point] : -1;
}

}  // namespace bpe
