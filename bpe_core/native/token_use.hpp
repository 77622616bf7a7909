// Use of tokens: how often counted pre-tokens contain each, by group.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "encode_parallel.hpp"
#include "encoder.hpp"
#include "merge_rules.hpp"

namespace bpe {

// Pre-token i is span i. It occurs counts[k] times in group groups[k], for each k in
// [rows[i], rows[i + 1]).
struct CountedSpans {
  DocumentSpans spans;
  const int64_t* rows;
  const int32_t* groups;
  const int64_t* counts;
};

// The groups [first, first + size).
struct GroupRange {
  int32_t first;
  int32_t size;
};

// The entry of a token and a group is at token * (number of groups) + group.
struct TokenUse {
  std::vector<int64_t> occurrences;
  std::vector<int64_t> alone;  // pre-tokens that consist of the token
};

// Encodes each pre-token once. The encoder's ids must be below num_tokens, and the bytes of each
// group fewer than 2^63. Pre-tokens without entries in the range of groups are left out.
TokenUse count_token_use(const Encoder& encoder, WorkspacePool& pool, const CountedSpans& pretokens,
                         GroupRange groups, size_t num_tokens, size_t num_threads);

// Use of tokens as it changes: the arrays of TokenUse, and sums over the tokens by group.
struct ChangingUse {
  size_t num_groups;
  int64_t* occurrences;
  int64_t* alone;
  int64_t* tokens;     // sum of the occurrences
  int64_t* used;       // number of tokens that occur
  int64_t* pretokens;  // sum of those that consist of one token
};

// Undoes merges, the last first: each occurrence of a result becomes its two sides. Each result
// must be that of one rule alone, and no rule may come before one that makes a side of it.
void undo_merges(const std::vector<MergeRule>& rules, const ChangingUse& use);

}  // namespace bpe
