// Merges that follow from ranks: the last join of every token's own bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace bpe {

// Token i is data[offsets[i], offsets[i + 1]), not empty; its rank is i. If joining the bytes of
// token i, lowest rank first and of equal ranks the leftmost, ends with two parts that are tokens,
// left[i] and right[i] are these; otherwise both are -1. Of equal tokens, the first counts.
struct LastJoins {
  std::vector<int64_t> left;
  std::vector<int64_t> right;
};

LastJoins last_joins(const uint8_t* data, const int64_t* offsets, size_t tokens);

}  // namespace bpe
