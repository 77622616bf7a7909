#include "vocabulary_splitter.hpp"

#include <algorithm>
#include <bit>
#include <stdexcept>
#include <utility>

namespace bpe {
namespace {

constexpr size_t kFilterBitsOfPair = 32;
constexpr int kLeastFilterBits = 12;

}  // namespace

VocabularySplitter::VocabularySplitter(const std::vector<uint32_t>& characters,
                                       const Tokens& tokens, bool split_before_space,
                                       UnknownCharacters unknown)
    : unknown_(unknown), split_before_space_(split_before_space) {
  for (const uint32_t character : characters) {
    const size_t word = character / 64;
    if (word >= known_.size()) known_.resize(word + 1, 0);
    known_[word] |= uint64_t{1} << character % 64;
  }
  std::vector<uint64_t> pairs;
  parted_.fill(1);
  for (size_t i = 0; i < tokens.n; ++i) {
    const uint8_t* const token = tokens.bytes + tokens.offsets[i];
    const size_t size = static_cast<size_t>(tokens.offsets[i + 1] - tokens.offsets[i]);
    uint32_t previous = kInvalidCodePoint;
    for (size_t at = 0; at < size;) {
      const DecodedCharacter character = read(token + at, size - at);
      const uint32_t next = character.code_point;
      if (at > 0 && !(split_before_space && next == ' ')) {
        if ((previous | next) < kAscii) {
          parted_[pair_index(previous, next)] = 0;
        } else {
          pairs.push_back(static_cast<uint64_t>(previous) << 32 | next);
        }
      }
      previous = next;
      at += character.size;
    }
  }
  if (unknown == UnknownCharacters::runs) {
    for (uint32_t previous = 0; previous < kAscii; ++previous) {
      for (uint32_t next = 0; next < kAscii; ++next) {
        if (!is_known(previous) && !is_known(next)) parted_[pair_index(previous, next)] = 0;
      }
    }
  }
  std::sort(pairs.begin(), pairs.end());
  pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
  int bits = kLeastFilterBits;
  while (size_t{1} << bits < pairs.size() * kFilterBitsOfPair) ++bits;
  filter_shift_ = 64 - bits;
  filter_.assign((size_t{1} << bits) / 64, 0);
  for (const uint64_t pair : pairs) {
    const size_t bit = filter_bit(static_cast<uint32_t>(pair >> 32), static_cast<uint32_t>(pair));
    filter_[bit / 64] |= uint64_t{1} << bit % 64;
  }
}

VocabularySplitter::VocabularySplitter(State state)
    : unknown_(state.unknown),
      split_before_space_(state.split_before_space),
      known_(std::move(state.known)),
      filter_(std::move(state.filter)) {
  const size_t bits = filter_.size() * 64;
  if (state.parted.size() != parted_.size() || !std::has_single_bit(bits) ||
      bits < size_t{1} << kLeastFilterBits) {
    throw std::invalid_argument("not the state of a splitter");
  }
  std::copy(state.parted.begin(), state.parted.end(), parted_.begin());
  filter_shift_ = 64 - std::countr_zero(bits);
}

VocabularySplitter::State VocabularySplitter::state() const {
  return {unknown_, split_before_space_, known_, {parted_.begin(), parted_.end()}, filter_};
}

DecodedCharacter VocabularySplitter::read(const uint8_t* text, size_t size) {
  DecodedCharacter character = decode_utf8(text, size);
  if (character.code_point == kSpaceSign) character.code_point = ' ';
  return character;
}

size_t VocabularySplitter::filter_bit(uint32_t previous, uint32_t next) const {
  const uint64_t key = static_cast<uint64_t>(previous) << 21 | next;
  return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> filter_shift_);
}

// Neither is a space sign.
bool VocabularySplitter::is_parted(uint32_t previous, uint32_t next) const {
  if ((previous | next) < kAscii) return parted_[pair_index(previous, next)] != 0;
  if (!is_known(previous) || !is_known(next)) {
    return unknown_ != UnknownCharacters::runs || is_known(previous) || is_known(next);
  }
  if (split_before_space_ && next == ' ') return true;
  const size_t bit = filter_bit(previous, next);
  return (filter_[bit / 64] >> bit % 64 & 1) == 0;
}

bool VocabularySplitter::may_cut(uint32_t previous, uint32_t next) const {
  return is_parted(previous == kSpaceSign ? ' ' : previous, next == kSpaceSign ? ' ' : next);
}

size_t VocabularySplitter::scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                                size_t capacity) const {
  size_t count = 0;
  size_t at = pos;  // where the next character begins
  uint32_t previous = kInvalidCodePoint;
  while (count < capacity && at < size) {
    if (previous < kAscii) {
      while (count < capacity && at < size && text[at] < kAscii) {
        const uint32_t next = text[at];
        ends[count] = at++;
        count += parted_[pair_index(previous, next)];
        previous = next;
      }
      if (count == capacity || at == size) break;
    }
    const DecodedCharacter next = read(text + at, size - at);
    if (at > pos && is_parted(previous, next.code_point)) ends[count++] = at;
    previous = next.code_point;
    at += next.size;
    if (unknown_ == UnknownCharacters::bytes && next.size > 1 && !is_known(next.code_point)) {
      // The boundary after the last byte comes with the next character.
      for (size_t end = at - next.size + 1; end < at && count < capacity; ++end)
        ends[count++] = end;
    }
  }
  if (count < capacity && at > pos) ends[count++] = size;
  return count;
}

}  // namespace bpe
