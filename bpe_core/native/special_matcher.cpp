#include "special_matcher.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <stdexcept>

namespace bpe {

SpecialMatcher::SpecialMatcher(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {
  std::set<std::string> seen;
  for (const std::string& token : tokens_) {
    if (token.empty()) throw std::invalid_argument("a special token must not be empty");
    if (!seen.insert(token).second) {
      throw std::invalid_argument("special token given twice: " + token);
    }
    max_bytes_ = std::max(max_bytes_, token.size());
  }
  sorted_.resize(tokens_.size());
  std::iota(sorted_.begin(), sorted_.end(), 0u);
  std::ranges::sort(sorted_, {},
                    [&](uint32_t index) -> const std::string& { return tokens_[index]; });
  const auto first_byte = [&](uint32_t index) { return static_cast<uint8_t>(tokens_[index][0]); };
  for (uint32_t index : sorted_) ++first_of_byte_[first_byte(index) + 1];
  std::partial_sum(first_of_byte_.begin(), first_of_byte_.end(), first_of_byte_.begin());
  if (!tokens_.empty() && first_byte(sorted_.front()) == first_byte(sorted_.back())) {
    only_first_byte_ = first_byte(sorted_.front());
  }
}

bool SpecialMatcher::match_at(const uint8_t* text, size_t size, size_t at,
                              SpecialMatch& match) const {
  // The tokens that begin with the `length` bytes at this place: fewer with each byte, however many
  // begin alike.
  const uint32_t* first = sorted_.data() + first_of_byte_[text[at]];
  const uint32_t* last = sorted_.data() + first_of_byte_[text[at] + 1];
  bool found = false;
  for (size_t length = 1; first != last; ++length) {
    if (tokens_[*first].size() == length) {
      match = {at, at + length, *first++};
      found = true;
    }
    if (length == size - at) break;
    if (last - first == 1) {
      const std::string& token = tokens_[*first];
      if (token.size() > size - at || std::memcmp(text + at, token.data(), token.size()) != 0)
        break;
      match = {at, at + token.size(), *first};
      return true;
    }
    const auto next = std::ranges::equal_range(
        first, last, text[at + length], {},
        [&](uint32_t index) { return static_cast<uint8_t>(tokens_[index][length]); });
    first = next.begin();
    last = next.end();
  }
  return found;
}

bool SpecialMatcher::find(const uint8_t* text, size_t size, size_t from,
                          SpecialMatch& match) const {
  if (tokens_.empty()) return false;
  if (only_first_byte_ >= 0) {
    while (from < size) {
      const void* hit = std::memchr(text + from, only_first_byte_, size - from);
      if (hit == nullptr) return false;
      const size_t at = static_cast<size_t>(static_cast<const uint8_t*>(hit) - text);
      if (match_at(text, size, at, match)) return true;
      from = at + 1;
    }
    return false;
  }
  for (; from < size; ++from) {
    if (first_of_byte_[text[from]] == first_of_byte_[text[from] + 1]) continue;
    if (match_at(text, size, from, match)) return true;
  }
  return false;
}

}  // namespace bpe
