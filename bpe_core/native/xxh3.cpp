#include "xxh3.hpp"

#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bpe {
namespace {

constexpr uint64_t kPrime32_1 = 0x9E3779B1;
constexpr uint64_t kPrime32_2 = 0x85EBCA77;
constexpr uint64_t kPrime32_3 = 0xC2B2AE3D;
constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5;
constexpr uint64_t kPrimeMix1 = 0x165667919E3779F9;
constexpr uint64_t kPrimeMix2 = 0x9FB21C651E98DF25;

constexpr size_t kSecretBytes = 192;
constexpr size_t kStripeBytes = 64;
constexpr size_t kBlockStripes = (kSecretBytes - kStripeBytes) / 8;
constexpr size_t kBlockBytes = kBlockStripes * kStripeBytes;
constexpr size_t kLanes = 8;

alignas(64) constexpr uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

inline uint32_t load32(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

inline uint64_t load64(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

struct Product {
  uint64_t high;
  uint64_t low;
};

inline Product multiply(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return {static_cast<uint64_t>(product >> 64), static_cast<uint64_t>(product)};
}

inline uint64_t fold(Product product) { return product.high ^ product.low; }

inline uint64_t avalanche(uint64_t x) {
  x ^= x >> 37;
  x *= kPrimeMix1;
  return x ^ (x >> 32);
}

inline uint64_t avalanche_small(uint64_t x) {
  x ^= x >> 33;
  x *= kPrime64_2;
  x ^= x >> 29;
  x *= kPrime64_3;
  return x ^ (x >> 32);
}

Hash128 hash_empty() {
  return {avalanche_small(load64(kSecret + 80) ^ load64(kSecret + 88)),
          avalanche_small(load64(kSecret + 64) ^ load64(kSecret + 72))};
}

inline Hash128 hash_1_to_3(const uint8_t* data, size_t size) {
  const uint32_t combined = data[size - 1] | static_cast<uint32_t>(size) << 8 |
                            static_cast<uint32_t>(data[0]) << 16 |
                            static_cast<uint32_t>(data[size >> 1]) << 24;
  const uint32_t swapped = __builtin_bswap32(combined);
  const uint32_t rotated = swapped << 13 | swapped >> 19;
  return {avalanche_small((load32(kSecret + 8) ^ load32(kSecret + 12)) ^ uint64_t{rotated}),
          avalanche_small((load32(kSecret) ^ load32(kSecret + 4)) ^ uint64_t{combined})};
}

inline Hash128 hash_4_to_8(const uint8_t* data, size_t size) {
  const uint64_t combined = load32(data) | static_cast<uint64_t>(load32(data + size - 4)) << 32;
  const uint64_t value = load64(kSecret + 16) ^ load64(kSecret + 24) ^ combined;
  Product product = multiply(value, kPrime64_1 + (size << 2));
  product.high += product.low << 1;
  product.low ^= product.high >> 3;
  product.low ^= product.low >> 35;
  product.low *= kPrimeMix2;
  product.low ^= product.low >> 28;
  return {avalanche(product.high), product.low};
}

inline Hash128 hash_9_to_16(const uint8_t* data, size_t size) {
  const uint64_t first = load64(data);
  const uint64_t last = load64(data + size - 8);
  const uint64_t both = load64(kSecret + 32) ^ load64(kSecret + 40) ^ first ^ last;
  const uint64_t end = load64(kSecret + 48) ^ load64(kSecret + 56) ^ last;
  const Product product = multiply(both, kPrime64_1);
  const uint64_t low = product.low + (static_cast<uint64_t>(size - 1) << 54);
  const uint64_t high = product.high + end + (end & 0xFFFFFFFF) * (kPrime32_2 - 1);
  const Product mixed = multiply(low ^ __builtin_bswap64(high), kPrime64_2);
  return {avalanche(mixed.high + high * kPrime64_2), avalanche(mixed.low)};
}

// The state for 17 to 240 bytes: two sums, into which pairs of 16-byte chunks are mixed.
class MediumState {
 public:
  explicit MediumState(size_t size) : size_(size), low_(size * kPrime64_1) {}

  void mix(const uint8_t* first, const uint8_t* second, size_t secret) {
    low_ = (low_ + mix_chunk(first, kSecret + secret)) ^ (load64(second) + load64(second + 8));
    high_ =
        (high_ + mix_chunk(second, kSecret + secret + 16)) ^ (load64(first) + load64(first + 8));
  }

  void stir() {
    low_ = avalanche(low_);
    high_ = avalanche(high_);
  }

  Hash128 finish() const {
    const uint64_t high = low_ * kPrime64_1 + high_ * kPrime64_4 + size_ * kPrime64_2;
    return {-avalanche(high), avalanche(low_ + high_)};
  }

 private:
  static uint64_t mix_chunk(const uint8_t* chunk, const uint8_t* secret) {
    return fold(multiply(load64(chunk) ^ load64(secret), load64(chunk + 8) ^ load64(secret + 8)));
  }

  uint64_t size_;
  uint64_t low_;
  uint64_t high_ = 0;
};

inline Hash128 hash_17_to_128(const uint8_t* data, size_t size) {
  MediumState state(size);
  for (size_t rounds = (size - 1) / 32 + 1; rounds-- > 0;) {
    state.mix(data + rounds * 16, data + size - rounds * 16 - 16, rounds * 32);
  }
  return state.finish();
}

Hash128 hash_129_to_240(const uint8_t* data, size_t size) {
  MediumState state(size);
  for (size_t i = 0; i < 4; ++i) state.mix(data + i * 32, data + i * 32 + 16, i * 32);
  state.stir();
  for (size_t i = 4; i < size / 32; ++i) {
    state.mix(data + i * 32, data + i * 32 + 16, (i - 4) * 32 + 3);
  }
  state.mix(data + size - 16, data + size - 32, 103);
  return state.finish();
}

// Adds `stripes` stripes of 64 bytes to the lanes; the secret moves on by 8 bytes a stripe.
using Accumulate = void (*)(uint64_t* lanes, const uint8_t* data, size_t stripes,
                            const uint8_t* secret);

#if defined(__x86_64__)
void accumulate_sse2(uint64_t* lanes, const uint8_t* data, size_t stripes, const uint8_t* secret) {
  __m128i sums[4];
  std::memcpy(sums, lanes, sizeof sums);
  for (size_t stripe = 0; stripe < stripes; ++stripe, data += kStripeBytes, secret += 8) {
    for (size_t i = 0; i < 4; ++i) {
      const __m128i text = _mm_loadu_si128(reinterpret_cast<const __m128i*>(data) + i);
      const __m128i key = _mm_loadu_si128(reinterpret_cast<const __m128i*>(secret) + i);
      const __m128i value = _mm_xor_si128(text, key);
      const __m128i product = _mm_mul_epu32(value, _mm_srli_epi64(value, 32));
      const __m128i swapped = _mm_shuffle_epi32(text, _MM_SHUFFLE(1, 0, 3, 2));
      sums[i] = _mm_add_epi64(sums[i], _mm_add_epi64(product, swapped));
    }
  }
  std::memcpy(lanes, sums, sizeof sums);
}

__attribute__((target("avx2"))) void accumulate_avx2(uint64_t* lanes, const uint8_t* data,
                                                     size_t stripes, const uint8_t* secret) {
  __m256i sums[2];
  std::memcpy(sums, lanes, sizeof sums);
  for (size_t stripe = 0; stripe < stripes; ++stripe, data += kStripeBytes, secret += 8) {
    for (size_t i = 0; i < 2; ++i) {
      const __m256i text = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(data) + i);
      const __m256i key = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(secret) + i);
      const __m256i value = _mm256_xor_si256(text, key);
      const __m256i product = _mm256_mul_epu32(value, _mm256_srli_epi64(value, 32));
      const __m256i swapped = _mm256_shuffle_epi32(text, _MM_SHUFFLE(1, 0, 3, 2));
      sums[i] = _mm256_add_epi64(sums[i], _mm256_add_epi64(product, swapped));
    }
  }
  std::memcpy(lanes, sums, sizeof sums);
}

Accumulate choose_accumulate() {
  return __builtin_cpu_supports("avx2") ? accumulate_avx2 : accumulate_sse2;
}
#else
void accumulate_lanes(uint64_t* lanes, const uint8_t* data, size_t stripes, const uint8_t* secret) {
  for (size_t stripe = 0; stripe < stripes; ++stripe, data += kStripeBytes, secret += 8) {
    for (size_t i = 0; i < kLanes; ++i) {
      const uint64_t text = load64(data + i * 8);
      const uint64_t value = text ^ load64(secret + i * 8);
      lanes[i ^ 1] += text;
      lanes[i] += (value & 0xFFFFFFFF) * (value >> 32);
    }
  }
}

Accumulate choose_accumulate() { return accumulate_lanes; }
#endif

void scramble(uint64_t* lanes) {
  for (size_t i = 0; i < kLanes; ++i) {
    const uint64_t key = load64(kSecret + kSecretBytes - kStripeBytes + i * 8);
    lanes[i] = (lanes[i] ^ (lanes[i] >> 47) ^ key) * kPrime32_1;
  }
}

uint64_t merge_lanes(const uint64_t* lanes, uint64_t start, const uint8_t* secret) {
  uint64_t sum = start;
  for (size_t i = 0; i < kLanes; i += 2) {
    sum += fold(
        multiply(lanes[i] ^ load64(secret + i * 8), lanes[i + 1] ^ load64(secret + i * 8 + 8)));
  }
  return avalanche(sum);
}

Hash128 hash_long(const uint8_t* data, size_t size) {
  static const Accumulate accumulate = choose_accumulate();
  alignas(64) uint64_t lanes[kLanes] = {kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
                                        kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1};
  // The last block is left to the end, even when it is full.
  const size_t blocks = (size - 1) / kBlockBytes;
  for (size_t block = 0; block < blocks; ++block) {
    accumulate(lanes, data + block * kBlockBytes, kBlockStripes, kSecret);
    scramble(lanes);
  }
  const size_t rest = size - blocks * kBlockBytes;
  accumulate(lanes, data + blocks * kBlockBytes, (rest - 1) / kStripeBytes, kSecret);
  accumulate(lanes, data + size - kStripeBytes, 1, kSecret + kSecretBytes - 71);
  return {merge_lanes(lanes, ~(size * kPrime64_2), kSecret + kSecretBytes - 75),
          merge_lanes(lanes, size * kPrime64_1, kSecret + 11)};
}

}  // namespace

Hash128 xxh3_128(const uint8_t* data, size_t size) {
  if (size > 240) return hash_long(data, size);
  if (size > 128) return hash_129_to_240(data, size);
  if (size > 16) return hash_17_to_128(data, size);
  if (size > 8) return hash_9_to_16(data, size);
  if (size > 3) return hash_4_to_8(data, size);
  if (size > 0) return hash_1_to_3(data, size);
  return hash_empty();
}

}  // namespace bpe
