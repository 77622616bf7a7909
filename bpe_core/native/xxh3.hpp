// XXH3, 128 bits, seed 0: the hash by which documents are sampled, split off and counted. Written
// from its specification (xxhash_spec.md of the xxHash project, version 0.2.0).
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

struct Hash128 {
  uint64_t high;
  uint64_t low;
};

// The hash of data[0, size). The CPU determines the code for long inputs; the result is always the
// same.
Hash128 xxh3_128(const uint8_t* data, size_t size);

}  // namespace bpe
