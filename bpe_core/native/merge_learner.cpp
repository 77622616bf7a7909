#include "merge_learner.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "counted_words.hpp"
#include "merge_index.hpp"
#include "pair_table.hpp"

// If ties depend on it (first_seen), positions follow the given order of the words: the first
// occurrence of a pair is then the first live position of its list. Lists only lose positions, so
// the heap contains a lower bound of the first occurrence, which is corrected like a count when the
// pair comes to the top. Otherwise words of equal count are adjacent.

namespace bpe {

namespace {

// Position: an unsigned integer for the index of a slot.
template <typename Position>
class PositionEngine final : public MergeIndex<PositionEngine<Position>, Position, PairTally,
                                               PairRecord, PositionCounts<Position>> {
  using Index =
      MergeIndex<PositionEngine, Position, PairTally, PairRecord, PositionCounts<Position>>;
  friend Index;
  using typename Index::Candidate;

  using Index::add_symbol;
  using Index::allowed;
  using Index::any_pair_allowed;
  using Index::arena_;
  using Index::arena_used_;
  using Index::bytes;
  using Index::for_each_token;
  using Index::heap_order;
  using Index::index_tokens;
  using Index::initials_of;
  using Index::joined;
  using Index::length_of;
  using Index::min_count_;
  using Index::num_slots_;
  using Index::occurrences_;
  using Index::pairs_;
  using Index::place_of_result;
  using Index::replace;
  using Index::slots_;
  using Index::symbols_;
  using Index::take;
  using Index::tie_break_;
  using Index::tie_key;
  using Index::update_index;

 public:
  using Index::merges;
  using Index::num_symbols;
  using Index::stop_reason;

  // splits: the symbols of the words, for symbols other than the 256 bytes.
  PositionEngine(const CountedWords& words, const WordSymbols* splits, MergeLearnerOptions options)
      : Index(words, splits, options),
        reuses_symbols_(splits != nullptr && !options.always_new),
        byte_pairs_(words.count_byte_pairs()) {
    for (const PairTally& pair : byte_pairs_) total_count_ += static_cast<double>(pair.count);
    // Only the bytes' pairs are counted at this point, and without their first positions.
    if (splits != nullptr || tie_break_ == TieBreak::first_seen) byte_pairs_ = {};
    if (!reuses_symbols_) return;
    live_.resize(symbols_.size());
    for (uint32_t symbol = 1; symbol < symbols_.size(); ++symbol) add_to_hash(symbol);
    count_symbols();
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
        stop_reason = any_pair_allowed([](size_t) { return true; })
                          ? StopReason::below_min_frequency
                          : StopReason::no_pairs_left;
        return false;
      }
      merge(left_of(pair), right_of(pair));
    }
    stop_reason = StopReason::vocab_size_reached;
    return false;
  }

  size_t memory_bytes() const override {
    constexpr size_t kNodeBytes = 40;
    return Index::index_bytes() + allocated(byte_pairs_) + symbols_by_hash_.size() * kNodeBytes +
           allocated(live_) + allocated(heap_);
  }

 private:
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

  // ---- index

  // Indexes all pairs of the current tokens from scratch. Returns the greatest count below the
  // threshold.
  int64_t rebuild() {
    indexed_ = true;
    pairs_.clear();
    heap_.clear();
    greatest_rare_ = 0;
    if (byte_pairs_.empty()) {
      index_tokens();
    } else {
      index_byte_pairs();
    }
    std::make_heap(heap_.begin(), heap_.end(), heap_order());
    return greatest_rare_;
  }

  // While nothing is merged.
  void index_byte_pairs() {
    arena_used_ = 0;
    for (uint32_t i = 0; i < byte_pairs_.size(); ++i) {
      add_if_frequent((i >> 8) + 1, (i & 255) + 1, byte_pairs_[i], arena_used_);
    }
    for (size_t i = 1; i + 1 < num_slots_; ++i) {
      if (slots_[i] == kBoundary || slots_[i + 1] == kBoundary) continue;
      uint64_t& list = byte_pairs_[(slots_[i] - 1) << 8 | (slots_[i + 1] - 1)].list;
      if (list != kNoList) arena_[list++] = static_cast<Position>(i);
    }
  }

  // May wrap around for the boundary, which is not used.
  static void add_to(PairTally& tally, int64_t count) {
    tally.count += static_cast<uint64_t>(count);
  }

  static void subtract(PairRecord& record, const PairTally& tally) {
    record.count -= static_cast<int64_t>(tally.count);
  }

  static void clear_tallies() {}

  static void prefetch(int64_t) {}

  void add_if_frequent(uint32_t left, uint32_t right, PairTally& tally, uint64_t& next) {
    const uint64_t first_place = tally.list;
    tally.list = kNoList;
    if (left == kBoundary || right == kBoundary || tally.occurrences == 0) return;
    const auto count = static_cast<int64_t>(tally.count);
    if (count < threshold_) {
      greatest_rare_ = std::max(greatest_rare_, count);
      return;
    }
    if (!allowed(left, right)) return;
    tally.list = next;
    next += tally.occurrences;
    const uint64_t key = pair_key(left, right);
    PairRecord& record = pairs_.find_or_add(key, threshold_);
    record.count = count;
    record.list = tally.list;
    record.list_size = tally.occurrences;
    heap_.push_back({count, tie_key(key, first_place), key});
  }

  // ---- merging

  void merge(uint32_t left, uint32_t right) {
    const PairRecord pair = take(left, right);
    byte_pairs_ = {};
    uint32_t result = reuses_symbols_ ? find_symbol(joined(left, right)) : kBoundary;
    const bool is_new = result == kBoundary;
    if (is_new) result = static_cast<uint32_t>(symbols_.size());
    replace(pair, left, right, result);
    // Only occurrences of two equal tokens can overlap.
    const int64_t applied = left == right ? weight_of_occurrences() : pair.count;
    if (is_new) add_symbol(place_of_result(), length_of(left, right), initials_of(left, right));
    if (is_new && reuses_symbols_) {
      live_.resize(symbols_.size());
      add_to_hash(result);
    }
    if (reuses_symbols_ && update_live(left, right, result)) {
      rebuild();
    } else {
      const size_t num_candidates = heap_.size();
      update_index(pair, left, right, result);
      for (size_t i = num_candidates; i < heap_.size(); ++i) {
        std::push_heap(heap_.begin(), heap_.begin() + static_cast<ptrdiff_t>(i + 1), heap_order());
      }
    }
    merges.push_back({left - 1, right - 1, result - 1, pair.count, applied});
  }

  int64_t weight_of_occurrences() const {
    int64_t sum = 0;
    for (const auto& occurrence : occurrences_) sum += occurrence.weight;
    return sum;
  }

  // Returns true if the result occurred before.
  bool update_live(uint32_t left, uint32_t right, uint32_t result) {
    const bool occurred = live_[result] != 0;
    live_[left] -= occurrences_.size();
    live_[right] -= occurrences_.size();
    live_[result] += occurrences_.size();
    return occurred;
  }

  const bool reuses_symbols_;
  // If merges may make existing symbols:
  std::unordered_multimap<size_t, uint32_t> symbols_by_hash_;
  std::vector<uint64_t> live_;  // by symbol, its number of occurrences

  bool indexed_ = false;
  int64_t threshold_ = 1;
  int64_t greatest_rare_ = 0;  // greatest count below the threshold, when the index was built
  std::vector<PairTally> byte_pairs_;  // before the first merge
  double total_count_ = 0;
  std::vector<Candidate> heap_;
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
