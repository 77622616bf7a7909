#include "ordered_pretokens.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <string_view>

#include "bytes_hash.hpp"

namespace bpe {

namespace {

uint64_t hash_of(const uint8_t* key, size_t length) {
  if (length > kShortKeyBytes) return hash_long_key(key, length);
  return hash_short_key(load_short_key(key, length, length), length);
}

uint32_t tag_of(uint64_t hash) { return static_cast<uint32_t>(hash >> 32); }

}  // namespace

void OrderedPretokens::add_document(const uint8_t* text, size_t size, const Scanner& scanner,
                                    const Normalizer& normalizer, const SpecialMatcher& specials) {
  constexpr size_t kBatch = 256;
  size_t ends[kBatch];
  std::string buffer;
  specials.for_each_part(text, size, [&](size_t begin, size_t end) {
    const std::string_view normalized =
        normalizer.normalized({reinterpret_cast<const char*>(text) + begin, end - begin}, buffer);
    const auto* const part = reinterpret_cast<const uint8_t*>(normalized.data());
    for (size_t pos = 0; pos < normalized.size();) {
      const size_t found = scanner(part, normalized.size(), pos, ends, kBatch);
      for (size_t i = 0; i < found; ++i) {
        add(part + pos, ends[i] - pos);
        pos = ends[i];
      }
    }
  });
}

void OrderedPretokens::add(const uint8_t* key, size_t length) {
  if (length == 0) throw std::invalid_argument("a pre-token must not be empty");
  const uint64_t hash = hash_of(key, length);
  const size_t mask = places_.size() - 1;
  size_t at = hash & mask;
  for (; places_[at].entry != 0; at = (at + 1) & mask) {
    const size_t i = places_[at].entry - 1;
    if (places_[at].tag == tag_of(hash) && is_key(i, key, length)) {
      ++counts_[i];
      return;
    }
  }
  if (size() >= std::numeric_limits<uint32_t>::max()) {
    throw std::overflow_error("more than 2^32 - 1 distinct pre-tokens");
  }
  keys_.insert(keys_.end(), key, key + length);
  offsets_.push_back(static_cast<int64_t>(keys_.size()));
  counts_.push_back(1);
  hashes_.push_back(hash);
  places_[at] = {static_cast<uint32_t>(size()), tag_of(hash)};
  if (2 * size() > places_.size()) grow();
}

bool OrderedPretokens::is_key(size_t i, const uint8_t* key, size_t length) const {
  const auto begin = static_cast<size_t>(offsets_[i]);
  return static_cast<size_t>(offsets_[i + 1]) - begin == length &&
         std::memcmp(keys_.data() + begin, key, length) == 0;
}

void OrderedPretokens::grow() {
  places_.assign(2 * places_.size(), Place{});
  const size_t mask = places_.size() - 1;
  for (size_t i = 0; i < size(); ++i) {
    size_t at = hashes_[i] & mask;
    while (places_[at].entry != 0) at = (at + 1) & mask;
    places_[at] = {static_cast<uint32_t>(i + 1), tag_of(hashes_[i])};
  }
}

size_t OrderedPretokens::memory_bytes() const {
  return keys_.capacity() + (offsets_.capacity() + counts_.capacity()) * sizeof(int64_t) +
         hashes_.capacity() * sizeof(uint64_t) + places_.capacity() * sizeof(Place);
}

}  // namespace bpe
