#include "documents.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

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

// Calls visit(begin, end) for the leftmost non-overlapping occurrences of one separator that begin
// at `from` or later, until it returns false.
template <typename Visit>
void visit_one(const uint8_t* data, size_t size, const std::string& separator, size_t from,
               Visit visit) {
  const size_t length = separator.size();
  if (size < length) return;
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
      if (!visit(begin, begin + length)) return;
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
      if (!visit(begin, begin + length)) return;
      at = begin + length;
    } else {
      at = begin + 1;
    }
  }
}

// The same for a set of separators. Places before `decided` have all bytes that may matter.
template <typename Visit>
void visit_separators(const uint8_t* data, size_t size, const Separators& separators, size_t from,
                      size_t decided, Visit visit) {
  if (separators.only() != nullptr) return visit_one(data, size, *separators.only(), from, visit);
  for (size_t at = from; at < decided;) {
    const size_t length =
        separators.may_begin_with(data[at]) ? separators.match(data + at, size - at) : 0;
    if (length != 0 && !visit(at, at + length)) return;
    at += std::max<size_t>(length, 1);
  }
}

// The first position whose result could still change with more data.
size_t first_undecided(size_t size, const Separators& separators, bool at_end) {
  if (at_end) return size;
  return size < separators.longest() ? 0 : size - separators.longest() + 1;
}

// Returns true if a suffix of `left`, shorter than both, is a prefix of `right`.
bool can_overlap(std::string_view left, std::string_view right) {
  for (size_t overlap = 1; overlap < std::min(left.size(), right.size()); ++overlap) {
    if (right.starts_with(left.substr(left.size() - overlap))) return true;
  }
  return false;
}

// Returns true if all bytes are equal.
bool is_run(std::string_view separator) {
  return separator.find_first_not_of(separator[0]) == std::string_view::npos;
}

inline bool continues_character(uint8_t byte) { return (byte & 0xC0) == 0x80; }

inline bool is_ascii_letter(uint8_t byte) { return static_cast<uint8_t>((byte | 32) - 'a') < 26; }

// The character that ends at text[0, end).
uint32_t character_before(const uint8_t* text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && continues_character(text[begin])) --begin;
  const DecodedCharacter character = decode_utf8(text + begin, end - begin);
  return character.size == end - begin ? character.code_point : kInvalidCodePoint;
}

// Returns true if text[0, end) ends with a letter that normalizing does not change.
bool ends_with_letter(const uint8_t* text, size_t end, const Normalizer& normalizer) {
  if (text[end - 1] < 0x80) return is_ascii_letter(text[end - 1]);
  const uint32_t last = character_before(text, end);
  return last != kInvalidCodePoint && is_letter(last) && normalizer.is_fixed(last);
}

// Returns true if no mark composes with the character, so that normalizing does not change it.
bool takes_no_marks(uint32_t code_point) {
  return code_point < 0x80 && !is_ascii_letter(static_cast<uint8_t>(code_point)) &&
         (code_point < '<' || code_point > '>');
}

// Returns true if a splitter allows a cut at `place`; 0 < place < size.
bool may_split(const uint8_t* text, size_t size, size_t place, const Normalizer& normalizer,
               const Splitter& splitter) {
  if (continues_character(text[place])) return false;
  const uint32_t next = decode_utf8(text + place, size - place).code_point;
  const uint32_t previous = character_before(text, place);
  // Bytes that are not UTF-8 may be replaced later.
  if (previous == kInvalidCodePoint || next == kInvalidCodePoint) return false;
  if (!splitter.may_cut(previous, next)) return false;
  return !normalizer.is_active() ||
         (takes_no_marks(next) && normalizer.is_fixed(previous) && normalizer.is_fixed(next));
}

// Returns true if the characters around `place` allow a cut there; 0 < place < size.
bool may_cut(const uint8_t* text, size_t size, size_t place, const Normalizer& normalizer) {
  if (continues_character(text[place]) || !ends_with_letter(text, place, normalizer)) return false;
  if (text[place] < 0x80) return text[place] != '\'' && !is_ascii_letter(text[place]);
  const uint32_t next = decode_utf8(text + place, size - place).code_point;
  // Scanners may read bytes that are not UTF-8 as a letter.
  if (next == kInvalidCodePoint) return false;
  return !is_letter(next) && !is_mark(next) && normalizer.is_fixed(next);
}

}  // namespace

const char* separator_problem(const std::vector<std::string>& separators) {
  if (separators.empty()) return "there is none";
  for (const std::string& separator : separators) {
    if (separator.empty()) return "it is empty";
  }
  for (const std::string& left : separators) {
    for (const std::string& right : separators) {
      const bool one_run = is_run(left) && is_run(right) && left[0] == right[0];
      if (one_run) continue;
      if (left == right && can_overlap(left, right)) {
        return "it ends as it begins, so that two of them can overlap";
      }
      if (can_overlap(left, right)) {
        return "one ends as another begins, so that the two can overlap";
      }
      if (is_run(left) && left.size() > 1 && right.find(left[0]) != std::string::npos) {
        return "one is a byte repeated, which another has too";
      }
    }
  }
  return nullptr;
}

Separators::Separators(std::vector<std::string> separators)
    : longest_first_(std::move(separators)) {
  if (longest_first_.empty()) throw std::invalid_argument("separators: there is none");
  std::stable_sort(longest_first_.begin(), longest_first_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  if (shortest() == 0) throw std::invalid_argument("separators: one is empty");
  for (const std::string& separator : longest_first_) {
    first_bytes_[static_cast<uint8_t>(separator[0])] = true;
  }
}

size_t Separators::match(const uint8_t* text, size_t size) const {
  for (const std::string& separator : longest_first_) {
    if (separator.size() <= size && std::memcmp(text, separator.data(), separator.size()) == 0) {
      return separator.size();
    }
  }
  return 0;
}

SeparatorPlaces find_separators(const uint8_t* data, size_t size, const Separators& separators,
                                size_t from, size_t limit, bool at_end) {
  SeparatorPlaces places;
  if (limit == 0) return places;
  const size_t decided = first_undecided(size, separators, at_end);
  visit_separators(data, size, separators, from, decided, [&](size_t begin, size_t end) {
    places.begins.push_back(static_cast<int64_t>(begin));
    places.ends.push_back(static_cast<int64_t>(end));
    return places.begins.size() < limit;
  });
  return places;
}

DocumentSplit split_documents(const uint8_t* data, size_t size, const Separators& separators,
                              size_t start, size_t from, const SplitLimits& limits, bool at_end) {
  if (start > size || from < start) {
    throw std::invalid_argument(
        "split_documents: expected start <= size and start <= from, found " +
        std::to_string(start) + ", " + std::to_string(from) + " and size " + std::to_string(size));
  }
  DocumentSplit split;
  split.rest = start;
  split.resume = from;
  if (start >= limits.begin_before) return split;
  const size_t decided = first_undecided(size, separators, at_end);
  size_t found = 0;
  bool left_alone = false;
  visit_separators(data, size, separators, from, decided, [&](size_t begin, size_t end) {
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
    split.rest = end;
    split.stopped = ++found >= limits.max_documents;
    left_alone = split.rest >= limits.begin_before;
    return !split.stopped && !left_alone;
  });
  split.resume = std::max(split.resume, split.rest);
  if (!split.stopped && !left_alone) {
    split.resume = std::max(split.resume, first_undecided(size, separators, false));
  }
  return split;
}

size_t count_characters(const uint8_t* text, size_t size) {
  size_t count = 0;
  for (size_t i = 0; i < size; ++i) count += continues_character(text[i]) ? 0 : 1;
  return count;
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
  // One complete character, or the rest of a special token that begins just before the position and
  // the character behind it, at which a token may look.
  return std::max<size_t>(4, specials.empty() ? 0 : specials.max_bytes() - 1) +
         (specials.has_flags() ? 4 : 0);
}

int64_t safe_cut(const uint8_t* text, size_t size, bool at_end, size_t limit,
                 const SpecialMatcher& specials, const Normalizer& normalizer,
                 const CutRule& rule) {
  const size_t lookahead = cut_lookahead(specials);
  const bool after_special =
      rule.after_special && (rule.splitter == nullptr || rule.splitter->may_cut_after_special());
  const auto may_cut_at = [&](size_t place) {
    if (specials.binds(text[place - 1], text[place])) return false;
    if (rule.splitter != nullptr) {
      return may_split(text, size, place, normalizer, *rule.splitter);
    }
    return may_cut(text, size, place, normalizer) &&
           (!rule.before_white_space ||
            is_word_space(classify(text, size, place).char_class, text[place]));
  };
  if (!at_end && (size < lookahead || size - lookahead < limit)) {
    throw std::invalid_argument("safe_cut: expected at least " + std::to_string(limit) + " + " +
                                std::to_string(lookahead) + " bytes, found " +
                                std::to_string(size));
  }
  // The last position that text[0, size) decides.
  const size_t certain = at_end ? (size == 0 ? 0 : size - 1) : size - lookahead;
  int64_t cut = kNoCut;
  // Between special tokens, gap by gap; a place at either end of a gap is not spanned.
  for (size_t gap = 0;;) {
    SpecialMatch match;
    const bool ends_at_special = specials.find(text, size, gap, match) && match.begin <= certain;
    const size_t gap_end = ends_at_special ? match.begin : certain;
    const size_t first = std::max<size_t>(gap + (after_special || gap == gap_end ? 0 : 1), 1);
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
