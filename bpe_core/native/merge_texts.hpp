// The merges of a tokenizer.json: hundreds of thousands of pairs of texts, read without an object
// for each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace bpe {

// Byte strings bytes[offsets[i], offsets[i + 1]).
struct KeySpans {
  const uint8_t* bytes;
  const int64_t* offsets;
  size_t n;
};

// Returns true if two of the keys are equal.
bool has_equal_keys(const KeySpans& keys);

// Both sides of each merge as they stand in the file, in UTF-8.
class MergeTexts {
 public:
  // The ids (left, right, result) of each merge; of equal pairs the last counts. nullopt if a side
  // or what both make is none of the tokens. stand_ins: sides are in GPT-2's printable stand-ins of
  // the tokens' bytes. ids: of the tokens.
  std::optional<std::vector<int64_t>> rows(const KeySpans& tokens, const int64_t* ids,
                                           bool stand_ins) const;

  size_t size() const { return ends_.size() / 2; }
  void add(size_t left_end) {
    ends_.push_back(left_end);
    ends_.push_back(texts_.size());
  }
  std::vector<uint8_t>& texts() { return texts_; }

 private:
  std::vector<uint8_t> texts_;
  std::vector<size_t> ends_;  // of the sides, left and right in turn
};

struct FoundMerges {
  size_t begin;  // of the array in the file
  size_t end;
  MergeTexts merges;
};

// Reads the array at model.merges of a JSON object: each item "left right" or ["left", "right"].
// nullopt if it is not found or has anything else; then a reader of all JSON has to say why.
std::optional<FoundMerges> find_merges(const uint8_t* json, size_t size);

// The large parts of a tokenizer.json, as places in the file.
struct TokenizerOutline {
  size_t vocab_begin = 0;  // of the object model.vocab
  size_t vocab_end = 0;
  size_t merges_begin = 0;  // of the array model.merges
  size_t merges_end = 0;
  int64_t largest_id = -1;  // in model.vocab
};

// Finds them without reading the merges. nullopt if something is missing or has an unusual form.
std::optional<TokenizerOutline> outline_of(const uint8_t* json, size_t size);

}  // namespace bpe
