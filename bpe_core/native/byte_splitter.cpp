#include "byte_splitter.hpp"

#include <stdexcept>
#include <utility>

namespace bpe {
namespace {

uint8_t first_byte(uint32_t code_point) {
  if (code_point < 0x80) return static_cast<uint8_t>(code_point);
  if (code_point < 0x800) return static_cast<uint8_t>(0xC0 | code_point >> 6);
  if (code_point < 0x10000) return static_cast<uint8_t>(0xE0 | code_point >> 12);
  return static_cast<uint8_t>(0xF0 | code_point >> 18);
}

uint8_t last_byte(uint32_t code_point) {
  return static_cast<uint8_t>(code_point < 0x80 ? code_point : 0x80 | (code_point & 0x3F));
}

}  // namespace

ByteSplitter::ByteSplitter(std::vector<uint64_t> joined) : joined_(std::move(joined)) {
  if (joined_.size() != kWords) throw std::invalid_argument("not a bit for each pair of bytes");
}

size_t ByteSplitter::scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                          size_t capacity) const {
  if (pos == size || capacity == 0) return 0;
  size_t count = 0;
  for (size_t at = pos + 1; at < size && count < capacity; ++at) {
    ends[count] = at;
    count += is_joined(text[at - 1], text[at]) ? 0 : 1;
  }
  if (count < capacity) ends[count++] = size;
  return count;
}

bool ByteSplitter::may_cut(uint32_t previous, uint32_t next) const {
  return !is_joined(last_byte(previous), first_byte(next));
}

bool ByteSplitter::has_cuts() const {
  // Between ASCII characters: others alone would cut few texts.
  for (uint32_t previous = 0; previous < 0x80; ++previous) {
    for (uint32_t next = 0; next < 0x80; ++next) {
      if (may_cut(previous, next)) return true;
    }
  }
  return false;
}

}  // namespace bpe
