// Byte-string keys for the hash tables of this package: keys of up to 16 bytes are stored in two
// words, longer ones elsewhere; both are hashed by folded 64x64-bit multiplication.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace bpe {

inline constexpr size_t kShortKeyBytes = 16;

// A key of at most 16 bytes, zero-padded. Keys that differ only in trailing zero bytes are equal
// here: compare their lengths as well.
struct ShortKey {
  uint64_t low;
  uint64_t high;

  bool operator==(const ShortKey& other) const {
    return ((low ^ other.low) | (high ^ other.high)) == 0;
  }
};

inline uint64_t load_u64(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

// The words that keep a key's first n bytes, for n of 0 to 16.
inline constexpr auto kKeyMasks = [] {
  std::array<ShortKey, kShortKeyBytes + 1> masks{};
  for (size_t n = 1; n <= kShortKeyBytes; ++n) {
    masks[n].low = n < 8 ? ~uint64_t{0} >> (64 - 8 * n) : ~uint64_t{0};
    masks[n].high = n <= 8 ? 0 : ~uint64_t{0} >> (128 - 8 * n);
  }
  return masks;
}();

// Loads `length` (1 to 16) bytes. `readable` is the number of bytes that may be read from `bytes`
// on: with 16 or more, two unconditional loads are masked; at the end of a buffer, bytes are
// copied.
inline ShortKey load_short_key(const uint8_t* bytes, size_t length, size_t readable) {
  if (readable >= kShortKeyBytes) [[likely]] {
    const ShortKey& mask = kKeyMasks[length];
    return {load_u64(bytes) & mask.low, load_u64(bytes + 8) & mask.high};
  }
  uint8_t padded[kShortKeyBytes] = {};
  std::memcpy(padded, bytes, length);
  return {load_u64(padded), load_u64(padded + 8)};
}

inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_short_key(ShortKey key, size_t length) {
  return fold_multiply(key.low ^ 0x9E3779B97F4A7C15u,
                       key.high ^ (0xD1B54A32D192ED03u + length * 0x8CB92BA72F3D8DD7u));
}

inline uint64_t hash_long_key(const uint8_t* bytes, size_t length) {
  uint64_t hash = length * 0x8CB92BA72F3D8DD7u;
  size_t at = 0;
  for (; at + 16 <= length; at += 16) {
    hash = fold_multiply(load_u64(bytes + at) ^ hash ^ 0x9E3779B97F4A7C15u,
                         load_u64(bytes + at + 8) ^ 0xD1B54A32D192ED03u);
  }
  // The last 16 bytes, overlapping those before: every long key has at least 16.
  const uint8_t* tail = bytes + length - 16;
  return fold_multiply(load_u64(tail) ^ hash ^ 0x2545F4914F6CDD1Du,
                       load_u64(tail + 8) ^ 0xD1B54A32D192ED03u);
}

}  // namespace bpe
