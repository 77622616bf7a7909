#include "encode_segment.hpp"

#if defined(__x86_64__)

#include <array>
#include <type_traits>

#include "pretoken_key_avx2.hpp"

namespace bpe {
namespace {

// Offset of a line's value, by the halves of its two keys that equal the searched ones.
constexpr auto kValueOffsets = [] {
  std::array<uint8_t, 16> offsets{};
  for (size_t halves = 0; halves < 16; ++halves) {
    if ((halves & 3) == 3) offsets[halves] = offsetof(IdCache::Line, values[0]);
    if ((halves & 12) == 12) offsets[halves] = offsetof(IdCache::Line, values[1]);
  }
  return offsets;
}();

struct Avx2Lookup : Avx2Keys {
  BPE_AVX2_AES static inline const uint8_t* find(const IdCache::Line& line, const ShortKey& key) {
    const size_t offset = kValueOffsets[equal_halves(line.keys, key)];
    return offset == 0 ? nullptr : reinterpret_cast<const uint8_t*>(&line) + offset;
  }

  template <class Inline, class Id>
  BPE_AVX2_AES static inline void write(const uint8_t* value, Id* out) {
    const __m128i ids = _mm_load_si128(reinterpret_cast<const __m128i*>(value));
    if constexpr (sizeof(Id) == 2) {
      static_assert(std::is_same_v<Inline, Ids16>);
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out), ids);
    } else if constexpr (std::is_same_v<Inline, Ids16>) {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_cvtepu16_epi32(ids));
    } else {
      const __m256i places =
          _mm256_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1,  //
                           12, 13, 14, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                          _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(ids), places));
    }
  }
};

template <class Id, class Inline>
BPE_AVX2_AES void encode_segment_avx2(const EncoderParts& parts, Workspace& workspace,
                                      const uint8_t* text, size_t size, size_t readable,
                                      IdBuffer<Id>& ids) {
  encode_segment<Avx2Lookup, Id, Inline>(parts, workspace, text, size, readable, ids);
}

}  // namespace

SegmentEncoders avx2_segment_encoders() {
  return {encode_segment_avx2<uint16_t, Ids16>, encode_segment_avx2<uint32_t, Ids16>,
          encode_segment_avx2<uint32_t, Ids24>};
}

}  // namespace bpe

#else

namespace bpe {

SegmentEncoders avx2_segment_encoders() { return {}; }

}  // namespace bpe

#endif
