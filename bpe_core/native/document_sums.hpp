// Documents, tokens and bytes by the length of documents and by bytes per token.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace bpe {

// Three rows of `buckets` numbers: documents, tokens, bytes.
struct DocumentHistogram {
  int64_t* sums;
  size_t buckets;

  void add(size_t bucket, int64_t tokens, int64_t bytes) const {
    bucket = std::min(bucket, buckets - 1);
    ++sums[bucket];
    sums[buckets + bucket] += tokens;
    sums[2 * buckets + bucket] += bytes;
  }
};

// Adds n documents, with tokens and bytes of 0 or more. `lengths`: bucket 0 has the documents
// without tokens, bucket b those of 2^(b - 1) to 2^b - 1 tokens. `ratios`: bucket b has those of b
// / steps to (b + 1) / steps bytes per token, the last bucket all above.
inline void add_document_sums(const int64_t* tokens, const int64_t* bytes, size_t n,
                              const DocumentHistogram& lengths, const DocumentHistogram& ratios,
                              uint64_t steps) {
  for (size_t i = 0; i < n; ++i) {
    const auto length = static_cast<uint64_t>(tokens[i]);
    const auto size = static_cast<uint64_t>(bytes[i]);
    lengths.add(static_cast<size_t>(std::bit_width(length)), tokens[i], bytes[i]);
    ratios.add(steps * size / std::max<uint64_t>(length, 1), tokens[i], bytes[i]);
  }
}

}  // namespace bpe
