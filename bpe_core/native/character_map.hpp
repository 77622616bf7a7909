// The table of characters to be replaced in a SentencePiece `.model`, and its rule for spaces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bpe {

class CharacterMap {
 public:
  // table: `precompiled_charsmap`, a trie in Darts' double array and the texts that replace, each
  // with a zero behind it; may be empty. remove_spaces: `remove_extra_whitespaces`, without spaces
  // at both ends of a text and without all but the first of several. Throws std::invalid_argument.
  CharacterMap(std::string_view table, bool remove_spaces);

  bool removes_spaces() const { return remove_spaces_; }
  // The maximum number of bytes that a byte of text becomes.
  size_t growth() const { return longest_; }
  // Appends a text with its characters replaced.
  void apply(const uint8_t* text, size_t size, std::string& out) const;

 private:
  struct Prefix {
    std::string_view written;
    size_t size;  // in the text
  };

  // What the beginning of a text that is not empty becomes: the longest key in the trie, or one
  // character, which stays as it is.
  Prefix replace_prefix(const uint8_t* text, size_t size) const;

  std::vector<uint32_t> trie_;
  std::string texts_;
  size_t longest_ = 1;
  bool remove_spaces_;
};

}  // namespace bpe
