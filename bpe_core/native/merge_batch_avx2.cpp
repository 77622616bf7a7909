// A lane holds a pre-token that is being merged. Each round takes one step in every lane: find the
// lowest rank, merge there, look up the two new pairs. While one lane waits for memory, or for its
// own stores, the others take their steps; no branch depends on the pre-token's length.

#include "merge_batch.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>
#include <utility>

namespace bpe {
namespace {

#define BPE_AVX2 __attribute__((target("avx2,bmi,bmi2,lzcnt,popcnt")))

constexpr uint32_t kFirst = 8;  // slot of the first symbol; the slot before it stands for its
                                // predecessor, so that vectors of symbols are aligned
constexpr int kSlotBits = 8;
// A pair's key is its rank and its slot, so the smallest key is that of the leftmost pair with the
// lowest rank. Larger keys are those of pairs that do not merge.
constexpr uint32_t kLargestKey = static_cast<uint32_t>(MergeRules::kFieldMask + 1) << kSlotBits;
constexpr uint32_t kNoSymbol = static_cast<uint32_t>(MergeRules::kFieldMask);

alignas(64) constexpr MergeRules::Line kNoRules = {};

template <size_t kBytes>
struct alignas(32) Lane {
  uint32_t keys[kFirst + kBytes + 8];  // of the pair that begins at a slot
  uint32_t symbols[kFirst + kBytes + 8];
  uint8_t next[kFirst + kBytes + 24];  // slots of the neighbouring symbols
  uint8_t before[kFirst + kBytes + 24];
  // The two pairs to look up, by the slots where they begin.
  uint32_t slots[2];
  uint64_t pairs[2];
  size_t hashes[2];
  const MergeRules::Line* lines[2];
  BatchItem* item;
};

template <size_t kBytes>
BPE_AVX2 inline void begin(const MergeRules& rules, BatchItem& item, Lane<kBytes>& lane) {
  lane.item = &item;
  const uint32_t n = static_cast<uint32_t>(item.length);
  uint8_t bytes[kBytes + 16] = {};
  if (item.readable >= kBytes) {
    std::memcpy(bytes, item.bytes, kBytes);
  } else {
    std::memcpy(bytes, item.bytes, n);
  }
  const __m256i places = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i pairs_end = _mm256_set1_epi32(static_cast<int>(kFirst + n - 1));
  const __m256i none = _mm256_set1_epi32(-1);
  const int* const ranks = reinterpret_cast<const int*>(rules.byte_pair_ranks());
  for (uint32_t i = 0; i < kBytes; i += 8) {
    const auto at = [&](uint32_t place) BPE_AVX2 {
      return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(bytes + place)));
    };
    const __m256i left = at(i);
    const __m256i pairs = _mm256_or_si256(_mm256_slli_epi32(left, 8), at(i + 1));
    const __m256i slots = _mm256_add_epi32(places, _mm256_set1_epi32(static_cast<int>(kFirst + i)));
    const __m256i is_pair = _mm256_cmpgt_epi32(pairs_end, slots);
    const __m256i found = _mm256_mask_i32gather_epi32(none, ranks, pairs, is_pair, 4);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane.symbols + kFirst + i), left);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lane.keys + kFirst + i),
                       _mm256_or_si256(_mm256_slli_epi32(found, kSlotBits), slots));
  }
  const __m256i bytes_of_places =
      _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
                       22, 23, 24, 25, 26, 27, 28, 29, 30, 31);
  for (uint32_t i = 0; i < kFirst + kBytes; i += 32) {
    const auto store = [&](uint8_t* slots, int shift) BPE_AVX2 {
      _mm256_storeu_si256(
          reinterpret_cast<__m256i*>(slots + i),
          _mm256_add_epi8(bytes_of_places,
                          _mm256_set1_epi8(static_cast<char>(static_cast<int>(i) + shift))));
    };
    store(lane.next, 1);
    store(lane.before, -1);
  }
  lane.symbols[kFirst - 1] = kNoSymbol;
  lane.symbols[kFirst + n] = kNoSymbol;
}

template <size_t kBytes>
BPE_AVX2 inline uint32_t lowest_key(const Lane<kBytes>& lane) {
  const __m256i* keys = reinterpret_cast<const __m256i*>(lane.keys + kFirst);
  __m256i lowest = _mm256_min_epu32(_mm256_load_si256(keys), _mm256_load_si256(keys + 1));
  for (size_t i = 2; i < kBytes / 8; i += 2) {
    lowest = _mm256_min_epu32(
        lowest, _mm256_min_epu32(_mm256_load_si256(keys + i), _mm256_load_si256(keys + i + 1)));
  }
  __m128i half = _mm_min_epu32(_mm256_castsi256_si128(lowest), _mm256_extracti128_si256(lowest, 1));
  half = _mm_min_epu32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(1, 0, 3, 2)));
  half = _mm_min_epu32(half, _mm_shuffle_epi32(half, _MM_SHUFFLE(2, 3, 0, 1)));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(half));
}

// Merges the pair of the key, and starts looking up the pairs that this creates.
template <size_t kBytes>
BPE_AVX2 inline void merge_pair(const MergeRules& rules, uint32_t key, Lane<kBytes>& lane) {
  const uint32_t at = key & ((1 << kSlotBits) - 1);
  const uint32_t merged = lane.next[at];
  const uint32_t after = lane.next[merged];
  const uint32_t before = lane.before[at];
  const uint32_t result = rules.result_of(key >> kSlotBits);
  __builtin_prefetch(rules.ids() + result);
  lane.next[at] = static_cast<uint8_t>(after);
  lane.before[after] = static_cast<uint8_t>(at);
  lane.symbols[at] = result;
  lane.keys[merged] = UINT32_MAX;
  lane.slots[0] = before;
  lane.slots[1] = at;
  lane.pairs[0] = MergeRules::pair_key(lane.symbols[before], result);
  lane.pairs[1] = MergeRules::pair_key(result, lane.symbols[after]);
  for (int i = 0; i < 2; ++i) {
    lane.hashes[i] = MergeRules::pair_hash(lane.pairs[i]);
    __builtin_prefetch(rules.filter_byte(lane.hashes[i]));
  }
}

template <size_t kBytes>
BPE_AVX2 inline void find_lines(const MergeRules& rules, Lane<kBytes>& lane) {
  for (int i = 0; i < 2; ++i) {
    const size_t hash = lane.hashes[i];
    lane.lines[i] = rules.may_merge(hash) ? rules.line_of(hash) : &kNoRules;
    __builtin_prefetch(lane.lines[i]);
  }
}

// rank + 1 of a pair, or 0.
BPE_AVX2 inline uint32_t rank_in(const MergeRules& rules, const MergeRules::Line& line,
                                 uint64_t pair, size_t hash) {
  const __m256i wanted = _mm256_set1_epi64x(static_cast<int64_t>(pair));
  const auto equal = [&](const uint64_t* four) BPE_AVX2 {
    const __m256i found = _mm256_load_si256(reinterpret_cast<const __m256i*>(four));
    return _mm256_and_si256(
        found, _mm256_cmpeq_epi64(_mm256_srli_epi64(found, MergeRules::kFieldBits), wanted));
  };
  const __m256i found = _mm256_or_si256(equal(line.rules), equal(line.rules + 4));
  __m128i half = _mm_or_si128(_mm256_castsi256_si128(found), _mm256_extracti128_si256(found, 1));
  half = _mm_or_si128(half, _mm_unpackhi_epi64(half, half));
  const uint64_t rule = static_cast<uint64_t>(_mm_cvtsi128_si64(half));
  const uint32_t rank = static_cast<uint32_t>(rule & MergeRules::kFieldMask);
  if (rank == 0 && line.rules[7] != 0) [[unlikely]]
    return rules.find_rank(pair, hash) + 1;
  return rank;
}

template <size_t kBytes>
BPE_AVX2 inline void add_pairs(const MergeRules& rules, Lane<kBytes>& lane) {
  for (int i = 0; i < 2; ++i) {
    const uint32_t rank = rank_in(rules, *lane.lines[i], lane.pairs[i], lane.hashes[i]) - 1;
    lane.keys[lane.slots[i]] = rank << kSlotBits | lane.slots[i];
  }
}

template <size_t kBytes>
inline void finish(const MergeRules& rules, Lane<kBytes>& lane) {
  BatchItem& item = *lane.item;
  item.count = 0;
  for (size_t at = kFirst; at < kFirst + item.length; at = lane.next[at]) {
    item.ids[item.count++] = rules.id_of(lane.symbols[at]);
  }
}

// Merges those of the items that have more than kMore and at most kBytes bytes.
template <size_t kMore, size_t kBytes, size_t kLanes>
BPE_AVX2 void merge_lanes(const MergeRules& rules, BatchItem* items, size_t n) {
  Lane<kBytes> lanes[kLanes];
  Lane<kBytes>* active[kLanes];
  size_t num_active = 0;
  BatchItem* const end = items + n;
  const auto fill = [&](Lane<kBytes>& lane) BPE_AVX2 {
    while (items != end && (items->length <= kMore || items->length > kBytes)) ++items;
    if (items == end) return false;
    begin(rules, *items++, lane);
    return true;
  };
  while (num_active < kLanes && fill(lanes[num_active])) {
    active[num_active] = &lanes[num_active];
    ++num_active;
  }
  while (num_active > 0) {
    for (size_t i = 0; i < num_active;) {
      Lane<kBytes>& lane = *active[i];
      const uint32_t key = lowest_key(lane);
      if (key < kLargestKey) [[likely]] {
        merge_pair(rules, key, lane);
        ++i;
        continue;
      }
      finish(rules, lane);
      if (!fill(lane)) std::swap(active[i], active[--num_active]);
    }
    for (size_t i = 0; i < num_active; ++i) find_lines(rules, *active[i]);
    for (size_t i = 0; i < num_active; ++i) add_pairs(rules, *active[i]);
  }
}

void merge_batch_avx2(const MergeRules& rules, BatchItem* items, size_t n) {
  merge_lanes<0, 16, 8>(rules, items, n);
  merge_lanes<16, 32, 6>(rules, items, n);
  merge_lanes<32, BatchItem::kMostBytes, 4>(rules, items, n);
}

}  // namespace

BatchMerger avx2_batch_merger() { return merge_batch_avx2; }

}  // namespace bpe

#else

namespace bpe {

BatchMerger avx2_batch_merger() { return nullptr; }

}  // namespace bpe

#endif
