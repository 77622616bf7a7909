// PortableKeys for CPUs with AVX2 and AES; include only if __x86_64__ is defined.
#pragma once

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "pretoken_key.hpp"

namespace bpe {

#define BPE_AVX2_AES __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt,aes")))

struct Avx2Keys {
  // By a key's number of bytes: a mask of its bytes among 16, and the content of the last byte.
  struct alignas(16) Shape {
    uint8_t own[16];
    uint8_t number[16];
  };

  static constexpr auto kShapes = [] {
    std::array<Shape, kShortKeyBytes + 1> shapes{};
    for (size_t n = 0; n <= kShortKeyBytes; ++n) {
      for (size_t i = 0; i < n; ++i) shapes[n].own[i] = 0xFF;
      if (n < kShortKeyBytes) shapes[n].number[15] = static_cast<uint8_t>(n);
    }
    return shapes;
  }();

  BPE_AVX2_AES static inline uint64_t hash_of(__m128i key) {
    const __m128i mix = _mm_set_epi64x(static_cast<int64_t>(0x9E3779B97F4A7C15u),
                                       static_cast<int64_t>(0xD1B54A32D192ED03u));
    // After two rounds every bit of the key affects the whole state.
    return static_cast<uint64_t>(
        _mm_cvtsi128_si64(_mm_aesenc_si128(_mm_aesenc_si128(key, mix), mix)));
  }

  BPE_AVX2_AES static uint64_t hash(const ShortKey& key) {
    return hash_of(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&key)));
  }

  BPE_AVX2_AES static inline uint64_t make(const uint8_t* bytes, size_t length, size_t readable,
                                           ShortKey& key) {
    __m128i loaded;
    if (readable >= kShortKeyBytes) [[likely]] {
      loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes));
    } else {
      uint8_t padded[kShortKeyBytes] = {};
      std::memcpy(padded, bytes, length);
      loaded = _mm_loadu_si128(reinterpret_cast<const __m128i*>(padded));
    }
    const auto* const shape = reinterpret_cast<const __m128i*>(&kShapes[length]);
    loaded = _mm_or_si128(_mm_and_si128(loaded, _mm_load_si128(shape)), _mm_load_si128(shape + 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(&key), loaded);
    return hash_of(loaded);
  }

  // Finds the halves of two adjacent keys that equal those of a key.
  BPE_AVX2_AES static inline unsigned equal_halves(const ShortKey* two, const ShortKey& key) {
    const __m256i wanted =
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&key)));
    const __m256i keys = _mm256_load_si256(reinterpret_cast<const __m256i*>(two));
    return static_cast<unsigned>(
        _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(wanted, keys))));
  }
};

}  // namespace bpe
