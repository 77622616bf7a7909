// Words of character-level tokenizers: text becomes words, each followed by a special byte.
#pragma once

#include <cstddef>
#include <cstdint>

#include "id_buffer.hpp"
#include "special_matcher.hpp"
#include "unicode_tables.hpp"

namespace bpe {

using ByteBuffer = IdBuffer<uint8_t>;

// Neither byte occurs in UTF-8. A special token is kSpecialMark and its index in 3 bytes.
inline constexpr uint8_t kWordEnd = 0xFF;
inline constexpr uint8_t kSpecialMark = 0xFE;
inline constexpr size_t kSpecialMarkBytes = 4;

// whitespace: the text between whitespace, like Python's str.split.
// bert: like Hugging Face's BertNormalizer (without lower case) and BertPreTokenizer together:
//   control characters vanish, punctuation and Chinese characters are separate words.
// whole: the whole text.
enum class WordRule { whitespace, bert, whole };

// Whitespace for str.split: the property White_Space, and U+001C to U+001F.
inline bool is_word_space(uint8_t char_class, uint8_t first_byte) {
  return (char_class & kWhiteSpace) != 0 || (first_byte >= 0x1C && first_byte <= 0x1F);
}

// End of the run from pos of characters that are whitespace, or of those that are not; pos < size.
size_t word_space_end(const uint8_t* text, size_t size, size_t pos);
size_t word_end(const uint8_t* text, size_t size, size_t pos);

// The pre-tokens of the patterns whitespace_words and marked_words; pos < size.
size_t word_or_space_end(const uint8_t* text, size_t size, size_t pos);
size_t marked_word_end(const uint8_t* text, size_t size, size_t pos);

// Appends the words of text[0, size), each followed by kWordEnd, and the special tokens in it. No
// word is empty, and none extends over a special token.
void mark_words(const uint8_t* text, size_t size, WordRule rule, const SpecialMatcher& specials,
                ByteBuffer& marked);

}  // namespace bpe
