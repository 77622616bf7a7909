// Finding special tokens in text: leftmost, and of those that begin at one place the longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bpe {

struct SpecialMatch {
  size_t begin;
  size_t end;
  uint32_t index;  // of the token, in the order given
};

// Flags of a token's search, as of Hugging Face's added tokens.
enum TokenFlags : uint8_t {
  kTakesSpaceBefore = 1,  // lstrip: white space before it belongs to it
  kTakesSpaceAfter = 2,   // rstrip
  kSingleWord = 4,        // only where no character of a word is beside it
};

// Code points in ranges [first, second), ascending.
using CodePointRanges = std::vector<std::pair<uint32_t, uint32_t>>;

class SpecialMatcher {
 public:
  SpecialMatcher() = default;
  // Tokens must be non-empty and distinct; std::invalid_argument otherwise. flags: of the tokens,
  // or none at all. word_characters: for kSingleWord.
  explicit SpecialMatcher(std::vector<std::string> tokens, std::vector<uint8_t> flags = {},
                          CodePointRanges word_characters = {});

  // The first match that begins at or after `from`, wholly inside text[0, size), with the white
  // space that the token takes. `from` is the end of a match, or 0.
  bool find(const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const {
    for (size_t at = from; find_plain(text, size, at, match); at = match.end) {
      if (flags_.empty() || widen(text, size, from, match)) return true;
    }
    return false;
  }

  // Calls visit(begin, end) for each part between special tokens, in order, including empty ones.
  template <class Visit>
  void for_each_part(const uint8_t* text, size_t size, Visit visit) const {
    size_t begin = 0;
    SpecialMatch match;
    while (find(text, size, begin, match)) {
      visit(begin, match.begin);
      begin = match.end;
    }
    visit(begin, size);
  }

  bool empty() const { return tokens_.empty(); }
  bool has_flags() const { return !flags_.empty(); }
  size_t max_bytes() const { return max_bytes_; }
  const std::vector<std::string>& tokens() const { return tokens_; }

  // Returns true if a token may span or look across the position between these two bytes, unseen by
  // a find() that starts later in the text.
  bool binds(uint8_t before, uint8_t after) const {
    return !bound_.empty() && (bound_[before << 2 | after >> 6] >> (after & 63) & 1) != 0;
  }
  // Has binds() tell of a token that is looked for otherwise than by find().
  void bind(std::string_view token, uint8_t flags);

 private:
  bool find_plain(const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const;
  bool match_at(const uint8_t* text, size_t size, size_t at, SpecialMatch& match) const;
  size_t find_in_blocks(const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const;
  bool widen(const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const;
  bool is_word_character(uint32_t code_point) const;
  void bind_pair(uint8_t before, uint8_t after) {
    bound_[before << 2 | after >> 6] |= uint64_t{1} << (after & 63);
  }
  void bind_spaces();

  // A set of bytes, by the lower and the upper half of each.
  struct ByteSet {
    alignas(16) std::array<uint8_t, 16> low_rows = {};   // of bytes below 0x80, by lower half
    alignas(16) std::array<uint8_t, 16> high_rows = {};  // of the others
    void add(uint8_t byte) {
      (byte < 0x80 ? low_rows : high_rows)[byte & 15] |= static_cast<uint8_t>(1 << (byte >> 4 & 7));
    }
  };

  std::vector<std::string> tokens_;
  std::vector<uint8_t> flags_;  // empty if no token has any
  CodePointRanges word_characters_;
  std::vector<uint32_t> sorted_;                  // indices, in the order of the tokens' bytes
  std::array<uint32_t, 257> first_of_byte_ = {};  // where those of each first byte begin
  int only_first_byte_ = -1;                      // when all tokens begin alike: search by memchr
  bool has_blocks_ = false;  // whether find_in_blocks may be called; then these are the bytes
  ByteSet first_bytes_;      // that tokens begin with
  ByteSet second_bytes_;     // that come second
  size_t max_bytes_ = 0;
  std::vector<uint64_t> bound_;  // a bit for each pair of bytes, or nothing
};

// Tokens to find: some in the text as it is, others in the normalized text between those; with
// their ids.
struct SpecialTokens {
  SpecialMatcher matcher;
  std::vector<uint32_t> ids;
  SpecialMatcher normalized;
  std::vector<uint32_t> normalized_ids;
};

}  // namespace bpe
