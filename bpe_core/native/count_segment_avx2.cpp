#include "count_segment.hpp"

#if defined(__x86_64__)

#include <array>

#include "pretoken_key_avx2.hpp"

namespace bpe {
namespace {

struct Avx2CountKeys : Avx2Keys {
  // The slot of a key, from the halves of three keys that equal its own.
  static constexpr auto kSlotOf = [] {
    std::array<uint8_t, 64> slots{};
    for (size_t halves = 0; halves < 64; ++halves) {
      slots[halves] = 3;
      for (uint8_t slot = 0; slot < 3; ++slot) {
        if ((halves >> (2 * slot) & 3) == 3) slots[halves] = slot;
      }
    }
    return slots;
  }();

  BPE_AVX2_AES static inline size_t find(const ShortKey* keys, const ShortKey& key) {
    const __m128i equal =
        _mm_cmpeq_epi64(_mm_loadu_si128(reinterpret_cast<const __m128i*>(&key)),
                        _mm_load_si128(reinterpret_cast<const __m128i*>(keys + 2)));
    const unsigned third = static_cast<unsigned>(_mm_movemask_pd(_mm_castsi128_pd(equal)));
    return kSlotOf[equal_halves(keys, key) | third << 4];
  }
};

template <bool kDocuments>
BPE_AVX2_AES void add_segment(PretokenTable& table, const PretokenTable::Segment& segment,
                              const Scanner& scanner, size_t max_pretoken_bytes,
                              std::vector<LongPretoken>& too_long) {
  SegmentCounter<Avx2CountKeys, kDocuments>::add_segment(table, segment, scanner,
                                                         max_pretoken_bytes, too_long);
}

}  // namespace

PretokenTable::Kernel avx2_count_kernel(bool counts_documents) {
  return {counts_documents ? add_segment<true> : add_segment<false>, Avx2CountKeys::hash};
}

}  // namespace bpe

#else

namespace bpe {

PretokenTable::Kernel avx2_count_kernel(bool) { return {}; }

}  // namespace bpe

#endif
