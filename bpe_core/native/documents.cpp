#include "documents.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>

#include "scanner_portable.hpp"
#include "utf8.hpp"
#include "words.hpp"
#include "xxh3.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace bpe {
namespace {

// Documents are checked and hashed in groups of about this many bytes, which stay in the cache.
constexpr size_t kGroupBytes = 64 << 10;

#if defined(__x86_64__)
constexpr size_t kBlockBytes = 64;

// Bit i is set where at[i] == byte, for 64 bytes.
inline uint64_t equal_mask(const uint8_t* at, __m128i byte) {
  uint64_t mask = 0;
  for (int i = 0; i < 4; ++i) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at) + i);
    mask |= static_cast<uint64_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, byte))) << (16 * i);
  }
  return mask;
}
#endif

// Calls visit(begin) for the leftmost non-overlapping occurrences of `separator` that begin at
// `from` or later, until it returns false.
template <typename Visit>
void visit_separators(const uint8_t* data, size_t size, std::string_view separator, size_t from,
                      Visit visit) {
  const size_t length = separator.size();
  if (length == 0 || size < length) return;
  const size_t last = size - length;  // the last place where one can begin
  size_t at = from;
  const auto matches = [&](size_t begin) {
    return std::memcmp(data + begin, separator.data(), length) == 0;
  };
#if defined(__x86_64__)
  // Blocks of 64 places: those where both the first and the last byte are right are compared.
  const __m128i first_byte = _mm_set1_epi8(separator.front());
  const __m128i last_byte = _mm_set1_epi8(separator.back());
  size_t allowed = from;
  while (at <= last && last - at >= kBlockBytes - 1) {
    uint64_t mask = equal_mask(data + at, first_byte);
    if (length > 1) mask &= equal_mask(data + at + length - 1, last_byte);
    for (; mask != 0; mask &= mask - 1) {
      const size_t begin = at + static_cast<size_t>(__builtin_ctzll(mask));
      if (begin < allowed || (length > 2 && !matches(begin))) continue;
      if (!visit(begin)) return;
      allowed = begin + length;
    }
    at += kBlockBytes;
  }
  at = std::max(at, allowed);
#endif
  while (at <= last) {
    const void* hit = std::memchr(data + at, separator.front(), last - at + 1);
    if (hit == nullptr) return;
    const size_t begin = static_cast<size_t>(static_cast<const uint8_t*>(hit) - data);
    if (matches(begin)) {
      if (!visit(begin)) return;
      at = begin + length;
    } else {
      at = begin + 1;
    }
  }
}

inline bool continues_character(uint8_t byte) { return (byte & 0xC0) == 0x80; }

inline bool is_ascii_letter(uint8_t byte) { return static_cast<uint8_t>((byte | 32) - 'a') < 26; }

// Whether a letter that normalizing leaves as it is ends at text[0, end).
bool ends_with_letter(const uint8_t* text, size_t end, const Normalizer& normalizer) {
  if (text[end - 1] < 0x80) return is_ascii_letter(text[end - 1]);
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && continues_character(text[begin])) --begin;
  const DecodedCharacter character = decode_utf8(text + begin, end - begin);
  return character.size == end - begin && is_letter(character.code_point) &&
         normalizer.is_fixed(character.code_point);
}

// Whether the rule of characters allows a cut at `place`; 0 < place < size.
bool may_cut(const uint8_t* text, size_t size, size_t place, const Normalizer& normalizer) {
  if (continues_character(text[place]) || !ends_with_letter(text, place, normalizer)) return false;
  if (text[place] < 0x80) return text[place] != '\'' && !is_ascii_letter(text[place]);
  const uint32_t next = decode_utf8(text + place, size - place).code_point;
  if (next == kInvalidCodePoint) return true;
  return !is_letter(next) && !is_mark(next) && normalizer.is_fixed(next);
}

}  // namespace

const char* separator_problem(std::string_view separator) {
  if (separator.empty()) return "it is empty";
  const bool one_byte_repeated =
      std::all_of(separator.begin(), separator.end(), [&](char c) { return c == separator[0]; });
  if (one_byte_repeated) return nullptr;
  for (size_t overlap = 1; overlap < separator.size(); ++overlap) {
    if (separator.substr(0, overlap) == separator.substr(separator.size() - overlap)) {
      return "it ends as it begins, so that two of them can overlap";
    }
  }
  return nullptr;
}

void find_separators(const uint8_t* data, size_t size, std::string_view separator, size_t from,
                     std::vector<int64_t>& begins, size_t limit) {
  if (limit == 0) return;
  size_t found = 0;
  visit_separators(data, size, separator, from, [&](size_t begin) {
    begins.push_back(static_cast<int64_t>(begin));
    return ++found < limit;
  });
}

DocumentSplit split_documents(const uint8_t* data, size_t size, std::string_view separator,
                              size_t start, size_t from, const SplitLimits& limits) {
  if (separator.empty()) throw std::invalid_argument("split_documents: the separator is empty");
  if (start > size || from < start) {
    throw std::invalid_argument(
        "split_documents: expected start <= size and start <= from, found " +
        std::to_string(start) + ", " + std::to_string(from) + " and size " + std::to_string(size));
  }
  DocumentSplit split;
  split.rest = start;
  split.resume = from;
  if (start >= limits.begin_before) return split;
  size_t found = 0;
  bool left_alone = false;
  visit_separators(data, size, separator, from, [&](size_t begin) {
    if (begin - split.rest > limits.max_bytes) {
      left_alone = true;
      return false;
    }
    if (begin == split.rest) {
      ++split.empty;
    } else {
      split.starts.push_back(static_cast<int64_t>(split.rest));
      split.ends.push_back(static_cast<int64_t>(begin));
    }
    split.rest = begin + separator.size();
    split.stopped = ++found >= limits.max_documents;
    left_alone = split.rest >= limits.begin_before;
    return !split.stopped && !left_alone;
  });
  split.resume = std::max(split.resume, split.rest);
  if (!split.stopped && !left_alone && size >= separator.size()) {
    split.resume = std::max(split.resume, size - separator.size() + 1);
  }
  return split;
}

void scan_documents(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* ends,
                    size_t num_documents, int64_t* valid_prefixes, uint64_t* hashes) {
  for (size_t i = 0; i < num_documents; ++i) {
    if (starts[i] < 0 || ends[i] < starts[i] || static_cast<uint64_t>(ends[i]) > size) {
      throw std::invalid_argument("scan_documents: document " + std::to_string(i) + " is [" +
                                  std::to_string(starts[i]) + ", " + std::to_string(ends[i]) +
                                  ") in " + std::to_string(size) + " bytes");
    }
  }
  // data[valid_begin, valid_end) is known to be valid: a document in it is valid if it begins and
  // ends between characters. This checks many short documents at once, separators included.
  size_t valid_begin = 0;
  size_t valid_end = 0;
  for (size_t i = 0; i < num_documents; ++i) {
    const size_t start = static_cast<size_t>(starts[i]);
    const size_t end = static_cast<size_t>(ends[i]);
    if (start < valid_begin || end > valid_end) {
      size_t group_end = end;
      for (size_t j = i + 1; j < num_documents; ++j) {
        const size_t next_end = static_cast<size_t>(ends[j]);
        if (next_end < group_end || next_end - start > kGroupBytes) break;
        group_end = next_end;
      }
      valid_begin = start;
      valid_end = start + utf8_valid_prefix(data + start, group_end - start);
    }
    const auto between_characters = [&](size_t place) {
      return place == valid_end || !continues_character(data[place]);
    };
    if (end <= valid_end && between_characters(start) && between_characters(end)) {
      valid_prefixes[i] = ends[i] - starts[i];
    } else if (start == valid_begin && end > valid_end) {
      valid_prefixes[i] = static_cast<int64_t>(valid_end - start);
    } else {
      valid_prefixes[i] = static_cast<int64_t>(utf8_valid_prefix(data + start, end - start));
    }
    const Hash128 hash = xxh3_128(data + start, end - start);
    hashes[2 * i] = hash.high;
    hashes[2 * i + 1] = hash.low;
  }
}

size_t cut_lookahead(const SpecialMatcher& specials) {
  // One whole character, or what a special token that begins just before the place may still need.
  return std::max<size_t>(4, specials.empty() ? 0 : specials.max_bytes() - 1);
}

int64_t safe_cut(const uint8_t* text, size_t size, bool at_end, size_t limit,
                 const SpecialMatcher& specials, const Normalizer& normalizer,
                 bool before_white_space) {
  const size_t lookahead = cut_lookahead(specials);
  const auto may_cut_at = [&](size_t place) {
    return may_cut(text, size, place, normalizer) &&
           (!before_white_space ||
            is_word_space(classify(text, size, place).char_class, text[place]));
  };
  if (!at_end && (size < lookahead || size - lookahead < limit)) {
    throw std::invalid_argument("safe_cut: expected at least " + std::to_string(limit) + " + " +
                                std::to_string(lookahead) + " bytes, found " +
                                std::to_string(size));
  }
  // The last place about which text[0, size) says everything.
  const size_t certain = at_end ? (size == 0 ? 0 : size - 1) : size - lookahead;
  int64_t cut = kNoCut;
  // Between special tokens, gap by gap; a place at either end of a gap is not spanned.
  for (size_t gap = 0;;) {
    SpecialMatch match;
    const bool ends_at_special = specials.find(text, size, gap, match) && match.begin <= certain;
    const size_t gap_end = ends_at_special ? match.begin : certain;
    const size_t first = std::max<size_t>(gap, 1);
    for (size_t place = std::min(gap_end, limit); place >= first; --place) {
      if (may_cut_at(place)) {
        cut = static_cast<int64_t>(place);
        break;
      }
    }
    if (gap_end >= limit) {
      if (cut != kNoCut) return cut;
      for (size_t place = std::max(first, limit + 1); place <= gap_end; ++place) {
        if (may_cut_at(place)) return static_cast<int64_t>(place);
      }
    }
    if (!ends_at_special) return cut;
    gap = match.end;
  }
}

}  // namespace bpe
