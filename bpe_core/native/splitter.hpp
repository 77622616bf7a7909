// The base of splitters that are made at run time, from a pattern or a vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

// Splits text as some pattern or vocabulary demands. Immutable, so that threads share one. A
// virtual call costs nothing that can be measured: a Scanner makes one for a batch of pre-tokens.
class Splitter {
 public:
  Splitter() = default;
  Splitter(const Splitter&) = delete;
  Splitter& operator=(const Splitter&) = delete;
  virtual ~Splitter() = default;

  // Writes the ends of the next pre-tokens, under the contract of Scanner.
  virtual size_t scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                      size_t capacity) const = 0;

  // Returns true if every text may be split between these adjacent characters, whatever surrounds
  // them: the two parts must have the pre-tokens of the complete text. A splitter that cannot know
  // returns false.
  virtual bool may_cut(uint32_t previous, uint32_t next) const = 0;

  // Returns true if text may be cut after a special token.
  virtual bool may_cut_after_special() const { return true; }

  // Returns true if may_cut is true for any two characters.
  virtual bool has_cuts() const = 0;
};

}  // namespace bpe
