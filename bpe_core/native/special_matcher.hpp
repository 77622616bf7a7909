// Finding special tokens in text: leftmost, and of those that begin at one place the longest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bpe {

struct SpecialMatch {
  size_t begin;
  size_t end;
  uint32_t index;  // of the token, in the order given
};

class SpecialMatcher {
 public:
  SpecialMatcher() = default;
  // Tokens must be non-empty and distinct; std::invalid_argument otherwise.
  explicit SpecialMatcher(std::vector<std::string> tokens);

  // The first match that begins at or after `from`, wholly inside text[0, size).
  bool find(const uint8_t* text, size_t size, size_t from, SpecialMatch& match) const;

  // visit(begin, end) for what stands between special tokens, in order; also for empty parts.
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
  size_t max_bytes() const { return max_bytes_; }
  const std::vector<std::string>& tokens() const { return tokens_; }

 private:
  bool match_at(const uint8_t* text, size_t size, size_t at, SpecialMatch& match) const;

  std::vector<std::string> tokens_;
  std::vector<uint32_t> sorted_;                  // indices, in the order of the tokens' bytes
  std::array<uint32_t, 257> first_of_byte_ = {};  // where those of each first byte begin
  int only_first_byte_ = -1;                      // when all tokens begin alike: search by memchr
  size_t max_bytes_ = 0;
};

}  // namespace bpe
