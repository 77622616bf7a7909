// Keys of pre-tokens in hash tables whose lines are searched by comparing 16 bytes.
//
// The last byte shows the type of a key: 1 to 15, a pre-token with this many bytes, padded with
// zeros; 0x10 to 0x7E, a pre-token of 16 bytes, of which this is the last; 0x7F, the hash and
// length of a longer one, for lookups; 0x80 and above, written by tables only; 0, a free slot.
#pragma once

#include <cstddef>
#include <cstdint>

#include "bytes_hash.hpp"
#include "scanner_masks.hpp"

namespace bpe {

inline constexpr uint64_t kLongKey = uint64_t{0x7F} << 56;
inline constexpr uint64_t kTableKey = uint64_t{0x80} << 56;

inline bool is_free(const ShortKey& key) { return key.high == 0; }
// Also for a key that a table has made of a long one by setting kTableKey.
inline bool is_long(const ShortKey& key) { return (key.high & kLongKey) == kLongKey; }

// True if the key of a pre-token is its bytes.
inline bool has_short_key(const uint8_t* bytes, size_t length) {
  if (length < kShortKeyBytes) [[likely]]
    return true;
  return length == kShortKeyBytes && bytes[15] >= kShortKeyBytes && bytes[15] < 0x7F;
}

inline size_t length_of_short_key(const ShortKey& key) {
  const size_t last = key.high >> 56;
  return last < kShortKeyBytes ? last : kShortKeyBytes;
}

// The key of any other pre-token; returns its hash.
inline uint64_t make_long_key(const uint8_t* bytes, size_t length, ShortKey& key) {
  key.low = hash_long_key(bytes, length);
  key.high = kLongKey | (length & ~(uint64_t{0xFF} << 56));
  return key.low;
}

// The key of any pre-token; returns its hash. Keys: see PortableKeys.
template <class Keys>
BPE_ALWAYS_INLINE uint64_t make_key(const uint8_t* bytes, size_t length, size_t readable,
                                    ShortKey& key) {
  if (has_short_key(bytes, length)) [[likely]]
    return Keys::make(bytes, length, readable, key);
  return make_long_key(bytes, length, key);
}

// Construction and hashing of short keys. `readable` bytes may be read, of which `length` count.
struct PortableKeys {
  static uint64_t hash(const ShortKey& key) { return hash_short_key(key, 0); }

  static uint64_t make(const uint8_t* bytes, size_t length, size_t readable, ShortKey& key) {
    key = load_short_key(bytes, length, readable);
    if (length < kShortKeyBytes) key.high |= static_cast<uint64_t>(length) << 56;
    return hash(key);
  }
};

}  // namespace bpe
