#include "scanner_blocks.hpp"

#if defined(__aarch64__)

#include <arm_neon.h>

namespace bpe {
namespace {

struct Neon {
  static constexpr bool kExtractsFast = false;

  struct Block {
    uint8x16_t parts[4];
  };

  static BPE_ALWAYS_INLINE Block load_bytes(const uint8_t* bytes) {
    return {{vld1q_u8(bytes), vld1q_u8(bytes + 16), vld1q_u8(bytes + 32), vld1q_u8(bytes + 48)}};
  }

  // One bit per byte for which `is` sets all bits. There is no instruction for this: each byte
  // keeps one bit, and sums of neighbours collect those of eight.
  template <typename Is>
  static BPE_ALWAYS_INLINE uint64_t mask(const Block& block, const Is& is) {
    static constexpr uint8_t kBits[16] = {1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128};
    const uint8x16_t bits = vld1q_u8(kBits);
    const uint8x16_t low = vpaddq_u8(vandq_u8(is(block.parts[0]), bits),  //
                                     vandq_u8(is(block.parts[1]), bits));
    const uint8x16_t high =
        vpaddq_u8(vandq_u8(is(block.parts[2]), bits), vandq_u8(is(block.parts[3]), bits));
    const uint8x16_t both = vpaddq_u8(low, high);
    return vgetq_lane_u64(vreinterpretq_u64_u8(vpaddq_u8(both, both)), 0);
  }

  static BPE_ALWAYS_INLINE uint64_t equal(const Block& block, uint8_t value) {
    return mask(block, [value](uint8x16_t bytes) { return vceqq_u8(bytes, vdupq_n_u8(value)); });
  }

  static BPE_ALWAYS_INLINE uint64_t at_least(const Block& block, uint8_t least) {
    return mask(block, [least](uint8x16_t bytes) { return vcgeq_u8(bytes, vdupq_n_u8(least)); });
  }

  // Bytes from first on, fewer than length after it, once the bits of `set` are set.
  static BPE_ALWAYS_INLINE uint64_t range(const Block& block, uint8_t first, uint8_t length,
                                          uint8_t set = 0) {
    return mask(block, [=](uint8x16_t bytes) {
      const uint8x16_t shifted = vsubq_u8(vorrq_u8(bytes, vdupq_n_u8(set)), vdupq_n_u8(first));
      return vcltq_u8(shifted, vdupq_n_u8(length));
    });
  }

  static uint64_t non_ascii(const uint8_t* bytes) { return at_least(load_bytes(bytes), 0x80); }

  static BPE_ALWAYS_INLINE ByteMasks load(const uint8_t* bytes) {
    const Block block = load_bytes(bytes);
    ByteMasks masks;
    masks.non_ascii = at_least(block, 0x80);
    // Continuation bytes are 0x80 to 0xBF.
    masks.first = ~range(block, 0x80, 0x40);
    masks.first_of_3 = at_least(block, 0xE0);
    masks.first_of_4 = at_least(block, 0xF0);
    masks.lower = range(block, 'a', 26);
    masks.letter = range(block, 'a', 26, 0x20);
    masks.number = range(block, '0', 10);
    masks.control_space = range(block, '\t', 5);
    masks.space = equal(block, ' ');
    masks.line_break = equal(block, '\n') | equal(block, '\r');
    masks.apostrophe = equal(block, '\'');
    masks.slash = equal(block, '/');
    masks.visible = range(block, '!', '~' - '!' + 1);
    return masks;
  }

  // See Avx2.
  static BPE_ALWAYS_INLINE void write_positions(uint64_t ones, size_t base, size_t* out) {
    do {
      for (size_t i = 0; i < 8; ++i) {
        out[i] = base + (ones == 0 ? 64 : static_cast<size_t>(__builtin_ctzll(ones)));
        ones &= ones - 1;
      }
      out += 8;
    } while (ones != 0);
  }
};

}  // namespace

Scanner::Scan neon_scan_for(Pattern pattern, Splitting splitting) {
  return block_scan_for<Neon>(pattern, splitting);
}

}  // namespace bpe

#else

namespace bpe {

Scanner::Scan neon_scan_for(Pattern, Splitting) { return nullptr; }

}  // namespace bpe

#endif
