// Encoding by the longest tokens, either from left to right or the longest of all first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpe {

// The role of the byte kWordEnd: a gap between words, a separate symbol with which tokens may end,
// or a part of the character before it.
enum class WordEndMeaning { gap, symbol, suffix };

// The tokens that begin at a position of a text are found by an automaton of Aho and Corasick over
// the reversed tokens, which reads the text backwards. Source: A. Aho, M. Corasick, Efficient
// String Matching: An Aid to Bibliographic Search, 1975.
class LongestMatcher {
 public:
  static constexpr int64_t kUnknown = -1;

  // Token i is keys[offsets[i], offsets[i + 1]), of whole characters, with kWordEnd only at its
  // end; of equal tokens, the first counts. Their order is that of longest_first, and must be by
  // number of characters (kWordEnd counts as one), the longest first.
  LongestMatcher(const uint8_t* keys, const int64_t* offsets, const int64_t* ids, size_t n,
                 WordEndMeaning word_end);

  // Both take text in the form of mark_words and append the ids of its documents text[starts[i],
  // ends[i]), which are adjacent; ends_ids[i] becomes the number of ids after document i.
  // special_ids: by index. A character that no token covers is kUnknown.

  // The longest token at each position. Time is linear in the size of the text.
  void left_to_right(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                     size_t num_documents, const std::vector<int64_t>& special_ids,
                     std::vector<int64_t>& ids, int64_t* ends_ids) const;

  // In each word, the first token of the order that occurs anywhere in it, leftmost first; then the
  // next one in the rest of the word, and so on.
  void longest_first(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                     size_t num_documents, const std::vector<int64_t>& special_ids,
                     std::vector<int64_t>& ids, int64_t* ends_ids) const;

 private:
  static constexpr uint32_t kRoot = 0;
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kBlockBytes = 1 << 16;

  struct Edge {
    uint64_t key;  // node << 8 | byte, plus 1; 0 is free
    uint32_t child;
  };
  struct LongestFirstScratch;

  uint32_t child_of(uint32_t node, uint8_t byte) const;
  uint32_t step(uint32_t node, uint8_t byte) const;
  void add_edge(uint32_t node, uint8_t byte, uint32_t child);
  void find_matches(const uint8_t* text, size_t begin, size_t end, size_t from,
                    std::vector<uint32_t>& matches) const;
  uint32_t allowed_match(const uint8_t* text, size_t pos, uint32_t match, size_t size) const;
  size_t unknown_end(const uint8_t* text, size_t pos, size_t size) const;
  void add_unknown(const uint8_t* text, size_t& pos, size_t size, std::vector<int64_t>& ids) const;
  void encode_word(const uint8_t* word, size_t size, LongestFirstScratch& scratch,
                   std::vector<int64_t>& ids) const;

  WordEndMeaning word_end_;
  size_t longest_ = 1;  // token, in bytes
  std::vector<Edge> edges_;
  size_t edge_mask_ = 0;
  // For each node; matches are nodes that end a reversed token, kRoot if there is no such node.
  std::vector<uint32_t> fail_;
  std::vector<uint32_t> match_;  // the longest token that is a suffix of the node's string
  std::vector<uint32_t> token_;  // the token that ends at the node, or kNone
  // For each token.
  std::vector<uint32_t> lengths_;
  std::vector<int64_t> ids_;
};

}  // namespace bpe
