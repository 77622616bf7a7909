#include "character_map.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "utf8.hpp"

namespace bpe {
namespace {

// Units of Darts' double array.
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FF; }
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

// Those of SentencePiece's own rules have 33 bytes at most. A trie with a circle has longer keys.
constexpr size_t kLongestText = 1024;
constexpr size_t kLongestKey = 1024;

constexpr std::string_view kSpaceSign = "\u2581";

}  // namespace

CharacterMap::CharacterMap(std::string_view table, bool remove_spaces)
    : remove_spaces_(remove_spaces) {
  if (table.empty()) return;
  uint32_t size = 0;
  if (table.size() >= sizeof size) std::memcpy(&size, table.data(), sizeof size);
  if (size == 0 || size % sizeof(uint32_t) != 0 || size > table.size() - sizeof size ||
      table.back() != '\0') {
    throw std::invalid_argument("a table of characters must have a trie and texts");
  }
  trie_.resize(size / sizeof(uint32_t));
  std::memcpy(trie_.data(), table.data() + sizeof size, size);
  texts_ = table.substr(sizeof size + size);
  for (size_t begin = 0; begin < texts_.size();) {
    const size_t end = texts_.find('\0', begin);
    longest_ = std::max(longest_, end - begin);
    begin = end + 1;
  }
  if (texts_.empty()) throw std::invalid_argument("a table of characters must have texts");
  if (longest_ > kLongestText) {
    throw std::invalid_argument("a table of characters must have texts of at most 1,024 bytes");
  }
}

CharacterMap::Prefix CharacterMap::replace_prefix(const uint8_t* text, size_t size) const {
  const char* const source = reinterpret_cast<const char*>(text);
  const size_t character = decode_utf8(text, size).size;
  Prefix found = {{source, character}, character};
  if (trie_.empty()) return found;
  size_t at = offset_of(trie_[0]);
  for (size_t i = 0; i < std::min(size, kLongestKey); ++i) {
    at ^= text[i];
    if (at >= trie_.size() || label_of(trie_[at]) != text[i]) break;
    const uint32_t unit = trie_[at];
    at ^= offset_of(unit);
    if (!has_leaf(unit)) continue;
    if (at >= trie_.size()) break;
    const uint32_t place = value_of(trie_[at]);
    if (place >= texts_.size()) break;
    found = {texts_.data() + place, i + 1};
  }
  return found;
}

void CharacterMap::apply(const uint8_t* text, size_t size, std::string& out) const {
  const size_t begin = out.size();
  bool after_space = remove_spaces_;
  for (size_t at = 0; at < size;) {
    Prefix prefix = replace_prefix(text + at, size - at);
    at += prefix.size;
    while (after_space && prefix.written.starts_with(' ')) prefix.written.remove_prefix(1);
    out.append(prefix.written);
    if (!prefix.written.empty()) after_space = remove_spaces_ && prefix.written.ends_with(' ');
  }
  if (!remove_spaces_) return;
  for (;;) {
    const std::string_view written = std::string_view(out).substr(begin);
    const size_t size_of_space =
        written.ends_with(' ') ? 1 : (written.ends_with(kSpaceSign) ? kSpaceSign.size() : 0);
    if (size_of_space == 0) return;
    out.resize(out.size() - size_of_space);
  }
}

}  // namespace bpe
