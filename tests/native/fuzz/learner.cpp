// Compares the learner of merges with one that counts all pairs again before each merge. The input
// consists of options and of words with their counts.
#include <map>
#include <optional>

#include "fuzz.hpp"
#include "merge_learner.hpp"
#include "parity_learner.hpp"
#include "utf8.hpp"

using namespace bpe;
using fuzz::check;

namespace {

using Pair = std::pair<uint32_t, uint32_t>;

struct Word {
  std::vector<uint32_t> symbols;
  int64_t count;
};

std::vector<uint32_t> stand_ins_of(std::string_view bytes) {
  std::vector<uint32_t> stand_ins;
  for (const char c : bytes) {
    uint32_t next = 0x100;
    for (uint32_t byte = 0;; ++byte) {
      const bool is_itself =
          (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
      if (byte == static_cast<uint8_t>(c)) {
        stand_ins.push_back(is_itself ? byte : next);
        break;
      }
      if (!is_itself) ++next;
    }
  }
  return stand_ins;
}

class SimpleLearner {
 public:
  SimpleLearner(std::vector<std::string> symbols, std::vector<Word> words,
                MergeLearnerOptions options)
      : symbols_(std::move(symbols)),
        initials_(symbols_.size(), 1),
        words_(std::move(words)),
        options_(std::move(options)) {}

  StopReason learn(size_t num_symbols, size_t most_merges) {
    while (symbols_.size() < num_symbols && merges.size() < most_merges) {
      std::map<Pair, int64_t> counts;
      std::vector<Pair> order;
      for (const Word& word : words_) {
        for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
          const Pair pair = {word.symbols[i], word.symbols[i + 1]};
          if (!is_allowed(pair)) continue;
          if (counts.emplace(pair, 0).second) order.push_back(pair);
          counts[pair] += word.count;
        }
      }
      if (order.empty()) return StopReason::no_pairs_left;
      int64_t most = 0;
      for (const auto& [pair, count] : counts) most = std::max(most, count);
      if (most < options_.min_frequency) return StopReason::below_min_frequency;
      std::optional<Pair> best;
      for (const Pair& pair : order) {
        if (counts[pair] == most && (!best || is_better(pair, *best))) best = pair;
      }
      merge(*best, most);
    }
    return StopReason::vocab_size_reached;
  }

  std::vector<LearnedMerge> merges;
  const std::vector<std::string>& symbols() const { return symbols_; }

 private:
  std::string joined(const Pair& pair) const {
    return symbols_[pair.first] + symbols_[pair.second];
  }
  bool is_allowed(const Pair& pair) const {
    const std::string made = joined(pair);
    if (options_.max_token_bytes != 0 && made.size() > options_.max_token_bytes) return false;
    if (options_.forbid_whitespace_tokens && is_blank(made)) return false;
    const size_t initials = initials_[pair.first] + initials_[pair.second];
    if (options_.max_initial_symbols != 0 && initials > options_.max_initial_symbols) return false;
    return std::ranges::count(options_.forbidden_tokens, made) == 0;
  }
  // Returns whether `pair` goes before `other`, which occurs earlier.
  bool is_better(const Pair& pair, const Pair& other) const {
    const auto texts = [&](const Pair& of) {
      return std::pair(symbols_[of.first], symbols_[of.second]);
    };
    const auto printed = [&](const Pair& of) {
      return std::pair(stand_ins_of(symbols_[of.first]), stand_ins_of(symbols_[of.second]));
    };
    const auto places = [&](const Pair& of) {
      return std::pair(place(of.first), place(of.second));
    };
    switch (options_.tie_break) {
      case TieBreak::lexicographic:
        // Symbols of equal bytes: the first one.
        if (texts(pair) == texts(other)) return pair < other;
        return bytes_of(texts(pair)) > bytes_of(texts(other));
      case TieBreak::first_id:
        return pair < other;
      case TieBreak::huggingface:
        return places(pair) < places(other);
      case TieBreak::stand_ins:
        return printed(pair) > printed(other);
      case TieBreak::first_seen:
        return false;
    }
    return false;
  }
  using Bytes = std::vector<uint8_t>;
  static std::pair<Bytes, Bytes> bytes_of(const std::pair<std::string, std::string>& texts) {
    return {Bytes(texts.first.begin(), texts.first.end()),
            Bytes(texts.second.begin(), texts.second.end())};
  }
  // Single bytes first, in the order of their stand-ins.
  std::pair<int, uint32_t> place(uint32_t symbol) const {
    if (symbols_[symbol].size() > 1) return {1, symbol};
    return {0, stand_ins_of(symbols_[symbol])[0]};
  }

  void merge(const Pair& pair, int64_t count) {
    const std::string made = joined(pair);
    uint32_t result = static_cast<uint32_t>(symbols_.size());
    for (uint32_t i = 0; i < symbols_.size() && !options_.always_new; ++i) {
      if (symbols_[i] == made) {
        result = i;
        break;
      }
    }
    if (result == symbols_.size()) {
      symbols_.push_back(made);
      initials_.push_back(initials_[pair.first] + initials_[pair.second]);
    }
    for (Word& word : words_) {
      for (size_t i = 0; i + 1 < word.symbols.size(); ++i) {
        if (word.symbols[i] != pair.first || word.symbols[i + 1] != pair.second) continue;
        word.symbols[i] = result;
        word.symbols.erase(word.symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
      }
    }
    merges.push_back({pair.first, pair.second, result, count});
  }

  std::vector<std::string> symbols_;
  std::vector<size_t> initials_;
  std::vector<Word> words_;
  MergeLearnerOptions options_;
};

std::vector<std::string> all_bytes() {
  std::vector<std::string> symbols;
  for (int byte = 0; byte < 256; ++byte) symbols.emplace_back(1, static_cast<char>(byte));
  return symbols;
}

constexpr size_t kMostMerges = 24;

void compare(MergeLearner learner, SimpleLearner& simple, size_t num_symbols, size_t step) {
  const StopReason reason = simple.learn(num_symbols, kMostMerges);
  bool goes_on = true;
  while (goes_on && learner.merges().size() < kMostMerges) {
    goes_on = learner.learn(num_symbols, std::min(step, kMostMerges - learner.merges().size()));
  }
  const std::vector<LearnedMerge>& merges = learner.merges();
  check(merges.size() == simple.merges.size(), "the number of merges");
  for (size_t i = 0; i < merges.size(); ++i) {
    const LearnedMerge& expected = simple.merges[i];
    check(merges[i].left == expected.left && merges[i].right == expected.right, "a merged pair");
    check(merges[i].result == expected.result, "the result of a merge");
    check(merges[i].count == expected.count, "the count of a merge");
  }
  if (merges.size() < kMostMerges && !goes_on) {
    check(learner.stop_reason() == reason, "why learning ends");
  }
  check(learner.num_symbols() == simple.symbols().size(), "the number of symbols");
  for (uint32_t i = 0; i < learner.num_symbols(); ++i) {
    check(learner.symbol(i) == simple.symbols()[i], "the bytes of a symbol");
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  if (size > 600) return 0;
  fuzz::Input input(data, size);
  const uint8_t options = input.byte();
  MergeLearnerOptions rules;
  rules.tie_break = static_cast<TieBreak>(input.below(5));
  rules.min_frequency = input.below(4);
  rules.max_token_bytes = input.below(9);
  if ((options & 1) != 0) rules.forbidden_tokens = {std::string(input.take(2)), "aaaa"};
  rules.forbid_whitespace_tokens = (options & 2) != 0;
  const size_t step = 1 + input.below(5);
  const size_t more_symbols = 1 + input.below(30);

  std::vector<std::string> symbols = all_bytes();
  const bool has_symbols = (options & 4) != 0;
  if (has_symbols) {
    rules.always_new = (options & 8) != 0;
    rules.max_initial_symbols = input.below(6);
    // Few bytes and short strings of them: words consist of any of these.
    symbols = {"a", "b", " ", "é"};
    for (size_t left = input.below(6); left > 0; --left) {
      const std::string symbol(input.take(1 + input.below(3)));
      if (!symbol.empty()) symbols.push_back(symbol);
    }
    // Their order is that of single bytes, which these need not be.
    if (rules.tie_break == TieBreak::huggingface || rules.tie_break == TieBreak::stand_ins) {
      rules.tie_break = TieBreak::lexicographic;
    }
  }
  std::vector<Word> words;
  std::vector<std::string> texts;
  std::vector<uint32_t> flat;
  std::vector<int64_t> offsets = {0};
  std::vector<int64_t> counts;
  while (!input.empty()) {
    Word word{{}, 1 + input.below(6)};
    texts.emplace_back();
    for (const char byte : input.take(input.below(12))) {
      const uint32_t symbol =
          has_symbols ? static_cast<uint32_t>(static_cast<uint8_t>(byte) % symbols.size())
                      : static_cast<uint8_t>(byte);
      word.symbols.push_back(symbol);
      flat.push_back(symbol);
      texts.back().push_back(byte);
    }
    offsets.push_back(static_cast<int64_t>(flat.size()));
    counts.push_back(word.count);
    words.push_back(std::move(word));
  }
  SimpleLearner simple(symbols, words, rules);
  const size_t num_symbols = symbols.size() + more_symbols;
  if (has_symbols) {
    compare(MergeLearner::from_symbols(symbols, flat.data(), offsets.data(), counts.data(),
                                       counts.size(), rules),
            simple, num_symbols, step);
    return 0;
  }
  const fuzz::Columns columns(texts);
  compare(MergeLearner(columns.bytes.data(), columns.offsets.data(), counts.data(), counts.size(),
                       rules),
          simple, num_symbols, step);
  if ((options & 16) == 0 || rules.tie_break == TieBreak::first_seen ||
      rules.tie_break == TieBreak::huggingface) {
    return 0;
  }
  // One group alone is always the least compressed.
  std::vector<int64_t> begins = {0};
  for (size_t i = 0; i < counts.size(); ++i) begins.push_back(static_cast<int64_t>(i) + 1);
  const std::vector<int32_t> groups(counts.size(), 0);
  ParityOptions parity;
  parity.num_groups = 1;
  parity.ratios = {1.0};
  SimpleLearner again(symbols, words, rules);
  compare(make_parity_learner({columns.bytes.data(), columns.offsets.data(), begins.data(),
                               groups.data(), counts.data(), counts.size()},
                              parity, rules),
          again, num_symbols, step);
  return 0;
}
