// Learning the merges of byte-pair encoding from counted words (pre-tokens).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bpe {

// Which of equally frequent pairs is merged first.
enum class TieBreak {
  lexicographic,  // the greatest (bytes of left, bytes of right)
  first_id,       // the smallest (left symbol, right symbol)
  huggingface,    // as first_id, single bytes ordered by GPT-2's printable stand-ins
};

enum class StopReason { vocab_size_reached, below_min_frequency, no_pairs_left };

struct MergeLearnerOptions {
  TieBreak tie_break = TieBreak::lexicographic;
  int64_t min_frequency = 1;   // of a pair; a pair of count 0 is never merged
  size_t max_token_bytes = 0;  // 0: no limit
  std::vector<std::string> forbidden_tokens;
};

// Symbols 0 to 255 are the bytes; 256 and on are new byte sequences in the order they were made.
struct LearnedMerge {
  uint32_t left, right, result;
  int64_t count;  // of the pair when it was merged, overlapping occurrences included
};

// Merges the most frequent adjacent pair again and again. Pairs whose result would be longer than
// max_token_bytes or is a forbidden token are passed over. A result whose bytes are a symbol
// already is that symbol: the merge is recorded and adds none.
class MergeLearner {
 public:
  // Word i is keys[offsets[i], offsets[i + 1]) and occurs counts[i] > 0 times. Words need be
  // neither sorted nor unique; they are copied. Throws std::invalid_argument for counts below 1 or
  // descending offsets, std::overflow_error if a pair's count would exceed 2^63 - 1.
  MergeLearner(const uint8_t* keys, const int64_t* offsets, const int64_t* counts, size_t n,
               MergeLearnerOptions options);
  ~MergeLearner();
  MergeLearner(MergeLearner&&) noexcept;
  MergeLearner& operator=(MergeLearner&&) noexcept;

  // Makes a given merge, also one that options would not allow or that does not occur, and records
  // it like a learned one. Throws std::invalid_argument if a symbol does not exist yet.
  void apply(uint32_t left, uint32_t right);

  // Learns until `symbols` symbols exist or `max_steps` merges were made in this call. False when
  // nothing more can be learned for this number of symbols; stop_reason says why.
  bool learn(size_t symbols, size_t max_steps);

  const std::vector<LearnedMerge>& merges() const;
  std::string symbol(
      uint32_t id) const;  // its bytes; throws std::invalid_argument if there is none
  size_t num_symbols() const;
  size_t symbol_bytes() const;     // of all symbols together
  StopReason stop_reason() const;  // of the last call of learn that returned false
  size_t memory_bytes() const;     // allocated now

  class Engine;

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace bpe
