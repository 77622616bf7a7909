#include "normalizer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "normalization_tables.hpp"
#include "utf8.hpp"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace bpe {
namespace {

// Hangul syllables are composed of up to three letters by arithmetic.
constexpr uint32_t kSyllables = 0xAC00;
constexpr uint32_t kLeads = 0x1100;
constexpr uint32_t kVowels = 0x1161;
constexpr uint32_t kBeforeTails = 0x11A7;
constexpr uint32_t kNumLeads = 19;
constexpr uint32_t kNumVowels = 21;
constexpr uint32_t kNumTails = 28;  // none is one of them
constexpr uint32_t kNumSyllables = kNumLeads * kNumVowels * kNumTails;

// A character while it is being ordered: its combining class above its code point.
constexpr unsigned kClassShift = 24;
constexpr uint32_t kCodePointMask = (uint32_t{1} << kClassShift) - 1;

constexpr size_t kShortRun = 32;  // of marks, up to which they are ordered in place

size_t ascii_run_end(const uint8_t* text, size_t size, size_t pos) {
#if defined(__SSE2__)
  while (pos + 32 <= size) {
    const __m128i* at = reinterpret_cast<const __m128i*>(text + pos);
    const uint32_t high = static_cast<uint32_t>(_mm_movemask_epi8(_mm_loadu_si128(at))) |
                          static_cast<uint32_t>(_mm_movemask_epi8(_mm_loadu_si128(at + 1))) << 16;
    if (high != 0) return pos + static_cast<size_t>(__builtin_ctz(high));
    pos += 32;
  }
#endif
  while (pos < size && text[pos] < 0x80) ++pos;
  return pos;
}

void append_utf8(uint32_t code_point, std::string& out) {
  uint8_t bytes[4];
  const size_t size = encode_utf8(code_point, bytes);
  out.append(reinterpret_cast<const char*>(bytes), size);
}

// The character composed of these two, or 0.
uint32_t compose(uint32_t first, uint32_t second) {
  if (first - kLeads < kNumLeads && second - kVowels < kNumVowels) {
    return kSyllables + ((first - kLeads) * kNumVowels + second - kVowels) * kNumTails;
  }
  if (first - kSyllables < kNumSyllables && (first - kSyllables) % kNumTails == 0 &&
      second - kBeforeTails - 1 < kNumTails - 1) {
    return first + second - kBeforeTails;
  }
  const auto is_before = [](const Composite& composite, const std::pair<uint32_t, uint32_t>& pair) {
    return std::pair(composite.first, composite.second) < pair;
  };
  const Composite* const end = kComposites + kNumComposites;
  const Composite* const found =
      std::lower_bound(kComposites, end, std::pair(first, second), is_before);
  return found != end && found->first == first && found->second == second ? found->composite : 0;
}

uint32_t ascii_quote(uint32_t code_point) {
  const Quote* const end = kQuotes + kNumQuotes;
  const Quote* const found = std::lower_bound(
      kQuotes, end, code_point, [](const Quote& quote, uint32_t c) { return quote.quote < c; });
  return found != end && found->quote == code_point ? found->ascii : code_point;
}

// Sorts the marks of each run by their classes; marks of one class keep their order.
void order(std::vector<uint32_t>& characters) {
  const auto class_of = [](uint32_t character) { return character >> kClassShift; };
  const auto is_before = [&](uint32_t a, uint32_t b) { return class_of(a) < class_of(b); };
  const auto end = characters.end();
  const auto is_mark = [&](uint32_t c) { return class_of(c) != 0; };
  for (auto run = std::find_if(characters.begin(), end, is_mark); run != end;) {
    const auto run_end = std::find_if_not(run, end, is_mark);
    if (static_cast<size_t>(run_end - run) > kShortRun) {
      std::stable_sort(run, run_end, is_before);
    } else {
      for (auto next = run + 1; next < run_end; ++next) {
        std::rotate(std::upper_bound(run, next, *next, is_before), next, next + 1);
      }
    }
    run = std::find_if(run_end, end, is_mark);
  }
}

// Composes each starter with the following characters, as long as nothing blocks it.
void compose_all(std::vector<uint32_t>& characters) {
  constexpr size_t kNone = SIZE_MAX;
  size_t starter = kNone;
  size_t kept = 0;
  uint32_t last_class = 0;  // of the last character kept after the starter, 0 without one
  for (const uint32_t character : characters) {
    const uint32_t combining_class = character >> kClassShift;
    if (starter != kNone) {
      const bool is_next = kept == starter + 1;
      if (is_next || (last_class != 0 && last_class < combining_class)) {
        const uint32_t made = compose(characters[starter], character & kCodePointMask);
        if (made != 0) {
          characters[starter] = made;
          continue;
        }
      }
    }
    if (combining_class == 0) starter = kept;
    last_class = combining_class;
    characters[kept++] = character;
  }
  characters.resize(kept);
}

}  // namespace

Normalizer::Normalizer(NormalizationForm form, bool quotes)
    : form_(form), quotes_(quotes), boundary_(kCharacter), stable_(0) {
  if (form == NormalizationForm::nfc) {
    boundary_ = kNfcBoundary;
    stable_ = kNfcStable;
  } else if (form == NormalizationForm::nfkc) {
    boundary_ = kNfkcBoundary;
    stable_ = kNfkcStable;
  }
}

size_t Normalizer::growth() const {
  if (map_ != nullptr) return map_->growth();
  if (form_ == NormalizationForm::none) return 1;
  return form_ == NormalizationForm::nfc ? kCanonicalGrowth : kCompatibleGrowth;
}

Normalizer::Stretch Normalizer::find_change(const uint8_t* text, size_t size, size_t from) const {
  size_t settled = from;
  uint32_t starter = 0;      // the last one, 0 if none follows `from` or an invalid byte
  bool is_composed = false;  // true if marks could come between its parts
  uint8_t last_class = 0;
  for (size_t pos = from; pos < size;) {
    const size_t run_end = ascii_run_end(text, size, pos);
    if (run_end != pos) {
      settled = run_end - 1;
      starter = text[settled];
      is_composed = false;
      last_class = 0;
      pos = run_end;
      if (pos == size) break;
    }
    const DecodedCharacter character = decode_utf8(text + pos, size - pos);
    const size_t next = pos + character.size;
    if (character.code_point == kInvalidCodePoint) {
      settled = next;
      starter = 0;
      is_composed = false;
      last_class = 0;
      pos = next;
      continue;
    }
    const NormalizationRecord& record = normalization_record(character.code_point);
    if ((record.flags & boundary_) != 0) {
      settled = pos;
      if (quotes_ && (record.flags & kQuote) != 0) return {settled, pos};
    } else {
      const bool is_stable = (record.flags & stable_) != 0 &&
                             (record.combining_class == 0 || record.combining_class >= last_class);
      if (!is_stable) return {settled, pos};
      if ((record.flags & kComposes) != 0 &&
          (is_composed || compose(starter, character.code_point) != 0)) {
        return {settled, pos};
      }
    }
    if (record.combining_class == 0) {
      starter = character.code_point;
      is_composed = record.canonical_length != 0;
    }
    last_class = record.combining_class;
    pos = next;
  }
  return {size, size};
}

size_t Normalizer::next_boundary(const uint8_t* text, size_t size, size_t from) const {
  size_t pos = from;
  while (pos < size && text[pos] >= 0x80) {
    const DecodedCharacter character = decode_utf8(text + pos, size - pos);
    if (character.code_point == kInvalidCodePoint ||
        (normalization_record(character.code_point).flags & boundary_) != 0) {
      break;
    }
    pos += character.size;
  }
  return pos;
}

void Normalizer::normalize(const uint8_t* text, size_t size, std::string& out) const {
  if (map_ != nullptr) return map_->apply(text, size, out);
  if (size != 0) normalize_from(find_change(text, size, 0), text, size, out);
}

std::string_view Normalizer::normalized(std::string_view text, std::string& buffer) const {
  if (!is_active() || text.empty()) return text;
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  if (map_ != nullptr) {
    buffer.clear();
    map_->apply(bytes, text.size(), buffer);
    return buffer;
  }
  const Stretch first = find_change(bytes, text.size(), 0);
  if (first.settled == text.size()) return text;
  buffer.clear();
  normalize_from(first, bytes, text.size(), buffer);
  return buffer;
}

// `found`: the result of find_change for the start of the text.
void Normalizer::normalize_from(Stretch found, const uint8_t* text, size_t size,
                                std::string& out) const {
  std::vector<uint32_t> scratch;
  for (size_t pos = 0;; found = find_change(text, size, pos)) {
    out.append(reinterpret_cast<const char*>(text) + pos, found.settled - pos);
    if (found.settled == size) return;
    const size_t character = decode_utf8(text + found.changes, size - found.changes).size;
    pos = next_boundary(text, size, found.changes + character);
    normalize_stretch(text + found.settled, pos - found.settled, scratch, out);
  }
}

// The text is valid, and each end is a boundary or an end of the whole text.
void Normalizer::normalize_stretch(const uint8_t* text, size_t size, std::vector<uint32_t>& scratch,
                                   std::string& out) const {
  scratch.clear();
  for (size_t pos = 0; pos < size;) {
    const DecodedCharacter character = decode_utf8(text + pos, size - pos);
    decompose(character.code_point, scratch);
    pos += character.size;
  }
  if (form_ != NormalizationForm::none) {
    order(scratch);
    compose_all(scratch);
  }
  for (const uint32_t character : scratch) {
    const uint32_t code_point = character & kCodePointMask;
    append_utf8(quotes_ ? ascii_quote(code_point) : code_point, out);
  }
}

void Normalizer::decompose(uint32_t code_point, std::vector<uint32_t>& out) const {
  if (form_ == NormalizationForm::none) {
    out.push_back(code_point);
    return;
  }
  if (code_point - kSyllables < kNumSyllables) {
    const uint32_t index = code_point - kSyllables;
    out.push_back(kLeads + index / (kNumVowels * kNumTails));
    out.push_back(kVowels + index / kNumTails % kNumVowels);
    if (index % kNumTails != 0) out.push_back(kBeforeTails + index % kNumTails);
    return;
  }
  const auto add = [&](uint32_t part) {
    out.push_back(uint32_t{normalization_record(part).combining_class} << kClassShift | part);
  };
  const NormalizationRecord& record = normalization_record(code_point);
  const bool is_nfc = form_ == NormalizationForm::nfc;
  const size_t length = is_nfc ? record.canonical_length : record.compatible_length;
  if (length == 0) return add(code_point);
  const uint32_t* const parts = kDecompositions + (is_nfc ? record.canonical : record.compatible);
  for (size_t i = 0; i < length; ++i) add(parts[i]);
}

bool Normalizer::is_fixed(uint32_t code_point) const {
  if (map_ != nullptr) return false;
  const uint8_t flags = normalization_record(code_point).flags;
  return (flags & boundary_) != 0 && !(quotes_ && (flags & kQuote) != 0);
}

}  // namespace bpe
