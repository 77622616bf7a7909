// The text of merge learning and the index of its pairs, for learners with one count or several
// counts a pair.
//
// All words are in one array of slots, with one slot for every byte and one between words. A token
// occupies as many slots as it has bytes. Its first slot contains its symbol; its last slot, if it
// has several, contains the symbol with a flag, so that the neighbours on both sides can be found
// directly. All other slots of a token are flagged too, since each was the start of a token before:
// a slot without the flag is the start of a token or a boundary between words.
//
// The index contains, for each *frequent* pair, its exact count and the ascending list of its
// positions. Positions are not removed from a list when they end: one is live if the slots still
// contain the pair there. Frequent means a count of at least a threshold. Most of the pairs that
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
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "counted_words.hpp"
#include "merge_learner.hpp"
#include "pair_table.hpp"
#include "utf8.hpp"
#include "zeroed_array.hpp"

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

// Internally, symbol 0 is the boundary between words and symbol s + 1 is the user's symbol s.
inline constexpr uint32_t kBoundary = 0;
inline constexpr uint32_t kInner = 0x80000000u;
inline constexpr uint32_t kMaxSymbols = kInner - 2;
inline constexpr uint64_t kNoList = std::numeric_limits<uint64_t>::max();
inline constexpr size_t kPrefetchDistance = 16;
inline constexpr size_t kTablePrefetch = 8;

template <typename T>
size_t allocated(const std::vector<T>& v) {
  return v.capacity() * sizeof(T);
}

// The order of bytes by GPT-2's printable stand-ins: first the bytes that stand for themselves,
// then the others, whose stand-ins are U+0100 and up.
inline std::array<uint32_t, 256> huggingface_byte_order() {
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

// Position: an unsigned integer for the index of a slot. Tally: sums for a pair, with `occurrences`
// and `list` as in PairTally. Record: what the index contains for a pair, with the members of
// PairRecord; its count is 0 if the pair does not occur any more.
//
// A word has a weight: a number from which Learner finds its count or counts. Weights, such as
// PositionCounts, finds the weight of the word at a position. Learner has
//   void prefetch(int64_t weight)
//   void add_to(Tally&, int64_t weight)
//   void subtract(Record&, const Tally&)
//   void clear_tallies()  // all tallies are cleared
//   void add_if_frequent(uint32_t left, uint32_t right, Tally&, uint64_t& next)
// The last adds a pair to the index if it is frequent and allowed, with a list, to be filled later,
// at `next`, and sets tally.list to it or to kNoList. Before, tally.list is the first position.
template <class Learner, typename Position, class Tally, class Record, class Weights>
class MergeIndex : public MergeLearner::Engine {
 public:
  std::string symbol(uint32_t id) const override {
    if (id >= num_symbols()) {
      throw std::invalid_argument("symbol: expected a number below " +
                                  std::to_string(num_symbols()) + ", found " + std::to_string(id));
    }
    return std::string(bytes(id + 1));
  }

  size_t num_symbols() const override { return symbols_.size() - 1; }
  size_t symbol_bytes() const override { return symbol_bytes_; }

 protected:
  // splits: the symbols of the words, for symbols other than the 256 bytes. Words of equal counts
  // get that count as their weight.
  MergeIndex(const CountedWords& words, const WordSymbols* splits, MergeLearnerOptions options)
      : tie_break_(options.tie_break),
        min_count_(std::max<int64_t>(1, options.min_frequency)),
        max_token_bytes_(options.max_token_bytes),
        max_initials_(options.max_initial_symbols),
        forbid_whitespace_(options.forbid_whitespace_tokens),
        byte_order_(huggingface_byte_order()),
        num_slots_(words.num_slots()),
        slots_(num_slots_),
        arena_(2 * num_slots_) {
    for (std::string& token : options.forbidden_tokens) {
      forbidden_lengths_.insert(token.size());
      forbidden_.insert(std::move(token));
    }
    symbols_.push_back({0, 1, 1});
    if (splits == nullptr) {
      for (int byte = 0; byte < 256; ++byte) {
        add_initial_symbol(std::string(1, static_cast<char>(byte)));
      }
    } else {
      for (const std::string& symbol : splits->symbols) add_initial_symbol(symbol);
    }
    lay_out(words, splits);
  }

  size_t index_bytes() const {
    return num_slots_ * sizeof(uint32_t) + arena_used_ * sizeof(Position) + text_.capacity() +
           word_weights_.memory_bytes() + allocated(symbols_) + allocated(merges) +
           pairs_.memory_bytes() + allocated(occurrences_) + allocated(lefts_) + allocated(rights_);
  }

  struct Symbol {
    size_t begin;  // its bytes are text_[begin, begin + length)
    size_t length;
    size_t initials;  // the number of initial symbols in it
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
    int64_t weight;  // of the word
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
      word_weights_.add(static_cast<Position>(position), words.counts[order[i]]);
      std::memcpy(&text_[text_start_ + position], word, length);
      if (splits == nullptr) {
        for (size_t k = 0; k < length; ++k) slots_[position + k] = word[k] + 1u;
      } else {
        lay_out_symbols(position, splits->begin(order[i]), splits->end(order[i]));
      }
      position += length + 1;
    }
    word_weights_.finish(static_cast<Position>(position));
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
    add_symbol(text_.size() - symbol.size(), symbol.size(), 1);
  }

  void add_symbol(size_t begin, size_t length, size_t initials) {
    if (symbols_.size() > kMaxSymbols) throw std::overflow_error("more than 2^31 - 2 symbols");
    symbols_.push_back({begin, length, initials});
    symbol_bytes_ += length;
    lefts_.resize(symbols_.size());
    rights_.resize(symbols_.size());
  }

  bool allowed(uint32_t left, uint32_t right) const {
    const size_t length = symbols_[left].length + symbols_[right].length;
    if (max_token_bytes_ != 0 && length > max_token_bytes_) return false;
    if (max_initials_ != 0 && initials_of(left, right) > max_initials_) return false;
    if (forbid_whitespace_ && is_blank(joined(left, right))) return false;
    if (forbidden_.empty() || !forbidden_lengths_.contains(length)) return true;
    return !forbidden_.contains(joined(left, right));
  }

  // ---- order of candidates

  bool compares_bytes() const {
    return tie_break_ == TieBreak::lexicographic || tie_break_ == TieBreak::stand_ins;
  }

  uint32_t place_of(char byte) const {
    const auto value = static_cast<uint8_t>(byte);
    return tie_break_ == TieBreak::lexicographic ? value : byte_order_[value];
  }

  int compare(std::string_view a, std::string_view b) const {
    if (tie_break_ == TieBreak::lexicographic) return a.compare(b);
    const auto [in_a, in_b] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
    if (in_a == a.end() || in_b == b.end()) return (in_a != a.end()) - (in_b != b.end());
    return place_of(*in_a) < place_of(*in_b) ? -1 : 1;
  }

  uint64_t tie_key(uint64_t pair, uint64_t first_place) const {
    if (tie_break_ == TieBreak::first_seen) return ~first_place;
    if (compares_bytes()) {
      // The first 8 bytes of left: the other bytes are only needed if these are equal.
      const std::string_view left = bytes(left_of(pair));
      uint64_t key = 0;
      for (size_t i = 0; i < 8; ++i) {
        key = key << 8 | (i < left.size() ? place_of(left[i]) : 0u);
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
    if (compares_bytes()) {
      const int left = compare(bytes(left_of(a.key)), bytes(left_of(b.key)));
      if (left != 0) return left < 0;
      const int right = compare(bytes(right_of(a.key)), bytes(right_of(b.key)));
      if (right != 0) return right < 0;
    }
    return a.key > b.key;  // symbols of equal bytes: the first
  }

  auto heap_order() const {
    return [this](const Candidate& a, const Candidate& b) { return goes_after(a, b); };
  }

  // Returns true if a pair at one of the positions that `counts` selects may be merged.
  template <class Select>
  bool any_pair_allowed(Select counts) const {
    bool found = false;
    for_each_token([&](size_t i, uint32_t symbol) {
      const uint32_t right = slots_[i + symbols_[symbol].length];
      found = found || (right != kBoundary && counts(i) && allowed(symbol, right));
    });
    return found;
  }

  // Adds all frequent pairs of the current tokens to the index, which must be empty.
  void index_tokens() {
    const std::vector<uint64_t> starts = sort_tokens_by_symbol();
    arena_used_ = 0;
    for (uint32_t symbol = 1; symbol < symbols_.size(); ++symbol) {
      load_occurrences(symbol, starts[symbol], starts[symbol + 1]);
      count_rights();
      // Lists take no more room than the tokens, so tokens that were not loaded yet are not
      // overwritten.
      add_rights(symbol, arena_used_);
      write_rights();
      clear_neighbours();
    }
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
    typename Weights::Cursor weights(word_weights_);
    const size_t length = symbols_[symbol].length;
    for (uint64_t i = begin; i < end; ++i) {
      if (i + kPrefetchDistance < end) {
        __builtin_prefetch(&slots_[arena_[i + kPrefetchDistance]]);
        weights.prefetch(arena_[i + kPrefetchDistance]);
      }
      const Position position = arena_[i];
      occurrences_.push_back(
          {position, kBoundary, slots_[position + length], weights.at(position)});
      self().prefetch(occurrences_.back().weight);
    }
  }

  void count_neighbour(std::vector<Tally>& neighbours, std::vector<uint32_t>& seen, uint32_t symbol,
                       const Occurrence& o) {
    Tally& neighbour = neighbours[symbol];
    if (neighbour.occurrences++ == 0) {
      seen.push_back(symbol);
      neighbour.list = o.position;
    }
    self().add_to(neighbour, o.weight);
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
    self().clear_tallies();
  }

  // Adds the frequent pairs (symbol, right), with lists from `next` on.
  void add_rights(uint32_t symbol, uint64_t& next) {
    for (const uint32_t right : seen_rights_) {
      self().add_if_frequent(symbol, right, rights_[right], next);
    }
  }

  void add_lefts(uint32_t symbol, uint64_t& next) {
    for (const uint32_t left : seen_lefts_) {
      if (left == symbol) {
        lefts_[left].list = kNoList;  // (symbol, symbol) is one of the rights
      } else {
        lefts_[left].list -= symbols_[left].length;
        self().add_if_frequent(left, symbol, lefts_[left], next);
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

  // Takes the pair out of the index. Its list stays where it is.
  Record take(uint32_t left, uint32_t right) {
    Record taken;
    if (Record* record = pairs_.find(pair_key(left, right))) {
      taken = *record;
      record->count = 0;
      record->list_size = 0;
    }
    return taken;
  }

  // Brings the index up to date after `replace`.
  void update_index(const Record& pair, uint32_t left, uint32_t right, uint32_t result) {
    count_lefts();
    count_rights();
    decrease_around(left, right, result);
    index_result(pair, result);
    clear_neighbours();
  }

  std::string joined(uint32_t left, uint32_t right) const {
    return std::string(bytes(left)).append(bytes(right));
  }

  size_t length_of(uint32_t left, uint32_t right) const {
    return symbols_[left].length + symbols_[right].length;
  }

  size_t initials_of(uint32_t left, uint32_t right) const {
    return symbols_[left].initials + symbols_[right].initials;
  }

  // Position in text_ of the bytes of the symbol just made.
  size_t place_of_result() const { return text_start_ + occurrences_.front().position; }

  // Indexes the pairs that the merge of `pair` created. At most one of each two positions needs new
  // room, since the merged pair's list is not needed any more. As every position is one token less,
  // the arena, twice as large as the slots, never runs full.
  void index_result(const Record& pair, uint32_t result) {
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
      if (symbol != result) decrease(symbol, left, lefts_[symbol]);
    }
    for (size_t i = 0; i < seen_rights_.size(); ++i) {
      if (i + kTablePrefetch < seen_rights_.size()) {
        pairs_.prefetch(pair_key(right, seen_rights_[i + kTablePrefetch]));
      }
      // If the result follows itself, this was removed before.
      const uint32_t symbol = seen_rights_[i];
      decrease(right, symbol == result ? left : symbol, rights_[symbol]);
    }
  }

  void decrease(uint32_t left, uint32_t right, const Tally& tally) {
    if (left == kBoundary || right == kBoundary) return;
    Record* record = pairs_.find(pair_key(left, right));
    if (record != nullptr && record->count != 0) self().subtract(*record, tally);
  }

  // Replaces every live occurrence of the pair by `result`, from left to right, and fills
  // occurrences_ with the results.
  void replace(const Record& pair, uint32_t left, uint32_t right, uint32_t result) {
    occurrences_.clear();
    occurrences_.reserve(pair.list_size);
    const auto left_length = static_cast<Position>(symbols_[left].length);
    const auto right_length = static_cast<Position>(symbols_[right].length);
    const Position* list = arena_.data() + pair.list;
    uint32_t* slots = slots_.data();
    typename Weights::Cursor weights(word_weights_);
    for (uint64_t i = 0; i < std::min<uint64_t>(kPrefetchDistance, pair.list_size); ++i) {
      __builtin_prefetch(&slots[list[i]]);
    }
    for (uint64_t i = 0; i < pair.list_size; ++i) {
      if (i + kPrefetchDistance < pair.list_size) {
        __builtin_prefetch(&slots[list[i + kPrefetchDistance]]);
        weights.prefetch(list[i + kPrefetchDistance]);
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
      occurrences_.push_back({position, before, slots[end], weights.at(position)});
      self().prefetch(occurrences_.back().weight);
    }
  }

  const TieBreak tie_break_;
  const int64_t min_count_;
  const size_t max_token_bytes_;
  const size_t max_initials_;
  const bool forbid_whitespace_;
  const std::array<uint32_t, 256> byte_order_;
  std::unordered_set<std::string> forbidden_;
  std::unordered_set<size_t> forbidden_lengths_;

  const size_t num_slots_;
  ZeroedArray<uint32_t> slots_;
  std::string text_;       // the bytes of the initial symbols, then of the slots
  size_t text_start_ = 0;  // of slot 0
  Weights word_weights_;

  std::vector<Symbol> symbols_;
  size_t symbol_bytes_ = 0;

  PairTable<Record> pairs_;
  ZeroedArray<Position> arena_;
  uint64_t arena_used_ = 0;

  std::vector<Occurrence> occurrences_;
  std::vector<Tally> lefts_, rights_;  // by symbol
  std::vector<uint32_t> seen_lefts_, seen_rights_;

 private:
  Learner& self() { return static_cast<Learner&>(*this); }
};

}  // namespace bpe
