#include "long_merge.hpp"

#include <algorithm>
#include <limits>
#include <stdexcept>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

// A pre-token is merged in windows, so that the working set stays small. The result is exact for
// any rules. Inside a stretch of text, merges happen in the same order as if the stretch were
// alone, until a merge crosses one of its ends. It follows that:
//
// - If the result for a text is divided between two of its symbols, the parts are the results for
// the parts of the text, since no merge crossed that position. In particular, two adjacent symbols
// of any result stay apart when only their own bytes are merged.
//
// - The results for two adjacent texts, joined, are the result for both if the two symbols at the
// seam stay apart when only their bytes are merged: the first merge across the seam would join
// parts of these two symbols, and so would happen for their bytes alone, too.
//
// The last symbols of a window may depend on the text after it. So the next window begins inside
// it, or at the end of the last accepted symbol:
//
// - Several windows of the same size are merged side by side, each beginning inside the previous
// one. If two have a symbol in common, they are joined there: the first one up to the symbol, the
// second one from there on.
//
// - Between the finished text and the first of these windows, the seam is checked. If the check
// fails, or if symbols are so long that too little of a window can be accepted, a larger window is
// tried, which also begins earlier because of the seam. The failed windows are small compared with
// the successful one, so the total length of all windows is a small multiple of the text.

namespace bpe {
namespace {

constexpr uint32_t kNoRank = std::numeric_limits<int32_t>::max();  // ranks compare as signed
constexpr size_t kFanOut = 16;
constexpr size_t kMostWindows = 4;  // merged side by side

#if defined(__SSE2__)

__m128i load4(const uint32_t* ranks) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(ranks));
}

__m128i lower4(__m128i a, __m128i b) {
  const __m128i is_greater = _mm_cmpgt_epi32(a, b);
  return _mm_or_si128(_mm_and_si128(is_greater, b), _mm_andnot_si128(is_greater, a));
}

// The lowest of 16 ranks.
uint32_t lowest(const uint32_t* ranks) {
  __m128i low =
      lower4(lower4(load4(ranks), load4(ranks + 4)), lower4(load4(ranks + 8), load4(ranks + 12)));
  low = lower4(low, _mm_shuffle_epi32(low, 0x4E));
  low = lower4(low, _mm_shuffle_epi32(low, 0xB1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(low));
}

// The first position of a rank that is among the 16.
size_t place_of(uint32_t rank, const uint32_t* ranks) {
  const __m128i wanted = _mm_set1_epi32(static_cast<int>(rank));
  const auto equal4 = [&](size_t i) { return _mm_cmpeq_epi32(load4(ranks + i), wanted); };
  const __m128i first = _mm_packs_epi32(equal4(0), equal4(4));
  const __m128i last = _mm_packs_epi32(equal4(8), equal4(12));
  const int places = _mm_movemask_epi8(_mm_packs_epi16(first, last));
  return static_cast<size_t>(__builtin_ctz(static_cast<unsigned>(places)));
}

#else

uint32_t lowest(const uint32_t* ranks) { return *std::min_element(ranks, ranks + kFanOut); }

size_t place_of(uint32_t rank, const uint32_t* ranks) {
  return static_cast<size_t>(std::find(ranks, ranks + kFanOut, rank) - ranks);
}

#endif

// The ranks of the pairs in a text, as leaves of a tree in which every node is the minimum of the
// 16 nodes below it.
class RankTree {
 public:
  // Makes room for this many leaves, which must be filled before finish().
  uint32_t* resize(size_t size);
  void finish(size_t size);

  // kNoRank without pairs.
  uint32_t lowest_rank() const { return lowest(&nodes_[levels_[num_levels_ - 1]]); }

  size_t leftmost(uint32_t rank) const {
    size_t at = 0;
    for (size_t level = num_levels_; level-- > 0;) {
      at = kFanOut * at + place_of(rank, &nodes_[levels_[level] + kFanOut * at]);
    }
    return at;
  }

  uint32_t* leaves() { return nodes_.data(); }

  // Must be called after changes of leaves, for one of each 16.
  void update(size_t at) {
    for (size_t level = 0; level + 1 < num_levels_; ++level) {
      at /= kFanOut;
      const uint32_t rank = lowest(&nodes_[levels_[level] + kFanOut * at]);
      uint32_t& node = nodes_[levels_[level + 1] + at];
      if (node == rank) return;
      node = rank;
    }
  }

 private:
  static constexpr size_t kMaxLevels = 8;  // for 2^32 leaves

  // Level by level, starting with the leaves; each is padded to a multiple of 16 nodes, the last to
  // 16.
  std::vector<uint32_t> nodes_;
  size_t levels_[kMaxLevels + 1];  // the start of each
  size_t num_levels_ = 0;
};

uint32_t* RankTree::resize(size_t size) {
  num_levels_ = 0;
  size_t nodes = 0;
  do {
    levels_[num_levels_++] = nodes;
    size = (size + kFanOut - 1) / kFanOut;
    nodes += size * kFanOut;
  } while (size > 1);
  levels_[num_levels_] = nodes;
  if (nodes_.size() < nodes) nodes_.resize(nodes);
  return nodes_.data();
}

void RankTree::finish(size_t size) {
  uint32_t* end = nodes_.data() + size;
  for (size_t level = 1; level < num_levels_; ++level) {
    std::fill(end, &nodes_[levels_[level]], kNoRank);
    end = &nodes_[levels_[level]];
    for (size_t i = levels_[level - 1]; i < levels_[level]; i += kFanOut) {
      *end++ = lowest(&nodes_[i]);
    }
  }
  std::fill(end, nodes_.data() + levels_[num_levels_], kNoRank);
}

// A text being merged. A symbol is stored at the position where it begins.
class Merging {
 public:
  void begin(const MergeRules& rules, const uint8_t* bytes, size_t length);
  // One merge, in two steps; the first returns false if no merge is left.
  bool merge_lowest(const MergeRules& rules);
  void rank_neighbours(const MergeRules& rules);

  uint32_t symbol(size_t begin) const { return symbols_[begin]; }
  size_t end(size_t begin) const { return begin + lengths_[begin]; }
  size_t size() const { return symbols_.size(); }

 private:
  std::vector<uint32_t> symbols_;
  std::vector<uint32_t> lengths_;  // of each symbol, stored at its first and its last byte
  RankTree ranks_;                 // of the pair that begins at each position
  // Positions of the symbols of the current merge.
  size_t before_, at_, middle_, after_;
};

void Merging::begin(const MergeRules& rules, const uint8_t* bytes, size_t length) {
  if (length > UINT32_MAX) throw std::invalid_argument("a token of over 4 GiB");
  symbols_.assign(bytes, bytes + length);
  lengths_.assign(length, 1);
  uint32_t* const ranks = ranks_.resize(length);
  for (size_t i = 0; i + 1 < length; ++i) {
    ranks[i] = std::min(rules.rank_of_bytes(bytes[i], bytes[i + 1]), kNoRank);
  }
  ranks_.finish(length - 1);
}

inline bool Merging::merge_lowest(const MergeRules& rules) {
  const auto prefetch_rank = [&](uint32_t left, uint32_t right) {
    const size_t hash = MergeRules::pair_hash(MergeRules::pair_key(left, right));
    __builtin_prefetch(rules.filter_byte(hash));
    __builtin_prefetch(rules.line_of(hash));
  };
  const uint32_t rank = ranks_.lowest_rank();
  if (rank == kNoRank) return false;
  uint32_t* const symbols = symbols_.data();
  uint32_t* const lengths = lengths_.data();
  at_ = ranks_.leftmost(rank);
  middle_ = at_ + lengths[at_];
  after_ = middle_ + lengths[middle_];
  const uint32_t result = rules.result_of(rank);
  symbols[at_] = result;
  lengths[at_] = lengths[after_ - 1] = static_cast<uint32_t>(after_ - at_);
  before_ = at_ == 0 ? 0 : at_ - lengths[at_ - 1];
  if (at_ != 0) prefetch_rank(symbols[before_], result);
  if (after_ != size()) prefetch_rank(result, symbols[after_]);
  return true;
}

inline void Merging::rank_neighbours(const MergeRules& rules) {
  const auto rank_of = [&](size_t left, size_t right) {
    return std::min(rules.rank_of(symbols_[left], symbols_[right]), kNoRank);
  };
  uint32_t* const ranks = ranks_.leaves();
  ranks[middle_] = kNoRank;
  ranks[at_] = after_ == size() ? kNoRank : rank_of(at_, after_);
  if (at_ != 0) ranks[before_] = rank_of(before_, at_);
  ranks_.update(at_);
  if (middle_ / kFanOut != at_ / kFanOut) ranks_.update(middle_);
  if (before_ / kFanOut != at_ / kFanOut) ranks_.update(before_);
}

// Merges texts side by side, so that the memory latency of one overlaps with work on others.
// Reorders them.
void merge_all(const MergeRules& rules, Merging** texts, size_t n) {
  while (n > 0) {
    for (size_t i = 0; i < n;) {
      if (texts[i]->merge_lowest(rules)) {
        ++i;
      } else {
        texts[i] = texts[--n];
      }
    }
    for (size_t i = 0; i < n; ++i) texts[i]->rank_neighbours(rules);
  }
}

// The symbols of the text so far.
class Symbols {
 public:
  Symbols(size_t length, std::vector<uint32_t>& symbols)
      : symbols_(symbols), begins_(length / 64 + 1) {
    symbols_.clear();
  }

  size_t end() const { return end_; }
  size_t last_begin() const {
    size_t at = end_ - 1;
    while ((begins_[at / 64] >> (at % 64) & 1) == 0) --at;
    return at;
  }

  void append(uint32_t symbol, size_t length) {
    symbols_.push_back(symbol);
    begins_[end_ / 64] |= uint64_t{1} << (end_ % 64);
    end_ += length;
  }

  void drop_last() {
    end_ = last_begin();
    begins_[end_ / 64] &= ~(uint64_t{1} << (end_ % 64));
    symbols_.pop_back();
  }

 private:
  std::vector<uint32_t>& symbols_;
  std::vector<uint64_t> begins_;  // one bit per byte
  size_t end_ = 0;
};

class LongMerge {
 public:
  LongMerge(const MergeRules& rules, const uint8_t* bytes, size_t length,
            std::vector<uint32_t>& symbols)
      : rules_(rules), bytes_(bytes), length_(length), done_(length, symbols) {}

  void run();

 private:
  // Windows are merged side by side, each beginning inside the one before.
  struct Window {
    size_t begin;
    size_t end;
    Merging text;

    uint32_t symbol(size_t place) const { return text.symbol(place - begin); }
    size_t end_of_symbol(size_t place) const { return begin + text.end(place - begin); }
  };

  static constexpr size_t kSize = 256;  // two levels of the tree
  static constexpr size_t kOverlap = 32;
  static constexpr size_t kGrowth = 16;  // one level more
  static constexpr size_t kRoundsAlone = 16;
  // Shares of a window: its end, and the remainder below which a larger one is tried.
  static constexpr size_t kUnreliable = 16;
  static constexpr size_t kTooMuch = 8;

  void merge_windows();
  bool seam_holds();
  void give_back(size_t bytes);
  size_t joint(const Window& window, const Window& next) const;
  size_t reliable_end(const Window& window) const;
  void take(const Window& window, size_t end);

  const MergeRules& rules_;
  const uint8_t* const bytes_;
  const size_t length_;
  Symbols done_;
  size_t expected_ = 0;  // length of the symbol that followed the last accepted one in its window
  size_t size_ = kSize;
  size_t rounds_alone_ = 0;  // rounds with only one window
  size_t num_windows_ = 0;
  Window windows_[kMostWindows];
  Merging seam_;
};

void LongMerge::run() {
  while (done_.end() < length_) {
    const size_t begin = done_.end();
    merge_windows();
    if (begin != 0 && !seam_holds()) {
      size_ *= kGrowth;
      give_back(size_ / kTooMuch);
      continue;
    }
    size_t joined = 1;
    for (; joined < num_windows_; ++joined) {
      const size_t place = joint(windows_[joined - 1], windows_[joined]);
      if (place == length_) break;
      take(windows_[joined - 1], place);
    }
    const Window& last = windows_[joined - 1];
    take(last, reliable_end(last));
    const size_t taken = done_.end() - begin;
    if (done_.end() < last.end) expected_ = last.end_of_symbol(done_.end()) - done_.end();
    size_ = taken < size_ - size_ / kTooMuch ? size_ * kGrowth : kSize;
    if (joined < num_windows_) rounds_alone_ = kRoundsAlone;
  }
}

void LongMerge::merge_windows() {
  num_windows_ = 0;
  size_t most = kMostWindows;
  if (size_ > kSize || rounds_alone_ > 0) most = 1;
  if (rounds_alone_ > 0) --rounds_alone_;
  Merging* texts[kMostWindows];
  for (size_t begin = done_.end();; begin += size_ - kOverlap) {
    Window& window = windows_[num_windows_];
    window.begin = begin;
    window.end = begin + std::min(size_, length_ - begin);
    window.text.begin(rules_, bytes_ + begin, window.end - begin);
    texts[num_windows_++] = &window.text;
    if (window.end == length_ || num_windows_ == most) break;
  }
  merge_all(rules_, texts, num_windows_);
}

// Between the finished text and the first window: if the expected symbol comes, the two have
// already been adjacent in a result.
bool LongMerge::seam_holds() {
  const size_t end = windows_[0].end_of_symbol(done_.end());
  if (end - done_.end() == expected_) return true;
  const size_t begin = done_.last_begin();
  seam_.begin(rules_, bytes_ + begin, end - begin);
  Merging* text = &seam_;
  merge_all(rules_, &text, 1);
  return begin + seam_.end(0) == done_.end();
}

void LongMerge::give_back(size_t bytes) {
  const size_t end = done_.end() - std::min(done_.end(), bytes);
  while (done_.end() > end) done_.drop_last();
  expected_ = 0;
}

// Position of the first symbol after the finished text that both windows contain; the end of the
// text if they have none.
size_t LongMerge::joint(const Window& window, const Window& next) const {
  size_t a = done_.end();
  size_t b = next.begin;
  while (a < window.end) {
    const size_t a_end = window.end_of_symbol(a);
    if (a < b) {
      a = a_end;
    } else if (const size_t b_end = next.end_of_symbol(b); a > b) {
      b = b_end;
    } else {
      if (a_end == b_end) return a;
      a = a_end;
      b = b_end;
    }
  }
  return length_;
}

// The last symbols may depend on the text after the window.
size_t LongMerge::reliable_end(const Window& window) const {
  if (window.end == length_) return length_;
  const size_t limit = window.end - (window.end - window.begin) / kUnreliable;
  size_t end = done_.end();
  while (window.end_of_symbol(end) <= limit) end = window.end_of_symbol(end);
  return end;
}

void LongMerge::take(const Window& window, size_t end) {
  while (done_.end() < end) {
    const size_t at = done_.end();
    done_.append(window.symbol(at), window.end_of_symbol(at) - at);
  }
}

}  // namespace

void merge_long(const MergeRules& rules, const uint8_t* bytes, size_t length,
                std::vector<uint32_t>& ids) {
  LongMerge(rules, bytes, length, ids).run();
  for (uint32_t& id : ids) id = rules.id_of(id);
}

}  // namespace bpe
