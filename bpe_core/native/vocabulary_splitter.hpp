// Splitting text where no merge of a vocabulary of characters can join it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "splitter.hpp"
#include "utf8.hpp"

namespace bpe {

// The sign for a space in vocabularies of SentencePiece's kind.
inline constexpr uint32_t kSpaceSign = 0x2581;

inline constexpr uint32_t kCodePoints = 0x110000;

// Treatment of characters that the vocabulary lacks.
enum class UnknownCharacters {
  bytes,       // each byte is a pre-token
  characters,  // each character is one
  runs,        // all that follow one another are one
};

// Two characters that stand side by side inside no token stay apart, so that text can be split
// between them without changing what its merges make. The space sign and the space are one
// character.
class VocabularySplitter : public Splitter {
 public:
  // Byte strings bytes[offsets[i], offsets[i + 1]).
  struct Tokens {
    const uint8_t* bytes;
    const int64_t* offsets;
    size_t n;
  };

  // Everything that a splitter consists of, to make an equal one elsewhere.
  struct State {
    UnknownCharacters unknown;
    bool split_before_space;
    std::vector<uint64_t> known;
    std::vector<uint8_t> parted;
    std::vector<uint64_t> filter;
  };

  // characters: all of the vocabulary. tokens: those that merges make. split_before_space: a space
  // begins a pre-token whatever is before it.
  VocabularySplitter(const std::vector<uint32_t>& characters, const Tokens& tokens,
                     bool split_before_space, UnknownCharacters unknown);

  // std::invalid_argument for a state that no splitter has.
  explicit VocabularySplitter(State state);
  State state() const;

  size_t scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
              size_t capacity) const override;
  bool may_cut(uint32_t previous, uint32_t next) const override;
  // A space may be put before what follows one.
  bool may_cut_after_special() const override { return false; }
  bool has_cuts() const override { return !known_.empty(); }

 private:
  static constexpr uint32_t kAscii = 0x80;

  static DecodedCharacter read(const uint8_t* text, size_t size);
  static size_t pair_index(uint32_t previous, uint32_t next) {
    return previous * size_t{kAscii} + next;
  }
  bool is_known(uint32_t code_point) const {
    return code_point / 64 < known_.size() && (known_[code_point / 64] >> code_point % 64 & 1) != 0;
  }
  size_t filter_bit(uint32_t previous, uint32_t next) const;
  bool is_parted(uint32_t previous, uint32_t next) const;

  UnknownCharacters unknown_;
  bool split_before_space_;
  std::vector<uint64_t> known_;                    // a bit for a code point
  std::array<uint8_t, kAscii * kAscii> parted_{};  // 1: a boundary between two ASCII characters
  // A bit for a hash of two characters of which one is not ASCII. Pairs that share a bit with one
  // that is in a token are left together, which changes no ids.
  std::vector<uint64_t> filter_;
  int filter_shift_ = 0;
};

}  // namespace bpe
