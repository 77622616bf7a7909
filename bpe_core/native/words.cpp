#include "words.hpp"

#include <algorithm>
#include <cstring>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "bert_classes.hpp"
#include "scanner_portable.hpp"
#include "utf8.hpp"

namespace bpe {
namespace {

// The classes of all code points in pages, made from the ranges.
class BertClasses {
 public:
  BertClasses() {
    for (const BertRange& range : kBertRanges) {
      std::fill(classes_.begin() + range.first, classes_.begin() + range.last + 1, range.kind);
    }
  }
  BertKind of(uint32_t code_point) const { return classes_[code_point]; }

 private:
  std::vector<BertKind> classes_ = std::vector<BertKind>(0x110000, BertKind::letter);
};

const BertClasses& bert_classes() {
  static const BertClasses classes;
  return classes;
}

// Copies text[pos, end); for short pieces, up to kSlack more bytes may be written.
constexpr size_t kSlack = 16;
uint8_t* copy_piece(const uint8_t* text, size_t size, size_t pos, size_t end, uint8_t* out) {
  if (end - pos <= kSlack && size - pos >= kSlack) {
    std::memcpy(out, text + pos, kSlack);
  } else {
    std::memcpy(out, text + pos, end - pos);
  }
  return out + (end - pos);
}

uint8_t* mark_whitespace(const uint8_t* text, size_t size, uint8_t* out) {
  size_t pos = 0;
  while (pos < size) {
    const size_t end = word_end(text, size, pos);
    if (end > pos) {
      out = copy_piece(text, size, pos, end, out);
      *out++ = kWordEnd;
    }
    pos = end < size ? word_space_end(text, size, end) : end;
  }
  return out;
}

uint8_t* mark_bert(const uint8_t* text, size_t size, uint8_t* out) {
  const BertClasses& classes = bert_classes();
  bool in_word = false;
  for (size_t pos = 0; pos < size;) {
    const DecodedCharacter character = decode_utf8(text + pos, size - pos);
    const BertKind kind = character.code_point == kInvalidCodePoint
                              ? BertKind::letter
                              : classes.of(character.code_point);
    if (in_word && (kind == BertKind::space || kind == BertKind::alone)) {
      *out++ = kWordEnd;
      in_word = false;
    }
    if (kind == BertKind::letter || kind == BertKind::alone) {
      for (size_t i = 0; i < character.size; ++i) *out++ = text[pos + i];
      in_word = kind == BertKind::letter;
      if (!in_word) *out++ = kWordEnd;
    }
    pos += character.size;
  }
  if (in_word) *out++ = kWordEnd;
  return out;
}

void mark_segment(const uint8_t* text, size_t size, WordRule rule, ByteBuffer& marked) {
  if (size == 0) return;
  // BERT's words may be of one byte each.
  marked.reserve_more((rule == WordRule::bert ? 2 * size : size + 1) + kSlack);
  uint8_t* const begin = marked.end();
  uint8_t* out = begin;
  switch (rule) {
    case WordRule::whitespace:
      out = mark_whitespace(text, size, begin);
      break;
    case WordRule::bert:
      out = mark_bert(text, size, begin);
      break;
    case WordRule::whole:
      std::memcpy(begin, text, size);
      begin[size] = kWordEnd;
      out = begin + size + 1;
      break;
  }
  marked.advance(static_cast<size_t>(out - begin));
}

// End of the run of printable ASCII from pos, as far as 16 bytes at a time show it.
size_t skip_ascii(const uint8_t* text, size_t size, size_t pos) {
#if defined(__SSE2__)
  while (pos + 16 <= size) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + pos));
    // As signed bytes, those above ASCII are also below the space.
    const __m128i stops = _mm_cmplt_epi8(bytes, _mm_set1_epi8(0x21));
    const uint32_t mask = static_cast<uint32_t>(_mm_movemask_epi8(stops));
    if (mask != 0) return pos + static_cast<size_t>(__builtin_ctz(mask));
    pos += 16;
  }
#endif
  return pos;
}

}  // namespace

size_t word_end(const uint8_t* text, size_t size, size_t pos) {
  for (;;) {
    pos = skip_ascii(text, size, pos);
    if (pos >= size) return size;
    const ClassifiedCharacter character = classify(text, size, pos);
    if (is_word_space(character.char_class, text[pos])) return pos;
    pos += character.size;
    if (pos >= size) return size;
  }
}

size_t word_space_end(const uint8_t* text, size_t size, size_t pos) {
  while (pos < size) {
    const ClassifiedCharacter character = classify(text, size, pos);
    if (!is_word_space(character.char_class, text[pos])) break;
    pos += character.size;
  }
  return pos;
}

size_t word_or_space_end(const uint8_t* text, size_t size, size_t pos) {
  const size_t end = word_end(text, size, pos);
  return end > pos ? end : word_space_end(text, size, pos);
}

size_t marked_word_end(const uint8_t* text, size_t size, size_t pos) {
  const void* const found = std::memchr(text + pos, kWordEnd, size - pos);
  return found == nullptr ? size
                          : static_cast<size_t>(static_cast<const uint8_t*>(found) - text) + 1;
}

void mark_words(const uint8_t* text, size_t size, WordRule rule, const SpecialMatcher& specials,
                ByteBuffer& marked) {
  size_t begin = 0;
  SpecialMatch match;
  while (specials.find(text, size, begin, match)) {
    mark_segment(text + begin, match.begin - begin, rule, marked);
    const uint32_t index = static_cast<uint32_t>(match.index);
    for (const uint32_t byte : {uint32_t{kSpecialMark}, index >> 16, index >> 8, index}) {
      marked.push_back(static_cast<uint8_t>(byte));
    }
    begin = match.end;
  }
  mark_segment(text + begin, size - begin, rule, marked);
}

}  // namespace bpe
