#include "parity_learner.hpp"

#include <algorithm>
#include <deque>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include "counted_words.hpp"
#include "merge_index.hpp"
#include "pair_table.hpp"

// Each pair of the index has a vector of counts, one for each group. A pair is frequent if it is in
// one of the groups: each group has its own threshold, heap of candidates and end.
//
// Most words occur in few groups, and many in the same ones equally often. Words with equal counts
// in all groups share one sparse vector, whose place is their weight. Weights are in an array with
// an entry for each position, since few words have the same.

namespace bpe {

namespace {

constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
constexpr size_t kNoVector = std::numeric_limits<size_t>::max();
constexpr size_t kNoGroup = std::numeric_limits<size_t>::max();

struct GroupTally {
  size_t vector = kNoVector;  // its counts are tallies_[vector], ...
  uint64_t occurrences = 0;
  uint64_t list = 0;
};

struct GroupRecord {
  uint64_t key = 0;
  int64_t count = 0;  // sum of all groups
  uint64_t list = 0;
  uint64_t list_size = 0;
  size_t vector = 0;  // its counts are vectors_[vector], ...
};

struct GroupCount {
  uint32_t group;
  int64_t count;
};

// The distinct vectors of counts of words. The vector of weight w begins at entries[w], which has
// the number of its entries in place of a group; they follow. Weights begin with 1.
struct WordVectors {
  std::vector<GroupCount> entries = {{0, 0}};
  std::vector<int64_t> of_words;  // by word, its weight

  const GroupCount* begin(int64_t weight) const { return &entries[static_cast<size_t>(weight)]; }
};

// The weight of the word at a position.
template <typename Position>
class PositionWeights {
 public:
  void add(Position begin, int64_t weight) {
    finish(begin);
    weights_.push_back(static_cast<uint32_t>(weight));
  }

  void finish(Position end) { weights_.resize(end, weights_.empty() ? 0 : weights_.back()); }

  size_t memory_bytes() const { return allocated(weights_); }

  class Cursor {
   public:
    explicit Cursor(const PositionWeights& weights) : weights_(weights.weights_.data()) {}
    void prefetch(Position position) const { __builtin_prefetch(&weights_[position]); }
    int64_t at(Position position) const { return weights_[position]; }

   private:
    const uint32_t* weights_;
  };

 private:
  std::vector<uint32_t> weights_;
};

std::vector<int64_t> check_and_sum(const GroupedWords& words, size_t num_groups) {
  std::vector<int64_t> sums(words.n);
  for (size_t i = 0; i < words.n; ++i) {
    for (int64_t k = words.begins[i]; k < words.begins[i + 1]; ++k) {
      if (words.groups[k] < 0 || static_cast<size_t>(words.groups[k]) >= num_groups) {
        throw std::invalid_argument("groups: expected numbers below " + std::to_string(num_groups) +
                                    ", found " + std::to_string(words.groups[k]) + " at word " +
                                    std::to_string(i));
      }
      if (words.counts[k] < 1) {
        throw std::invalid_argument("counts: expected at least 1, found " +
                                    std::to_string(words.counts[k]) + " for word " +
                                    std::to_string(i));
      }
      if (__builtin_add_overflow(sums[i], words.counts[k], &sums[i])) {
        throw std::overflow_error("the count of word " + std::to_string(i) +
                                  " in all groups exceeds 2^63 - 1; scale the counts down");
      }
    }
  }
  return sums;
}

// Puts the vectors in ascending order of their sums, so that the words of the greatest weights are
// the most frequent.
WordVectors find_vectors(const GroupedWords& words, const std::vector<int64_t>& sums) {
  const auto hash = [&](size_t word) {
    uint64_t value = 0;
    for (int64_t k = words.begins[word]; k < words.begins[word + 1]; ++k) {
      value = (value ^ static_cast<uint32_t>(words.groups[k])) * 0x9e3779b97f4a7c15u;
      value = (value ^ value >> 32 ^ static_cast<uint64_t>(words.counts[k])) * 0x9e3779b97f4a7c15u;
    }
    return static_cast<size_t>(value ^ value >> 32);
  };
  const auto equal = [&](size_t a, size_t b) {
    const int64_t *first = words.begins + a, *second = words.begins + b;
    return first[1] - first[0] == second[1] - second[0] &&
           std::equal(words.groups + first[0], words.groups + first[1], words.groups + second[0]) &&
           std::equal(words.counts + first[0], words.counts + first[1], words.counts + second[0]);
  };
  std::unordered_map<size_t, size_t, decltype(hash), decltype(equal)> numbers(1024, hash, equal);
  std::vector<size_t> firsts;  // by number, the first word
  std::vector<size_t> number_of(words.n);
  for (size_t i = 0; i < words.n; ++i) {
    const auto [found, is_new] = numbers.try_emplace(i, firsts.size());
    if (is_new) firsts.push_back(i);
    number_of[i] = found->second;
  }
  std::vector<size_t> order(firsts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return sums[firsts[a]] < sums[firsts[b]]; });
  WordVectors vectors;
  std::vector<int64_t> weights(firsts.size());
  for (const size_t number : order) {
    const size_t word = firsts[number];
    const int64_t *first = words.begins + word, *end = first + 1;
    weights[number] = static_cast<int64_t>(vectors.entries.size());
    vectors.entries.push_back({static_cast<uint32_t>(*end - *first), 0});
    for (int64_t k = *first; k < *end; ++k) {
      vectors.entries.push_back({static_cast<uint32_t>(words.groups[k]), words.counts[k]});
    }
  }
  if (vectors.entries.size() > std::numeric_limits<uint32_t>::max()) {
    throw std::overflow_error("more than 2^32 different counts of words in groups");
  }
  for (const size_t number : number_of) vectors.of_words.push_back(weights[number]);
  return vectors;
}

template <typename Position>
class ParityEngine final : public MergeIndex<ParityEngine<Position>, Position, GroupTally,
                                             GroupRecord, PositionWeights<Position>> {
  using Index =
      MergeIndex<ParityEngine, Position, GroupTally, GroupRecord, PositionWeights<Position>>;
  friend Index;
  using typename Index::Candidate;
  using typename Index::Occurrence;

  using Index::add_symbol;
  using Index::allowed;
  using Index::any_pair_allowed;
  using Index::heap_order;
  using Index::initials_of;
  using Index::length_of;
  using Index::min_count_;
  using Index::occurrences_;
  using Index::pairs_;
  using Index::symbols_;
  using Index::tie_key;
  using Index::word_weights_;

 public:
  using Index::merges;
  using Index::num_symbols;
  using Index::stop_reason;

  // `words` has the weights of `vectors` as counts.
  ParityEngine(const CountedWords& words, WordVectors vectors, const ParityOptions& parity,
               MergeLearnerOptions options)
      : Index(words, nullptr, std::move(options)),
        parity_(parity),
        groups_(parity.num_groups),
        vectors_of_words_(std::move(vectors)),
        lengths_(groups_),
        chosen_(groups_),
        totals_(groups_ + 1),
        thresholds_(groups_ + 1, kNever),
        greatest_rare_(groups_ + 1),
        heaps_(groups_ + 1) {
    for (size_t i = 0; i < words.n; ++i) {
      const auto length = static_cast<int64_t>(words.length(i));
      for_lengths(words.counts[i], [&](size_t group, int64_t count) {
        int64_t tokens;
        if (__builtin_mul_overflow(length, count, &tokens) ||
            __builtin_add_overflow(lengths_[group], tokens, &lengths_[group])) {
          throw std::overflow_error("the bytes of group " + std::to_string(group) +
                                    " exceed 2^63 - 1; scale the counts down");
        }
      });
      if (length < 2) continue;
      for_counts(words.counts[i], [&](size_t group, int64_t count) {
        const double pairs = static_cast<double>(length - 1) * static_cast<double>(count);
        totals_[group] += pairs;
        totals_[groups_] += pairs;
      });
    }
    initial_lengths_ = lengths_;
  }

  bool learn(size_t symbols, size_t max_steps) override {
    if (!indexed_ && num_symbols() < symbols) begin(symbols - num_symbols());
    for (size_t step = 0; num_symbols() < symbols; ++step) {
      if (step == max_steps) return true;
      uint64_t pair;
      if (!choose_pair(pair)) {
        stop_reason =
            is_any_pair_left() ? StopReason::below_min_frequency : StopReason::no_pairs_left;
        return false;
      }
      merge(left_of(pair), right_of(pair));
    }
    stop_reason = StopReason::vocab_size_reached;
    return false;
  }

  size_t memory_bytes() const override {
    size_t bytes = Index::index_bytes() + allocated(vectors_of_words_.entries) +
                   allocated(tallies_) + allocated(vectors_);
    for (const auto& heap : heaps_) bytes += allocated(heap);
    return bytes;
  }

 private:
  template <class Visit>
  void for_entries(int64_t weight, Visit visit) const {
    const GroupCount* vector = vectors_of_words_.begin(weight);
    const GroupCount* end = vector + vector->group + 1;
    for (const GroupCount* entry = vector + 1; entry != end; ++entry) {
      visit(entry->group, entry->count);
    }
  }

  void prefetch(int64_t weight) const { __builtin_prefetch(vectors_of_words_.begin(weight)); }

  // Visits the counts to learn from.
  template <class Visit>
  void for_counts(int64_t weight, Visit visit) const {
    for_entries(weight, [&](size_t group, int64_t count) {
      if (group < groups_) visit(group, count);
    });
  }

  // Visits the counts that the groups are measured by.
  template <class Visit>
  void for_lengths(int64_t weight, Visit visit) const {
    const size_t first = parity_.ratios.empty() ? groups_ : 0;
    for_entries(weight, [&](size_t group, int64_t count) {
      if (group >= first) visit(group - first, count);
    });
  }

  // ---- choice of a group

  bool choose_pair(uint64_t& pair) {
    if (merges.size() < parity_.global_merges) return next_pair(groups_, pair);
    if (thresholds_[groups_] != kNever) end_group(groups_);
    for (;;) {
      const size_t group = choose_group();
      if (group == kNoGroup) return false;
      if (next_pair(group, pair)) return true;
      end_group(group);
    }
  }

  void end_group(size_t group) {
    thresholds_[group] = kNever;
    heaps_[group] = {};
  }

  // Returns the group that is compressed least, of those with pairs left that do not exceed their
  // share of the window; if all exceed it, the last.
  size_t choose_group() {
    size_t group = kNoGroup;
    std::vector<bool> passed(groups_);
    for (;;) {
      const size_t next = least_compressed(passed);
      if (next == kNoGroup) break;
      group = next;
      if (!exceeds_share(group)) break;
      passed[group] = true;
    }
    if (group != kNoGroup && parity_.window_size != 0) remember(group);
    return group;
  }

  size_t least_compressed(const std::vector<bool>& passed) const {
    size_t least = kNoGroup;
    for (size_t group = 0; group < groups_; ++group) {
      if (thresholds_[group] == kNever || passed[group]) continue;
      if (least == kNoGroup || is_less_compressed(group, least)) least = group;
    }
    return least;
  }

  bool is_less_compressed(size_t a, size_t b) const {
    if (parity_.ratios.empty()) return lengths_[a] > lengths_[b];
    return compression(a) < compression(b);
  }

  double compression(size_t group) const {
    return static_cast<double>(initial_lengths_[group]) / static_cast<double>(lengths_[group]) /
           parity_.ratios[group];
  }

  bool exceeds_share(size_t group) const {
    if (parity_.window_size == 0) return false;
    const double share =
        static_cast<double>(chosen_[group]) / static_cast<double>(parity_.window_size);
    return share > parity_.alpha / static_cast<double>(groups_);
  }

  void remember(size_t group) {
    window_.push_back(group);
    ++chosen_[group];
    if (window_.size() <= parity_.window_size) return;
    --chosen_[window_.front()];
    window_.pop_front();
  }

  bool is_any_pair_left() const {
    typename PositionWeights<Position>::Cursor weights(word_weights_);
    return any_pair_allowed([&](size_t position) {
      bool counts = false;
      for_counts(weights.at(static_cast<Position>(position)),
                 [&](size_t, int64_t) { counts = true; });
      return counts;
    });
  }

  // ---- candidates; group number groups_ is the sum of all

  int64_t count_of(const GroupRecord& record, size_t group) const {
    return group == groups_ ? record.count : vectors_[record.vector + group];
  }

  // Takes the best pair of a group off its heap, whose counts may be outdated (too large).
  bool next_pair(size_t group, uint64_t& pair) {
    std::vector<Candidate>& heap = heaps_[group];
    for (;;) {
      while (!heap.empty()) {
        std::pop_heap(heap.begin(), heap.end(), heap_order());
        Candidate& best = heap.back();
        const GroupRecord* record = pairs_.find(best.key);
        const int64_t count =
            record == nullptr || record->count == 0 ? 0 : count_of(*record, group);
        if (count < thresholds_[group]) {
          heap.pop_back();
        } else if (count != best.count) {
          best.count = count;
          std::push_heap(heap.begin(), heap.end(), heap_order());
        } else {
          pair = best.key;
          heap.pop_back();
          return true;
        }
      }
      if (!lower_threshold(group)) return false;
    }
  }

  // ---- thresholds

  void begin(size_t wanted) {
    // Half the mean count of the wanted merges. With a lower one, each group would have more
    // candidates; with a higher one, the index would be built more often.
    for (size_t group = 0; group < groups_ + (parity_.global_merges != 0); ++group) {
      const double guess = totals_[group] / static_cast<double>(wanted) / 2;
      thresholds_[group] = std::max(min_count_, static_cast<int64_t>(std::min(guess, 0x1p62)));
      if (totals_[group] == 0) thresholds_[group] = kNever;
    }
    rebuild();
  }

  bool lower_threshold(size_t group) {
    int64_t limit = kNever;
    while (thresholds_[group] > min_count_ && limit >= min_count_) {
      lower(group, limit);
      // Groups that need a lower threshold before long get it from the same rebuild.
      for (size_t other = 0; other <= groups_; ++other) {
        if (other != group && thresholds_[other] != kNever && is_nearly_used_up(other)) {
          lower(other, kNever);
        }
      }
      rebuild();
      if (!heaps_[group].empty()) return true;
      limit = greatest_rare_[group];
    }
    return false;
  }

  void lower(size_t group, int64_t limit) {
    constexpr int64_t kFactor = 4;
    thresholds_[group] = std::max(min_count_, std::min(thresholds_[group] / kFactor, limit));
  }

  bool is_nearly_used_up(size_t group) const {
    constexpr int64_t kNear = 8;
    return heaps_[group].empty() || heaps_[group].front().count / kNear < thresholds_[group];
  }

  // ---- index

  void rebuild() {
    indexed_ = true;
    is_rebuilding_ = true;
    pairs_.clear();
    vectors_.clear();
    for (auto& heap : heaps_) heap.clear();
    std::fill(greatest_rare_.begin(), greatest_rare_.end(), 0);
    Index::index_tokens();
    for (auto& heap : heaps_) std::make_heap(heap.begin(), heap.end(), heap_order());
    is_rebuilding_ = false;
  }

  void add_to(GroupTally& tally, int64_t weight) {
    if (tally.vector == kNoVector) {
      tally.vector = tallies_.size();
      tallies_.resize(tallies_.size() + groups_);
    }
    // May wrap around for the boundary, which is not used.
    uint64_t* counts = &tallies_[tally.vector];
    for_counts(weight,
               [&](size_t group, int64_t count) { counts[group] += static_cast<uint64_t>(count); });
  }

  void clear_tallies() { tallies_.clear(); }

  void subtract(GroupRecord& record, const GroupTally& tally) {
    for (size_t group = 0; group < groups_; ++group) {
      const auto count = static_cast<int64_t>(tallies_[tally.vector + group]);
      vectors_[record.vector + group] -= count;
      record.count -= count;
    }
  }

  void add_if_frequent(uint32_t left, uint32_t right, GroupTally& tally, uint64_t& next) {
    tally.list = kNoList;
    if (left == kBoundary || right == kBoundary || tally.occurrences == 0) return;
    int64_t sum = 0;
    bool is_frequent = false;
    for (size_t group = 0; group < groups_; ++group) {
      const auto count = static_cast<int64_t>(tallies_[tally.vector + group]);
      sum += count;
      is_frequent |= count >= thresholds_[group];
    }
    is_frequent |= sum >= thresholds_[groups_];
    if (is_rebuilding_) note_rare(tally, sum);
    if (!is_frequent || !allowed(left, right)) return;
    tally.list = next;
    next += tally.occurrences;
    const uint64_t key = pair_key(left, right);
    GroupRecord& record = pairs_.find_or_add(key, 1);
    record.count = sum;
    record.list = tally.list;
    record.list_size = tally.occurrences;
    record.vector = vectors_.size();
    const auto counts = tallies_.begin() + static_cast<ptrdiff_t>(tally.vector);
    vectors_.insert(vectors_.end(), counts, counts + static_cast<ptrdiff_t>(groups_));
    add_candidates(record);
  }

  void note_rare(const GroupTally& tally, int64_t sum) {
    const auto note = [&](size_t group, int64_t count) {
      if (count < thresholds_[group])
        greatest_rare_[group] = std::max(greatest_rare_[group], count);
    };
    for (size_t group = 0; group < groups_; ++group) {
      note(group, static_cast<int64_t>(tallies_[tally.vector + group]));
    }
    note(groups_, sum);
  }

  void add_candidates(const GroupRecord& record) {
    const uint64_t tie = tie_key(record.key, 0);
    for (size_t group = 0; group <= groups_; ++group) {
      const int64_t count = count_of(record, group);
      if (count < thresholds_[group]) continue;
      heaps_[group].push_back({count, tie, record.key});
      if (!is_rebuilding_) std::push_heap(heaps_[group].begin(), heaps_[group].end(), heap_order());
    }
  }

  // ---- merging

  void merge(uint32_t left, uint32_t right) {
    const GroupRecord pair = Index::take(left, right);
    const auto result = static_cast<uint32_t>(symbols_.size());
    Index::replace(pair, left, right, result);
    add_symbol(Index::place_of_result(), length_of(left, right), initials_of(left, right));
    for (const Occurrence& o : occurrences_) {
      for_lengths(o.weight, [&](size_t group, int64_t count) { lengths_[group] -= count; });
    }
    Index::update_index(pair, left, right, result);
    merges.push_back({left - 1, right - 1, result - 1, pair.count});
  }

  const ParityOptions parity_;
  const size_t groups_;
  const WordVectors vectors_of_words_;
  std::vector<int64_t> lengths_, initial_lengths_;  // by group, its number of tokens
  std::deque<size_t> window_;                       // the last choices
  std::vector<size_t> chosen_;                      // by group, how often it is in the window
  std::vector<double> totals_;                      // by group, its number of pairs at first

  // By group, and last for the sum of all:
  std::vector<int64_t> thresholds_;     // kNever: no pair of the group is a candidate any more
  std::vector<int64_t> greatest_rare_;  // greatest count below the threshold at the last rebuild
  std::vector<std::vector<Candidate>> heaps_;

  bool indexed_ = false;
  bool is_rebuilding_ = false;
  std::vector<uint64_t> tallies_;
  std::vector<int64_t> vectors_;
};

}  // namespace

MergeLearner make_parity_learner(const GroupedWords& words, const ParityOptions& parity,
                                 MergeLearnerOptions options) {
  if (options.tie_break == TieBreak::first_seen) {
    throw std::invalid_argument("tie_break: expected one that does not depend on the order");
  }
  if (!parity.ratios.empty() && parity.ratios.size() != parity.num_groups) {
    throw std::invalid_argument("ratios: expected " + std::to_string(parity.num_groups) +
                                ", found " + std::to_string(parity.ratios.size()));
  }
  const std::vector<int64_t> sums =
      check_and_sum(words, parity.num_groups * (parity.ratios.empty() ? 2 : 1));
  const CountedWords summed{words.keys, words.offsets, sums.data(), words.n};
  summed.check();
  summed.count_byte_pairs();  // throws if a pair's count would not fit into 64 bits
  WordVectors vectors = find_vectors(words, sums);
  const std::vector<int64_t> weights = std::move(vectors.of_words);
  const CountedWords weighted{words.keys, words.offsets, weights.data(), words.n};
  if (weighted.num_slots() <= std::numeric_limits<uint32_t>::max()) {
    return MergeLearner(std::make_unique<ParityEngine<uint32_t>>(weighted, std::move(vectors),
                                                                 parity, std::move(options)));
  }
  return MergeLearner(std::make_unique<ParityEngine<uint64_t>>(weighted, std::move(vectors), parity,
                                                               std::move(options)));
}

}  // namespace bpe
