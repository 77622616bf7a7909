#include "encode_segment.hpp"
#include "scanner_blocks.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <array>
#include <cstring>
#include <type_traits>

namespace bpe {
namespace {

#define BPE_AVX2 __attribute__((target("avx2,bmi,bmi2,aes")))

// By a key's number of bytes: which of 16 are its own, and the number in the last byte.
struct alignas(16) KeyShape {
  uint8_t own[16];
  uint8_t number[16];
};

constexpr auto kKeyShapes = [] {
  std::array<KeyShape, IdCache::kLongestKey + 1> shapes{};
  for (size_t n = 0; n < shapes.size(); ++n) {
    for (size_t i = 0; i < n; ++i) shapes[n].own[i] = 0xFF;
    shapes[n].number[15] = static_cast<uint8_t>(n);
  }
  return shapes;
}();

// Where a line's value is, by which halves of its two keys are equal to those looked for.
constexpr auto kValueOffsets = [] {
  std::array<uint8_t, 16> offsets{};
  for (size_t halves = 0; halves < 16; ++halves) {
    if ((halves & 3) == 3) offsets[halves] = offsetof(IdCache::Line, values[0]);
    if ((halves & 12) == 12) offsets[halves] = offsetof(IdCache::Line, values[1]);
  }
  return offsets;
}();

struct Avx2Lookup {
  BPE_AVX2 static inline uint64_t hash_of(__m128i key) {
    const __m128i mix = _mm_set_epi64x(static_cast<int64_t>(0x9E3779B97F4A7C15u),
                                       static_cast<int64_t>(0xD1B54A32D192ED03u));
    // After two rounds every bit of the key has a part in all of the state.
    return static_cast<uint64_t>(
        _mm_cvtsi128_si64(_mm_aesenc_si128(_mm_aesenc_si128(key, mix), mix)));
  }

  BPE_AVX2 static uint64_t hash(const ShortKey& key) {
    return hash_of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&key)));
  }

  BPE_AVX2 static inline uint64_t load_key(const uint8_t* bytes, size_t length, size_t readable,
                                           ShortKey& key) {
    __m128i loaded;
    if (readable >= 16) [[likely]] {
      loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    } else {
      uint8_t padded[16] = {};
      std::memcpy(padded, bytes, length);
      loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(padded));
    }
    const auto* const shape = reinterpret_cast<const __m128i*>(&kKeyShapes[length]);
    loaded = _mm_or_si128(_mm_and_si128(loaded, _mm_load_si128(shape)), _mm_load_si128(shape + 1));
    _mm_store_si128(reinterpret_cast<__m128i*>(&key), loaded);
    return hash_of(loaded);
  }

  BPE_AVX2 static inline const uint8_t* find(const IdCache::Line& line, const ShortKey& key) {
    const __m256i wanted =
        _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(&key)));
    const __m256i keys = _mm256_load_si256(reinterpret_cast<const __m256i*>(&line));
    const int halves = _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(wanted, keys)));
    const size_t offset = kValueOffsets[static_cast<size_t>(halves)];
    return offset == 0 ? nullptr : reinterpret_cast<const uint8_t*>(&line) + offset;
  }

  template <class Inline, class Id>
  BPE_AVX2 static inline void write(const uint8_t* value, Id* out) {
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
BPE_AVX2 void encode_segment_avx2(const EncoderParts& parts, Workspace& workspace,
                                  const uint8_t* text, size_t size, size_t readable,
                                  IdBuffer<Id>& ids) {
  encode_segment<Avx2Lookup, Id, Inline>(parts, workspace, text, size, readable, ids);
}

}  // namespace

SegmentEncoders avx2_segment_encoders() {
  return {encode_segment_avx2<uint16_t, Ids16>, encode_segment_avx2<uint32_t, Ids16>,
          encode_segment_avx2<uint32_t, Ids24>};
}

bool cpu_looks_up_with_avx2() { return cpu_has_avx2() && __builtin_cpu_supports("aes"); }

}  // namespace bpe

#else

namespace bpe {

SegmentEncoders avx2_segment_encoders() { return {}; }
bool cpu_looks_up_with_avx2() { return false; }

}  // namespace bpe

#endif
