// Learning of byte-pair merges from counted words (pre-tokens).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bpe {

// The choice among equally frequent pairs.
enum class TieBreak {
  lexicographic,  // the greatest (bytes of left, bytes of right)
  first_id,       // the smallest (left symbol, right symbol)
  huggingface,    // like first_id, with single bytes first, ordered by GPT-2's printable stand-ins
  stand_ins,      // the greatest (left, right), with all bytes as GPT-2's printable stand-ins
  first_seen,     // the first occurrence in the words as merged so far, in the given order
};

enum class StopReason { vocab_size_reached, below_min_frequency, no_pairs_left };

struct MergeLearnerOptions {
  TieBreak tie_break = TieBreak::lexicographic;
  int64_t min_frequency = 1;   // of a pair; a pair of count 0 is never merged
  size_t max_token_bytes = 0;  // 0: no limit
  std::vector<std::string> forbidden_tokens;
  bool forbid_whitespace_tokens = false;  // results of only whitespace and control characters
  size_t max_initial_symbols = 0;         // in a token; 0: no limit
  bool always_new = false;  // a merge makes a new symbol even if there is one with these bytes
};

// Symbols are numbered: first the initial ones, then new ones in the order of their creation.
struct LearnedMerge {
  uint32_t left, right, result;
  int64_t count;         // of the pair when it was merged, overlapping occurrences included
  int64_t applied = -1;  // the occurrences that were merged, without overlaps; -1 if unknown
};

// Merges the most frequent adjacent pair, repeatedly. Pairs whose result would exceed
// max_token_bytes or max_initial_symbols, or is forbidden, are skipped. If the bytes of a result
// already are a symbol, the result is that symbol (the first, of several): the merge is recorded
// and adds none. This only happens if initial symbols consist of others.
class MergeLearner {
 public:
  // The initial symbols are the 256 bytes. Word i is keys[offsets[i], offsets[i + 1]) and occurs
  // counts[i] > 0 times. Words need be neither sorted nor unique; they are copied. Throws
  // std::invalid_argument for counts below 1 or descending offsets, std::overflow_error if a
  // pair's count would exceed 2^63 - 1.
  MergeLearner(const uint8_t* keys, const int64_t* offsets, const int64_t* counts, size_t n,
               MergeLearnerOptions options);

  // The initial symbols have these bytes, at least one each. Word i is the symbols
  // words[offsets[i], offsets[i + 1]); offsets start at 0. Throws std::invalid_argument also for
  // numbers that are not symbols and for symbols without bytes.
  static MergeLearner from_symbols(const std::vector<std::string>& symbols, const uint32_t* words,
                                   const int64_t* offsets, const int64_t* counts, size_t n,
                                   MergeLearnerOptions options);

  ~MergeLearner();
  MergeLearner(MergeLearner&&) noexcept;
  MergeLearner& operator=(MergeLearner&&) noexcept;

  // Learns until `symbols` symbols exist or `max_steps` merges were made in this call. Returns
  // false when nothing more can be learned for this number of symbols; see stop_reason.
  bool learn(size_t symbols, size_t max_steps);

  const std::vector<LearnedMerge>& merges() const;
  std::string symbol(
      uint32_t id) const;  // its bytes; throws std::invalid_argument if it is unknown
  size_t num_symbols() const;
  size_t symbol_bytes() const;     // of all symbols together
  StopReason stop_reason() const;  // of the last call of learn that returned false
  size_t memory_bytes() const;     // allocated now

  class Engine;
  explicit MergeLearner(std::unique_ptr<Engine> engine);

 private:
  std::unique_ptr<Engine> engine_;
};

}  // namespace bpe
