// Files of tokenizers, as text: vocabularies, merges and ranks, written without an object for each
// token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "merge_texts.hpp"

namespace bpe {

// Texts text[offsets[i], offsets[i + 1]), in UTF-8.
struct TokenTexts {
  std::string text;
  std::vector<int64_t> offsets;
};

// Returns GPT-2's printable stand-ins of the bytes of tokens.
TokenTexts stand_ins_of(const KeySpans& tokens);

// Token i has ids[i]; the functions below write it as Python's json module does, without escapes of
// characters outside of ASCII.

// Returns {"text": id, ...}, in the order of rows.
std::string vocabulary_json(const KeySpans& texts, const int64_t* ids, const int64_t* rows,
                            size_t num_rows);

// The sides of merges, as rows of the texts.
struct MergeSides {
  const int64_t* left;
  const int64_t* right;
  size_t n;
};

// Returns [["left", "right"], ...].
std::string merges_json(const KeySpans& texts, const MergeSides& merges);

// Returns a line "left right" for each merge.
std::string merge_lines(const KeySpans& texts, const MergeSides& merges);

// Returns a line for each token: its bytes in base64, a space, and its id.
std::string rank_lines(const KeySpans& tokens, const int64_t* ids);

}  // namespace bpe
