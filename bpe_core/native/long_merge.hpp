// Merging of long pre-tokens, in time nearly proportional to their length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge_rules.hpp"

namespace bpe {

// Replaces `ids` by those of the bytes: merged by the lowest rank first, of equal ranks the
// leftmost. Throws UnknownByte.
void merge_long(const MergeRules& rules, const uint8_t* bytes, size_t length,
                std::vector<uint32_t>& ids);

}  // namespace bpe
