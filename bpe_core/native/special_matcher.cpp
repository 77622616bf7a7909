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
  longest_first_.resize(tokens_.size());
  std::iota(longest_first_.begin(), longest_first_.end(), 0u);
  const auto first_byte = [&](uint32_t index) { return static_cast<uint8_t>(tokens_[index][0]); };
  std::stable_sort(longest_first_.begin(), longest_first_.end(), [&](uint32_t a, uint32_t b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return tokens_[a].size() > tokens_[b].size();
  });
  for (uint32_t index : longest_first_) ++first_of_byte_[first_byte(index) + 1];
  std::partial_sum(first_of_byte_.begin(), first_of_byte_.end(), first_of_byte_.begin());
  if (!tokens_.empty() && first_byte(longest_first_.front()) == first_byte(longest_first_.back())) {
    only_first_byte_ = first_byte(longest_first_.front());
  }
}

bool SpecialMatcher::match_at(const uint8_t* text, size_t size, size_t at,
                              SpecialMatch& match) const {
  const uint8_t byte = text[at];
  for (uint32_t i = first_of_byte_[byte]; i < first_of_byte_[byte + 1]; ++i) {
    const std::string& token = tokens_[longest_first_[i]];
    if (token.size() <= size - at && std::memcmp(text + at, token.data(), token.size()) == 0) {
      match = {at, at + token.size(), longest_first_[i]};
      return true;
    }
  }
  return false;
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
    if (match_at(text, size, from, match)) return true;
  }
  return false;
}

}  // namespace bpe
