#include "merge_learner.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "counted_words.hpp"
#include "pair_table.hpp"
#include "utf8.hpp"
#include "zeroed_array.hpp"

// All words are in one array of slots, with one slot for every byte and one between words. A token
// occupies as many slots as it has bytes. Its first slot contains its symbol; its last slot, if it
// has several, contains the symbol with a flag, so that the neighbours on both sides can be found
// directly. All other slots of a token are flagged too, since each was the start of a token before:
// a slot without the flag is the start of a token or a boundary between words.
//
// The index contains, for each *frequent* pair, its exact count and the ascending list of its
// positions. Positions are not removed from a list when they end: one is live if the slots still
// contain the pair there. Frequent means a count of at least `threshold_`. Most of the pairs that
// merges create are rare and never looked at again; they only cost the sum that shows this. When no
// frequent pair is left, the threshold is lowered by at least a factor of four, and the index is
// rebuilt from the slots. This happens a few times at most (never within 32,000 merges on 64 MB of
// English).
//
// Counts in the index may only fall after the merge that creates a pair. If words begin as bytes,
// this holds: until a token is made, the merges inside its bytes do not depend on the text around
// them, since otherwise a merge would have crossed their edge. So all tokens with the same bytes
// are made by the same merge, and no merge makes bytes that already are a symbol. Words of other
// symbols may contain a token as a symbol at one position and as its parts at another. When a merge
// makes a symbol that occurs elsewhere, the index is rebuilt.
//
// If ties depend on it (first_seen), positions follow the given order of the words: the first
// occurrence of a pair is then the first live position of its list. Lists only lose positions, so
// the heap contains a lower bound of the first occurrence, which is corrected like a count when the
// pair comes to the top. Otherwise words of equal count are adjacent.

namespace bpe {

class MergeLearner::Engine {
 public:
  virtual ~Engine() = default;
  virtual bool learn(size_t symbols, size_t max_steps) = 0;
  virtual std::string symbol(uint32_t id) const = 0;
  virtual size_t num_symbols() const = 0;
  virtual size_t symbol_bytes() const = 0;
  virtual size_t memory_bytes() const = 0;

  std::vector<LearnedMerge> merges;
  StopReason stop_reason = StopReason::no_pairs_left;
};

namespace {

// Internally, symbol 0 is the boundary between words and symbol s + 1 is the user's symbol s.
constexpr uint32_t kBoundary = 0;
constexpr uint32_t kInner = 0x80000000u;
constexpr uint32_t kMaxSymbols = kInner - 2;
constexpr uint64_t kNoList = std::numeric_limits<uint64_t>::max();
constexpr size_t kPrefetchDistance = 16;
constexpr size_t kTablePrefetch = 8;

template <typename T>
size_t allocated(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

// The order of bytes by GPT-2's printable stand-ins: first the bytes that stand for themselves,
// then the others, whose stand-ins are U+0100 and up.
std::array<uint32_t, 256> huggingface_byte_order() {
  const auto stands_for_itself = [](uint32_t byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
  };
  std::array<uint32_t, 256> order{};
  uint32_t next = 0;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (stands_for_itself(byte)) order[byte] = next++;
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (!stands_for_itself(byte)) order[byte] = next++;
  }
  return order;
}

// Position: an unsigned integer for the index of a slot.
template <typename Position>
class PositionEngine final : public MergeLearner::Engine {
 public:
  // splits: the symbols of the words, for symbols other than the 256 bytes.
  PositionEngine(const CountedWords& words, const WordSymbols* splits, MergeLearnerOptions options)
      : tie_break_(options.tie_break),
        min_count_(std::max<int64_t>(1, options.min_frequency)),
        max_token_bytes_(options.max_token_bytes),
        forbid_whitespace_(options.forbid_whitespace_tokens),
        reuses_symbols_(splits != nullptr && !options.always_new),
        byte_order_(huggingface_byte_order()),
        num_slots_(words.num_slots()),
        slots_(num_slots_),
        arena_(2 * num_slots_),
        byte_pairs_(words.count_byte_pairs()) {
    for (const PairTally& pair : byte_pairs_) total_count_ += static_cast<double>(pair.count);
    for (std::string& token : options.forbidden_tokens) {
      forbidden_lengths_.insert(token.size());
      forbidden_.insert(std::move(token));
    }
    symbols_.push_back({0, 1});
    if (splits == nullptr) {
      for (int byte = 0; byte < 256; ++byte) {
        add_initial_symbol(std::string(1, static_cast<char>(byte)));
      }
    } else {
      for (const std::string& symbol : splits->symbols) add_initial_symbol(symbol);
    }
    lay_out(words, splits);
    // Only the bytes' pairs are counted at this point, and without their first positions.
    if (splits != nullptr || tie_break_ == TieBreak::first_seen) byte_pairs_ = {};
    if (reuses_symbols_) count_symbols();
  }

  bool learn(size_t symbols, size_t max_steps) override {
    if (!indexed_ && num_symbols() < symbols) {
      threshold_ = first_threshold(symbols - num_symbols());
      rebuild();
    }
    for (size_t step = 0; num_symbols() < symbols; ++step) {
      if (step == max_steps) return true;
      uint64_t pair;
      if (!next_pair(pair)) {
        stop_reason =
            any_pair_allowed() ? StopReason::below_min_frequency : StopReason::no_pairs_left;
        return false;
      }
      merge(left_of(pair), right_of(pair));
    }
    stop_reason = StopReason::vocab_size_reached;
    return false;
  }

  std::string symbol(uint32_t id) const override {
    if (id >= num_symbols()) {
      throw std::invalid_argument("symbol: expected a number below " +
                                  std::to_string(num_symbols()) + ", found " + std::to_string(id));
    }
    return std::string(bytes(id + 1));
  }

  size_t num_symbols() const override { return symbols_.size() - 1; }
  size_t symbol_bytes() const override { return symbol_bytes_; }

  size_t memory_bytes() const override {
    constexpr size_t kNodeBytes = 40;
    return num_slots_ * sizeof(uint32_t) + arena_used_ * sizeof(Position) + text_.capacity() +
           word_counts_.memory_bytes() + allocated(byte_pairs_) + allocated(symbols_) +
           symbols_by_hash_.size() * kNodeBytes + allocated(live_) + allocated(merges) +
           pairs_.memory_bytes() + allocated(heap_) + allocated(occurrences_) + allocated(lefts_) +
           allocated(rights_);
  }

 private:
  struct Symbol {
    size_t begin;  // its bytes are text_[begin, begin + length)
    size_t length;
  };

  struct Candidate {
    int64_t count;
    uint64_t tie;  // of equal counts, the greater goes first
    uint64_t key;
  };

  // A token of the symbol being indexed, and the neighbouring symbols.
  struct Occurrence {
    Position position;
    uint32_t left, right;
    int64_t count;
  };

  std::string_view bytes(uint32_t symbol) const {
    return std::string_view(text_).substr(symbols_[symbol].begin, symbols_[symbol].length);
  }

  // Writes the words to slots_ and text_.
  void lay_out(const CountedWords& words, const WordSymbols* splits) {
    text_start_ = text_.size();
    text_.resize(text_start_ + num_slots_);
    const bool in_order = tie_break_ == TieBreak::first_seen;
    const std::vector<size_t> order = in_order ? words.in_order() : words.by_count();
    size_t position = 1;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i + 2 * kPrefetchDistance < order.size()) {
        __builtin_prefetch(&words.offsets[order[i + 2 * kPrefetchDistance]]);
        __builtin_prefetch(words.begin(order[i + kPrefetchDistance]));
      }
      const uint8_t* word = words.begin(order[i]);
      const size_t length = words.length(order[i]);
      word_counts_.add(static_cast<Position>(position), words.counts[order[i]]);
      std::memcpy(&text_[text_start_ + position], word, length);
      if (splits == nullptr) {
        for (size_t k = 0; k < length; ++k) slots_[position + k] = word[k] + 1u;
      } else {
        lay_out_symbols(position, splits->begin(order[i]), splits->end(order[i]));
      }
      position += length + 1;
    }
    word_counts_.finish(static_cast<Position>(position));
  }

  void lay_out_symbols(size_t position, const uint32_t* begin, const uint32_t* end) {
    for (const uint32_t* symbol = begin; symbol != end; ++symbol) {
      const size_t length = symbols_[*symbol + 1].length;
      for (size_t k = 1; k < length; ++k) slots_[position + k] = kInner | (*symbol + 1);
      slots_[position] = *symbol + 1;
      position += length;
    }
  }

  // ---- symbols

  void add_initial_symbol(const std::string& symbol) {
    text_ += symbol;
    add_symbol(text_.size() - symbol.size(), symbol.size());
  }

  void add_symbol(size_t begin, size_t length) {
    if (symbols_.size() > kMaxSymbols) throw std::overflow_error("more than 2^31 - 2 symbols");
    const auto symbol = static_cast<uint32_t>(symbols_.size());
    symbols_.push_back({begin, length});
    symbol_bytes_ += length;
    lefts_.resize(symbols_.size());
    rights_.resize(symbols_.size());
    if (reuses_symbols_) {
      live_.resize(symbols_.size());
      add_to_hash(symbol);
    }
  }

  void add_to_hash(uint32_t symbol) {
    symbols_by_hash_.emplace(std::hash<std::string_view>{}(bytes(symbol)), symbol);
  }

  // The first symbol with these bytes, or kBoundary.
  uint32_t find_symbol(std::string_view searched) const {
    const auto [first, last] =
        symbols_by_hash_.equal_range(std::hash<std::string_view>{}(searched));
    uint32_t found = kBoundary;
    for (auto it = first; it != last; ++it) {
      const bool before = found == kBoundary || it->second < found;
      if (before && bytes(it->second) == searched) found = it->second;
    }
    return found;
  }

  // Sets live_.
  void count_symbols() {
    for_each_token([this](size_t, uint32_t symbol) { ++live_[symbol]; });
  }

  bool allowed(uint32_t left, uint32_t right) const {
    const size_t length = symbols_[left].length + symbols_[right].length;
    if (max_token_bytes_ != 0 && length > max_token_bytes_) return false;
    if (forbid_whitespace_ && is_blank(joined(left, right))) return false;
    if (forbidden_.empty() || !forbidden_lengths_.contains(length)) return true;
    return !forbidden_.contains(joined(left, right));
  }

  // ---- order of candidates

  uint64_t tie_key(uint64_t pair, uint64_t first_place) const {
    if (tie_break_ == TieBreak::first_seen) return ~first_place;
    if (tie_break_ == TieBreak::lexicographic) {
      // The first 8 bytes of left: the other bytes are only needed if these are equal.
      const std::string_view left = bytes(left_of(pair));
      uint64_t key = 0;
      for (size_t i = 0; i < 8; ++i) {
        key = key << 8 | (i < left.size() ? static_cast<uint8_t>(left[i]) : 0u);
      }
      return key;
    }
    const auto order = [&](uint32_t symbol) {
      if (tie_break_ != TieBreak::huggingface) return symbol;
      const bool is_byte = symbols_[symbol].length == 1;
      return is_byte ? byte_order_[static_cast<uint8_t>(bytes(symbol)[0])] : 256 + symbol;
    };
    return ~pair_key(order(left_of(pair)), order(right_of(pair)));
  }

  bool goes_after(const Candidate& a, const Candidate& b) const {
    if (a.count != b.count) return a.count < b.count;
    if (a.tie != b.tie) return a.tie < b.tie;
    if (tie_break_ == TieBreak::lexicographic) {
      const int left = bytes(left_of(a.key)).compare(bytes(left_of(b.key)));
      if (left != 0) return left < 0;
      const int right = bytes(right_of(a.key)).compare(bytes(right_of(b.key)));
      if (right != 0) return right < 0;
    }
    return a.key > b.key;  // symbols of equal bytes: the first
  }

  auto heap_order() const {
    return [this](const Candidate& a, const Candidate& b) { return goes_after(a, b); };
  }

  // Takes the best pair off the heap. Its count there may be outdated (too large), and its first
  // position too (too early): such a candidate is pushed again with the current values.
  bool next_pair(uint64_t& pair) {
    for (;;) {
      while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), heap_order());
        Candidate& best = heap_.back();
        PairRecord* record = pairs_.find(best.key);
        if (record == nullptr || record->count < threshold_) {
          heap_.pop_back();
        } else if (record->count != best.count || !is_first_place(best)) {
          best.count = record->count;
          if (tie_break_ == TieBreak::first_seen) best.tie = ~first_place(*record);
          std::push_heap(heap_.begin(), heap_.end(), heap_order());
        } else {
          pair = best.key;
          heap_.pop_back();
          return true;
        }
      }
      if (!lower_threshold()) return false;
    }
  }

  bool is_first_place(const Candidate& candidate) const {
    return tie_break_ != TieBreak::first_seen || is_live(candidate.key, ~candidate.tie);
  }

  bool is_live(uint64_t pair, uint64_t position) const {
    const uint32_t left = left_of(pair);
    return slots_[position] == left && slots_[position + symbols_[left].length] == right_of(pair);
  }

  // Drops positions that are not live from the front of the pair's list. Its count must be above 0.
  uint64_t first_place(PairRecord& record) const {
    while (!is_live(record.key, arena_[record.list])) {
      ++record.list;
      --record.list_size;
    }
    return arena_[record.list];
  }

  // ---- threshold

  int64_t first_threshold(size_t wanted) const {
    // The count of the last wanted merge is unknown; a threshold below it costs some memory, one
    // above it a rebuild.
    constexpr double kShare = 1.0 / 64;
    const double guess = total_count_ / static_cast<double>(wanted) * kShare;
    return std::max(min_count_, static_cast<int64_t>(std::min(guess, 0x1p62)));
  }

  bool lower_threshold() {
    constexpr int64_t kFactor = 4;
    int64_t limit = std::numeric_limits<int64_t>::max();
    while (threshold_ > min_count_ && limit >= min_count_) {
      threshold_ = std::max(min_count_, std::min(threshold_ / kFactor, limit));
      limit = rebuild();
      if (!heap_.empty()) return true;
    }
    return false;
  }

  bool any_pair_allowed() const {
    bool found = false;
    for_each_token([&](size_t i, uint32_t symbol) {
      const uint32_t right = slots_[i + symbols_[symbol].length];
      found = found || (right != kBoundary && allowed(symbol, right));
    });
    return found;
  }

  // ---- index

  // Indexes all pairs of the current tokens from scratch. Returns the greatest count below the
  // threshold.
  int64_t rebuild() {
    indexed_ = true;
    pairs_.clear();
    heap_.clear();
    const int64_t greatest_rare = byte_pairs_.empty() ? index_tokens() : index_byte_pairs();
    std::make_heap(heap_.begin(), heap_.end(), heap_order());
    return greatest_rare;
  }

  // While nothing is merged.
  int64_t index_byte_pairs() {
    int64_t greatest_rare = 0;
    arena_used_ = 0;
    for (uint32_t i = 0; i < byte_pairs_.size(); ++i) {
      greatest_rare = std::max(
          greatest_rare, add_if_frequent((i >> 8) + 1, (i & 255) + 1, byte_pairs_[i], arena_used_));
    }
    for (size_t i = 1; i + 1 < num_slots_; ++i) {
      if (slots_[i] == kBoundary || slots_[i + 1] == kBoundary) continue;
      uint64_t& list = byte_pairs_[(slots_[i] - 1) << 8 | (slots_[i + 1] - 1)].list;
      if (list != kNoList) arena_[list++] = static_cast<Position>(i);
    }
    return greatest_rare;
  }

  int64_t index_tokens() {
    const std::vector<uint64_t> starts = sort_tokens_by_symbol();
    int64_t greatest_rare = 0;
    arena_used_ = 0;
    for (uint32_t symbol = 1; symbol < symbols_.size(); ++symbol) {
      load_occurrences(symbol, starts[symbol], starts[symbol + 1]);
      count_rights();
      // Lists take no more room than the tokens, so tokens that were not loaded yet are not
      // overwritten.
      greatest_rare = std::max(greatest_rare, add_rights(symbol, arena_used_));
      write_rights();
      clear_neighbours();
    }
    return greatest_rare;
  }

  template <class Visit>
  void for_each_token(Visit visit) const {
    for (size_t i = 0; i < num_slots_; ++i) {
      if ((slots_[i] & kInner) == 0 && slots_[i] != kBoundary) visit(i, slots_[i]);
    }
  }

  // Fills the arena with the positions of all tokens, ascending for each symbol, and returns where
  // those of each symbol start (and, last, where all end).
  std::vector<uint64_t> sort_tokens_by_symbol() {
    std::vector<uint64_t> next(symbols_.size() + 2);
    for_each_token([&](size_t, uint32_t symbol) { ++next[symbol + 2]; });
    std::partial_sum(next.begin(), next.end(), next.begin());
    for_each_token([&](size_t position, uint32_t symbol) {
      arena_[next[symbol + 1]++] = static_cast<Position>(position);
    });
    next.pop_back();
    return next;
  }

  void load_occurrences(uint32_t symbol, uint64_t begin, uint64_t end) {
    occurrences_.clear();
    typename PositionCounts<Position>::Cursor counts(word_counts_);
    const size_t length = symbols_[symbol].length;
    for (uint64_t i = begin; i < end; ++i) {
      if (i + kPrefetchDistance < end) {
        __builtin_prefetch(&slots_[arena_[i + kPrefetchDistance]]);
      }
      const Position position = arena_[i];
      occurrences_.push_back({position, kBoundary, slots_[position + length], counts.at(position)});
    }
  }

  static void count_neighbour(std::vector<PairTally>& neighbours, std::vector<uint32_t>& seen,
                              uint32_t symbol, const Occurrence& o) {
    PairTally& neighbour = neighbours[symbol];
    if (neighbour.occurrences++ == 0) {
      seen.push_back(symbol);
      neighbour.list = o.position;
    }
    // May wrap around for the boundary, which is not used.
    neighbour.count += static_cast<uint64_t>(o.count);
  }

  void count_lefts() {
    for (const Occurrence& o : occurrences_) {
      count_neighbour(lefts_, seen_lefts_, o.left, o);
    }
  }

  void count_rights() {
    for (const Occurrence& o : occurrences_) {
      count_neighbour(rights_, seen_rights_, o.right, o);
    }
  }

  void clear_neighbours() {
    for (const uint32_t symbol : seen_lefts_) lefts_[symbol] = {};
    for (const uint32_t symbol : seen_rights_) rights_[symbol] = {};
    seen_lefts_.clear();
    seen_rights_.clear();
  }

  // Adds a pair to the index if it is frequent, with a list, to be filled later, at `next`. Returns
  // its count if it is not. tally.list is its first position.
  int64_t add_if_frequent(uint32_t left, uint32_t right, PairTally& tally, uint64_t& next) {
    const uint64_t first_place = tally.list;
    tally.list = kNoList;
    if (left == kBoundary || right == kBoundary || tally.occurrences == 0) return 0;
    const auto count = static_cast<int64_t>(tally.count);
    if (count < threshold_) return count;
    if (!allowed(left, right)) return 0;
    tally.list = next;
    next += tally.occurrences;
    const uint64_t key = pair_key(left, right);
    PairRecord& record = pairs_.find_or_add(key, threshold_);
    record.count = count;
    record.list = tally.list;
    record.list_size = tally.occurrences;
    heap_.push_back({count, tie_key(key, first_place), key});
    return 0;
  }

  // Adds the frequent pairs (symbol, right), with lists from `next` on. Returns the greatest count
  // of the others.
  int64_t add_rights(uint32_t symbol, uint64_t& next) {
    int64_t greatest_rare = 0;
    for (const uint32_t right : seen_rights_) {
      greatest_rare = std::max(greatest_rare, add_if_frequent(symbol, right, rights_[right], next));
    }
    return greatest_rare;
  }

  void add_lefts(uint32_t symbol, uint64_t& next) {
    for (const uint32_t left : seen_lefts_) {
      if (left == symbol) {
        lefts_[left].list = kNoList;  // (symbol, symbol) is one of the rights
      } else {
        lefts_[left].list -= symbols_[left].length;
        add_if_frequent(left, symbol, lefts_[left], next);
      }
    }
  }

  void write_rights() {
    for (const Occurrence& o : occurrences_) {
      uint64_t& list = rights_[o.right].list;
      if (list != kNoList) arena_[list++] = o.position;
    }
  }

  void write_lefts() {
    for (const Occurrence& o : occurrences_) {
      uint64_t& list = lefts_[o.left].list;
      if (list != kNoList) {
        arena_[list++] = o.position - static_cast<Position>(symbols_[o.left].length);
      }
    }
  }

  // ---- merging

  void merge(uint32_t left, uint32_t right) {
    PairRecord pair;
    if (PairRecord* record = pairs_.find(pair_key(left, right))) {
      pair = *record;
      record->count = 0;
      record->list_size = 0;
    }
    byte_pairs_ = {};
    uint32_t result = reuses_symbols_ ? find_symbol(joined(left, right)) : kBoundary;
    const bool is_new = result == kBoundary;
    if (is_new) result = static_cast<uint32_t>(symbols_.size());
    replace(pair, left, right, result);
    if (is_new) add_symbol(place_of_result(), length_of(left, right));
    if (reuses_symbols_ && update_live(left, right, result)) {
      rebuild();
    } else {
      update_index(pair, left, right, result);
    }
    merges.push_back({left - 1, right - 1, result - 1, pair.count});
  }

  // Returns true if the result occurred before.
  bool update_live(uint32_t left, uint32_t right, uint32_t result) {
    const bool occurred = live_[result] != 0;
    live_[left] -= occurrences_.size();
    live_[right] -= occurrences_.size();
    live_[result] += occurrences_.size();
    return occurred;
  }

  void update_index(const PairRecord& pair, uint32_t left, uint32_t right, uint32_t result) {
    count_lefts();
    count_rights();
    decrease_around(left, right, result);
    const size_t num_candidates = heap_.size();
    index_result(pair, result);
    for (size_t i = num_candidates; i < heap_.size(); ++i) {
      std::push_heap(heap_.begin(), heap_.begin() + static_cast<ptrdiff_t>(i + 1), heap_order());
    }
    clear_neighbours();
  }

  std::string joined(uint32_t left, uint32_t right) const {
    return std::string(bytes(left)).append(bytes(right));
  }

  size_t length_of(uint32_t left, uint32_t right) const {
    return symbols_[left].length + symbols_[right].length;
  }

  // Position in text_ of the bytes of the symbol just made.
  size_t place_of_result() const { return text_start_ + occurrences_.front().position; }

  // Indexes the pairs that the merge of `pair` created. At most one of each two positions needs new
  // room, since the merged pair's list is not needed any more. As every position is one token less,
  // the arena, twice as large as the slots, never runs full.
  void index_result(const PairRecord& pair, uint32_t result) {
    uint64_t next = pair.list;
    add_rights(result, next);
    write_rights();
    add_lefts(result, arena_used_);
    write_lefts();
  }

  // Removes the occurrences replaced by `result` from the pairs that they formed with their
  // neighbours.
  void decrease_around(uint32_t left, uint32_t right, uint32_t result) {
    for (size_t i = 0; i < seen_lefts_.size(); ++i) {
      if (i + kTablePrefetch < seen_lefts_.size()) {
        pairs_.prefetch(pair_key(seen_lefts_[i + kTablePrefetch], left));
      }
      const uint32_t symbol = seen_lefts_[i];
      if (symbol != result) decrease(symbol, left, lefts_[symbol].count);
    }
    for (size_t i = 0; i < seen_rights_.size(); ++i) {
      if (i + kTablePrefetch < seen_rights_.size()) {
        pairs_.prefetch(pair_key(right, seen_rights_[i + kTablePrefetch]));
      }
      // If the result follows itself, this was removed before.
      const uint32_t symbol = seen_rights_[i];
      decrease(right, symbol == result ? left : symbol, rights_[symbol].count);
    }
  }

  void decrease(uint32_t left, uint32_t right, uint64_t count) {
    if (left == kBoundary || right == kBoundary) return;
    PairRecord* record = pairs_.find(pair_key(left, right));
    if (record != nullptr && record->count != 0) record->count -= static_cast<int64_t>(count);
  }

  // Replaces every live occurrence of the pair by `result`, from left to right, and fills
  // occurrences_ with the results.
  void replace(const PairRecord& pair, uint32_t left, uint32_t right, uint32_t result) {
    occurrences_.clear();
    occurrences_.reserve(pair.list_size);
    const auto left_length = static_cast<Position>(symbols_[left].length);
    const auto right_length = static_cast<Position>(symbols_[right].length);
    const Position* list = arena_.data() + pair.list;
    uint32_t* slots = slots_.data();
    typename PositionCounts<Position>::Cursor counts(word_counts_);
    for (uint64_t i = 0; i < std::min<uint64_t>(kPrefetchDistance, pair.list_size); ++i) {
      __builtin_prefetch(&slots[list[i]]);
    }
    for (uint64_t i = 0; i < pair.list_size; ++i) {
      if (i + kPrefetchDistance < pair.list_size) {
        __builtin_prefetch(&slots[list[i + kPrefetchDistance]]);
      }
      const Position position = list[i];
      if (slots[position] != left) continue;
      const Position middle = position + left_length;
      if (slots[middle] != right) continue;
      const Position end = middle + right_length;
      slots[position] = result;
      slots[middle] = kInner | result;
      slots[end - 1] = kInner | result;
      const uint32_t before = slots[position - 1] & ~kInner;
      if (before == result && !occurrences_.empty()) occurrences_.back().right = result;
      occurrences_.push_back({position, before, slots[end], counts.at(position)});
    }
  }

  const TieBreak tie_break_;
  const int64_t min_count_;
  const size_t max_token_bytes_;
  const bool forbid_whitespace_;
  const bool reuses_symbols_;
  const std::array<uint32_t, 256> byte_order_;
  std::unordered_set<std::string> forbidden_;
  std::unordered_set<size_t> forbidden_lengths_;

  const size_t num_slots_;
  ZeroedArray<uint32_t> slots_;
  std::string text_;       // the bytes of the initial symbols, then of the slots
  size_t text_start_ = 0;  // of slot 0
  PositionCounts<Position> word_counts_;

  std::vector<Symbol> symbols_;
  size_t symbol_bytes_ = 0;
  // If merges may make existing symbols:
  std::unordered_multimap<size_t, uint32_t> symbols_by_hash_;
  std::vector<uint64_t> live_;  // by symbol, its number of occurrences

  bool indexed_ = false;
  int64_t threshold_ = 1;
  PairTable pairs_;
  ZeroedArray<Position> arena_;
  uint64_t arena_used_ = 0;
  std::vector<PairTally> byte_pairs_;  // before the first merge
  double total_count_ = 0;
  std::vector<Candidate> heap_;

  std::vector<Occurrence> occurrences_;
  std::vector<PairTally> lefts_, rights_;  // by symbol
  std::vector<uint32_t> seen_lefts_, seen_rights_;
};

std::unique_ptr<MergeLearner::Engine> make_engine(const CountedWords& words,
                                                  const WordSymbols* splits,
                                                  MergeLearnerOptions options) {
  words.check();
  if (words.num_slots() <= std::numeric_limits<uint32_t>::max()) {
    return std::make_unique<PositionEngine<uint32_t>>(words, splits, std::move(options));
  }
  return std::make_unique<PositionEngine<uint64_t>>(words, splits, std::move(options));
}

}  // namespace

MergeLearner::MergeLearner(const uint8_t* keys, const int64_t* offsets, const int64_t* counts,
                           size_t n, MergeLearnerOptions options)
    : engine_(make_engine({keys, offsets, counts, n}, nullptr, std::move(options))) {}
MergeLearner::MergeLearner(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
MergeLearner MergeLearner::from_symbols(const std::vector<std::string>& symbols,
                                        const uint32_t* words, const int64_t* offsets,
                                        const int64_t* counts, size_t n,
                                        MergeLearnerOptions options) {
  const WordSymbols splits{symbols, words, offsets, n};
  const WordBytes bytes = splits.to_bytes();
  return MergeLearner(make_engine({bytes.keys.data(), bytes.offsets.data(), counts, n}, &splits,
                                  std::move(options)));
}
MergeLearner::~MergeLearner() = default;
MergeLearner::MergeLearner(MergeLearner&&) noexcept = default;
MergeLearner& MergeLearner::operator=(MergeLearner&&) noexcept = default;

bool MergeLearner::learn(size_t symbols, size_t max_steps) {
  return engine_->learn(symbols, max_steps);
}
const std::vector<LearnedMerge>& MergeLearner::merges() const { return engine_->merges; }
std::string MergeLearner::symbol(uint32_t id) const { return engine_->symbol(id); }
size_t MergeLearner::num_symbols() const { return engine_->num_symbols(); }
size_t MergeLearner::symbol_bytes() const { return engine_->symbol_bytes(); }
StopReason MergeLearner::stop_reason() const { return engine_->stop_reason; }
size_t MergeLearner::memory_bytes() const { return engine_->memory_bytes(); }

}  // namespace bpe
