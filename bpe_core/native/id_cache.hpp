// A cache of bounded size from pre-token to ids. A line of the cache holds two pre-tokens of up to
// 15 bytes with their ids, so that most lookups cost one memory access.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "pretoken_key.hpp"
#include "zeroed_array.hpp"

namespace bpe {

// Ids in the 16 bytes of a value: up to 7 of 16 bits, or 5 of 24, and their number in the last
// byte. All are always written out; the number determines how many of them count.
struct Ids16 {
  static constexpr size_t kIds = 7;
  static constexpr uint32_t kLargestId = 0xFFFF;

  static uint32_t load(const uint8_t* value, size_t i) {
    uint16_t id;
    std::memcpy(&id, value + 2 * i, sizeof id);
    return id;
  }
  static void store(uint32_t id, uint8_t* value, size_t i) {
    const uint16_t narrow = static_cast<uint16_t>(id);
    std::memcpy(value + 2 * i, &narrow, sizeof narrow);
  }
};

struct Ids24 {
  static constexpr size_t kIds = 5;
  static constexpr uint32_t kLargestId = 0xFFFFFF;

  static uint32_t load(const uint8_t* value, size_t i) {
    uint32_t id = 0;
    std::memcpy(&id, value + 3 * i, 3);
    return id;
  }
  static void store(uint32_t id, uint8_t* value, size_t i) { std::memcpy(value + 3 * i, &id, 3); }
};

// Ids stored elsewhere; data is nullptr if none were found.
struct IdsView {
  const uint32_t* data = nullptr;
  size_t size = 0;
};

class IdCache {
 public:
  static constexpr size_t kLongestPretoken = 256;  // longer ones are not cached
  static constexpr size_t kMostWritten = 8;        // ids as which a value may be written out

  // Two pre-tokens and their ids. If the ids are in the ring and not in the value, kTableKey is set
  // in the key, so that it does not equal a key that is looked up.
  struct alignas(64) Line {
    ShortKey keys[2];  // all zero: free
    uint8_t values[2][16];
  };

  // Starts small and grows up to `most_entries`, in place. The initial memory is written to here,
  // so that no memory is needed later; it is smaller if there are not enough addresses.
  explicit IdCache(size_t most_entries) {
    size_t most_lines = kLeastLines;
    while (most_lines * 2 < most_entries) most_lines *= 2;
    while (!reserve(most_lines)) most_lines /= 2;
    used_lines_ = std::min(most_lines, kFirstLines);
    std::memset(static_cast<void*>(lines_.data()), 0, used_lines_ * sizeof(Line));
    use_ring();
  }

  Line* lines() { return lines_.data(); }
  // The offset of a hash's line among the bytes of lines().
  size_t offset_mask() const { return (used_lines_ - 1) * sizeof(Line); }

  // True if the cache would be faster if it grew, and may grow to most_lines.
  bool is_crowded(size_t most_lines) const {
    return entries_ * 2 > used_lines_ && used_lines_ < std::min(most_lines, lines_.size());
  }

  // Doubles the number of used lines. The content of a group is divided among it and the group at
  // the same distance beyond the old end. hash: of a short key.
  template <class Hash>
  void grow(const Hash& hash) {
    const size_t old_lines = used_lines_;
    used_lines_ *= 2;
    entries_ = 0;
    use_ring();
    for (size_t i = 0; i < old_lines; i += kGroup) {
      Line old[kGroup];
      for (size_t j = 0; j < kGroup; ++j) old[j] = std::exchange(lines_[i + j], {});
      for (const Line& line : old) {
        for (size_t k = 0; k < 2; ++k) {
          const ShortKey& key = line.keys[k];
          if (is_free(key)) continue;
          const uint64_t hashed =
              is_long(key) ? key.low : hash(ShortKey{key.low, key.high & ~kTableKey});
          place(&lines_[(hashed & offset_mask()) / sizeof(Line)], key, line.values[k]);
        }
      }
    }
  }

  // True if the ids of a key are in the value of its line.
  static bool is_in(const Line& line, const ShortKey& key) {
    return line.keys[0] == key || line.keys[1] == key;
  }

  // False if the ids of a key can't be in a value of a line beside its own.
  static bool may_be_beside(const Line& line, const ShortKey& key) {
    return !is_long(key) && !has_room(line);
  }

  // The first line beside one.
  Line* beside(Line* line) { return beside(line, 1); }

  // Exchanges the entry of a value in another line with the second one of `line`: it was looked up
  // again, and is found faster there.
  void move_closer(Line* line, Line* other, const uint8_t* value) {
    const size_t k = value == other->values[0] ? 0 : 1;
    std::swap(other->keys[k], line->keys[1]);
    std::swap(other->values[k], line->values[1]);
  }

  // The ids of a pre-token that are not in its line: they are in the ring, or in a line beside it.
  // Valid until the next call.
  template <class Inline>
  IdsView find_elsewhere(Line* line, const ShortKey& key, const uint8_t* bytes, size_t length) {
    for (ShortKey& found : line->keys) {
      if (found != in_ring(key)) continue;
      const IdsView ids = ids_in_ring(line->values[&found - line->keys], key, bytes, length);
      if (ids.data != nullptr) return ids;
    }
    // While a line has room, nothing is put into the next one. (Rarely an exchanged entry is beyond
    // such a line; then it is made once more.)
    Line* other = line;
    for (size_t j = 1; j < kGroup && !has_room(*other); ++j) {
      other = beside(line, j);
      for (size_t k = 0; k < 2; ++k) {
        IdsView ids;
        if (other->keys[k] == key) {
          ids = {decoded_, other->values[k][15]};
          for (size_t i = 0; i < Inline::kIds; ++i) decoded_[i] = Inline::load(other->values[k], i);
        } else if (other->keys[k] == in_ring(key)) {
          ids = ids_in_ring(other->values[k], key, bytes, length);
        }
        if (ids.data == nullptr) continue;
        move_closer(line, other, other->values[k]);
        return ids;
      }
    }
    return {};
  }

  // Adds the n ids of a pre-token of at most kLongestPretoken bytes.
  template <class Inline>
  void insert(Line* line, const ShortKey& key, const uint8_t* bytes, size_t length,
              const uint32_t* ids, size_t n) {
    if (is_in(*line, key) || find_elsewhere<Inline>(line, key, bytes, length).data != nullptr) {
      return;
    }
    uint8_t value[16] = {};
    const bool is_short = !is_long(key);
    const bool are_small =
        std::all_of(ids, ids + n, [](uint32_t id) { return id <= Inline::kLargestId; });
    if (is_short && n <= Inline::kIds && are_small) {
      for (size_t i = 0; i < n; ++i) Inline::store(ids[i], value, i);
      value[15] = static_cast<uint8_t>(n);
      place(line, key, value);
      return;
    }
    const RingPlace there = {ring_.append(n + (is_short ? 0 : (length + 3) / 4)), n};
    uint32_t* const words = ring_.at(there.place);
    std::copy_n(ids, n, words);
    if (!is_short) std::memcpy(words + n, bytes, length);
    std::memcpy(value, &there, sizeof value);
    place(line, in_ring(key), value);
  }

 private:
  static constexpr size_t kGroup = 4;  // lines: what has no room in one is put into the others
  static constexpr size_t kLeastLines = kGroup;
  static constexpr size_t kFirstLines = size_t{1} << 13;
  static constexpr size_t kRingWords = 4;  // for each line
  static constexpr size_t kLeastRing = 1024;

  // Ring of the ids and bytes for which a line has no room. The newest overwrite the oldest.
  class Ring {
   public:
    Ring() = default;
    // `most` words at most; the memory of the `first` ones is in small pages.
    Ring(size_t most_words, size_t first) : words_(most_words, first * sizeof(uint32_t)) {}

    // Uses this many words, a power of two: before, none or half as many were used.
    void use(size_t words) {
      if (words == used_) return;
      if (next_ > used_) {
        // The content was written around the end; now each word goes to where its new offset may
        // be.
        std::memcpy(words_.data() + used_, words_.data(), used_ * sizeof(uint32_t));
        first_ = std::max(first_, next_ - used_);
      }
      used_ = words;
    }
    // Returns the offset of n words to write, at most kLeastRing.
    uint64_t append(size_t n) {
      const uint64_t left = used_ - (next_ & (used_ - 1));
      if (left < n) next_ += left;
      const uint64_t place = next_;
      next_ += n;
      return place;
    }
    bool holds(uint64_t place) const { return place >= first_ && next_ - place <= used_; }
    uint32_t* at(uint64_t place) { return words_.data() + (place & (used_ - 1)); }

   private:
    ZeroedArray<uint32_t> words_;
    uint64_t used_ = 0;
    uint64_t next_ = 0;
    uint64_t first_ = 0;  // everything written before is lost
  };

  struct RingPlace {
    uint64_t place;
    uint64_t count;
  };
  static_assert(sizeof(RingPlace) == sizeof(Line::values[0]));

  // The number of lines for which there are addresses; throws std::bad_alloc below the minimum.
  bool reserve(size_t most_lines) {
    try {
      const size_t first = std::min(most_lines, kFirstLines);
      lines_ = ZeroedArray<Line>(most_lines, first * sizeof(Line));
      ring_ = Ring(std::max(kLeastRing, most_lines * kRingWords), first * kRingWords);
      return true;
    } catch (const std::bad_alloc&) {
      if (most_lines == kLeastLines) throw;
      return false;
    }
  }

  void use_ring() { ring_.use(std::max(kLeastRing, used_lines_ * kRingWords)); }

  static bool has_room(const Line& line) { return is_free(line.keys[0]) || is_free(line.keys[1]); }
  static ShortKey in_ring(const ShortKey& key) { return {key.low, key.high | kTableKey}; }

  // The lines of a group in the order in which one of it is filled up by them, from 0.
  Line* beside(Line* line, size_t j) {
    return lines_.data() + (static_cast<size_t>(line - lines_.data()) ^ j);
  }

  IdsView ids_in_ring(const uint8_t* value, const ShortKey& key, const uint8_t* bytes,
                      size_t length) {
    RingPlace there;
    std::memcpy(&there, value, sizeof there);
    if (!ring_.holds(there.place)) return {};
    const uint32_t* words = ring_.at(there.place);
    if (is_long(key) && std::memcmp(words + there.count, bytes, length) != 0) return {};
    return {words, there.count};
  }

  void place(Line* line, const ShortKey& key, const uint8_t* value) {
    const auto set = [&](Line* at, size_t k) {
      at->keys[k] = key;
      std::memcpy(at->values[k], value, sizeof at->values[k]);
    };
    for (size_t j = 0; j < kGroup; ++j) {
      Line* const at = beside(line, j);
      for (size_t k = 0; k < 2; ++k) {
        if (!is_free(at->keys[k]) && at->keys[k] != key) continue;
        entries_ += is_free(at->keys[k]);
        set(at, k);
        return;
      }
    }
    // The first entry of a line is usually a frequent one: it stays, except for one time in
    // sixteen.
    const size_t turn = turn_++;
    set(beside(line, turn % kGroup), turn % (16 * kGroup) >= kGroup ? 1 : 0);
  }

  ZeroedArray<Line> lines_;
  size_t used_lines_;
  size_t entries_ = 0;
  size_t turn_ = 0;
  Ring ring_;
  uint32_t decoded_[kMostWritten];
};

}  // namespace bpe
