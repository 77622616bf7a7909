#include "scanner_blocks.hpp"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

namespace bpe {
namespace {

// kFast: the instructions that gather and scatter bits take a few cycles instead of hundreds. All
// kernels are selected at run time, since the machines of a cluster differ.
template <bool kFast>
struct Avx2 {
  static constexpr bool kExtractsFast = kFast;

  BPE_SCAN_TARGET static inline uint64_t mask(__m256i low, __m256i high) {
    return static_cast<uint32_t>(_mm256_movemask_epi8(low)) |
           static_cast<uint64_t>(static_cast<uint32_t>(_mm256_movemask_epi8(high))) << 32;
  }

  BPE_SCAN_TARGET static inline uint64_t equal(const __m256i& low, const __m256i& high,
                                               char value) {
    const __m256i wanted = _mm256_set1_epi8(value);
    return mask(_mm256_cmpeq_epi8(low, wanted), _mm256_cmpeq_epi8(high, wanted));
  }

  // Bytes from first on, fewer than length after it.
  BPE_SCAN_TARGET static inline __m256i in_range(__m256i bytes, char first, char length) {
    const __m256i shifted =
        _mm256_sub_epi8(bytes, _mm256_set1_epi8(static_cast<char>(first ^ -128)));
    return _mm256_cmpgt_epi8(_mm256_set1_epi8(static_cast<char>(length ^ -128)), shifted);
  }

  BPE_SCAN_TARGET static inline uint64_t range(const __m256i& low, const __m256i& high, char first,
                                               char length) {
    return mask(in_range(low, first, length), in_range(high, first, length));
  }

  BPE_SCAN_TARGET static inline uint64_t at_least(const __m256i& low, const __m256i& high,
                                                  uint8_t least) {
    const __m256i bound = _mm256_set1_epi8(static_cast<char>(least));
    return mask(_mm256_cmpeq_epi8(_mm256_max_epu8(low, bound), low),
                _mm256_cmpeq_epi8(_mm256_max_epu8(high, bound), high));
  }

  // The code point whose UTF-8 form starts here; more than kMaxCodePoint for F8 and above, which
  // start none.
  BPE_SCAN_TARGET static inline uint32_t code_point(const uint8_t* bytes) {
    // Positions of the code point's bits, by the first half of the first byte.
    static constexpr uint32_t kPayload[16] = {
        0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x1F3F0000, 0x1F3F0000, 0x0F3F3F00, 0x0F3F3F3F};
    uint32_t word;
    std::memcpy(&word, bytes, sizeof word);
    word = __builtin_bswap32(word);
    return _pext_u32(word, kPayload[word >> 28]);
  }

  BPE_SCAN_TARGET static inline uint64_t non_ascii(const uint8_t* bytes) {
    return mask(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes)),
                _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32)));
  }

  BPE_SCAN_TARGET static BPE_ALWAYS_INLINE ByteMasks load(const uint8_t* bytes) {
    const __m256i low = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    const __m256i high = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes + 32));
    const __m256i case_bit = _mm256_set1_epi8(0x20);
    ByteMasks masks;
    masks.non_ascii = mask(low, high);
    // Continuation bytes, 0x80 to 0xBF, are the smallest signed bytes.
    const __m256i last_continuation = _mm256_set1_epi8(static_cast<char>(0xBF));
    masks.first =
        mask(_mm256_cmpgt_epi8(low, last_continuation), _mm256_cmpgt_epi8(high, last_continuation));
    masks.first_of_3 = at_least(low, high, 0xE0);
    masks.first_of_4 = at_least(low, high, 0xF0);
    masks.lower = range(low, high, 'a', 26);
    masks.letter = range(_mm256_or_si256(low, case_bit), _mm256_or_si256(high, case_bit), 'a', 26);
    masks.number = range(low, high, '0', 10);
    masks.control_space = range(low, high, '\t', 5);
    masks.space = equal(low, high, ' ');
    masks.line_break = equal(low, high, '\n') | equal(low, high, '\r');
    masks.apostrophe = equal(low, high, '\'');
    masks.slash = equal(low, high, '/');
    masks.visible = range(low, high, '!', '~' - '!' + 1);
    return masks;
  }

  // Writes base plus the positions of the ones, then arbitrary values, up to 64 numbers in all.
  BPE_SCAN_TARGET static inline void write_positions(uint64_t ones, size_t base, size_t* out) {
    // No branch for each one, since the branch for the last would be mispredicted.
    do {
      for (size_t i = 0; i < 8; ++i) {
        out[i] = base + static_cast<size_t>(_tzcnt_u64(ones));
        ones = _blsr_u64(ones);
      }
      out += 8;
    } while (ones != 0);
  }

  BPE_SCAN_TARGET static inline uint64_t extract(uint64_t bits, uint64_t mask) {
    return _pext_u64(bits, mask);
  }
  BPE_SCAN_TARGET static inline uint64_t deposit(uint64_t bits, uint64_t mask) {
    return _pdep_u64(bits, mask);
  }
};

bool has_lzcnt() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(0x80000001, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_LZCNT) != 0;
}

}  // namespace

Scanner::Scan avx2_scan_for(Pattern pattern, Splitting splitting, bool extracts_fast) {
  return extracts_fast ? block_scan_for<Avx2<true>>(pattern, splitting)
                       : block_scan_for<Avx2<false>>(pattern, splitting);
}

bool cpu_has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt") && has_lzcnt();
}

bool cpu_has_avx2_and_aes() { return cpu_has_avx2() && __builtin_cpu_supports("aes"); }

bool cpu_extracts_fast() {
  __builtin_cpu_init();
  return !__builtin_cpu_is("bdver4") && !__builtin_cpu_is("znver1") && !__builtin_cpu_is("znver2");
}

}  // namespace bpe

#else

namespace bpe {

Scanner::Scan avx2_scan_for(Pattern, Splitting, bool) { return nullptr; }
bool cpu_has_avx2() { return false; }
bool cpu_has_avx2_and_aes() { return false; }
bool cpu_extracts_fast() { return false; }

}  // namespace bpe

#endif
