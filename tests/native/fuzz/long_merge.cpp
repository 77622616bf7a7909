// Merging of pre-tokens of any length equals merging pair by pair. The input: merges as pairs of
// earlier tokens, then the text as short strings with the number of their repetitions.
#include "long_merge.hpp"

#include <map>
#include <optional>

#include "fuzz.hpp"
#include "merge_batch.hpp"
#include "merge_rules.hpp"

using namespace bpe;
using fuzz::check;

namespace {

constexpr size_t kMostBytes = 1500;

using Ids = std::vector<uint32_t>;

std::vector<MergeRule> read_rules(fuzz::Input& input) {
  std::vector<std::string> tokens;
  Ids ids;
  for (uint32_t byte = 'a'; byte < 'e'; ++byte) {
    tokens.emplace_back(1, static_cast<char>(byte));
    ids.push_back(byte);
  }
  std::map<std::string, uint32_t> id_of;
  std::vector<MergeRule> rules;
  // With shuffled numbers, a rule can precede the rules that produce its sides.
  const bool shuffles = input.flag();
  for (size_t left = input.below(64); left > 0; --left) {
    const size_t a = input.byte() % tokens.size();
    const size_t b = input.byte() % tokens.size();
    const std::string made = tokens[a] + tokens[b];
    if (made.size() > 400) continue;
    const auto [at, is_new] = id_of.emplace(made, 300 + static_cast<uint32_t>(id_of.size()));
    const auto place = shuffles ? input.byte() % (rules.size() + 1) : rules.size();
    rules.insert(rules.begin() + static_cast<std::ptrdiff_t>(place), {ids[a], ids[b], at->second});
    if (!is_new) continue;
    tokens.push_back(made);
    ids.push_back(at->second);
  }
  return rules;
}

Ids merge_simply(const std::vector<MergeRule>& rules, std::string_view text) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> ranks;
  for (uint32_t rank = 0; rank < rules.size(); ++rank) {
    ranks.emplace(std::pair(rules[rank].left, rules[rank].right), rank);
  }
  const auto rank_of = [&](uint32_t left, uint32_t right) {
    const auto found = ranks.find({left, right});
    return found == ranks.end() ? UINT32_MAX : found->second;
  };
  Ids ids(text.begin(), text.end());
  Ids ranks_at;  // of the pair that begins at each id
  for (size_t i = 0; i + 1 < ids.size(); ++i) ranks_at.push_back(rank_of(ids[i], ids[i + 1]));
  for (;;) {
    const auto best = std::ranges::min_element(ranks_at);
    if (best == ranks_at.end() || *best == UINT32_MAX) return ids;
    const auto at = best - ranks_at.begin();
    const auto i = static_cast<size_t>(at);
    ids[i] = rules[*best].result;
    ids.erase(ids.begin() + at + 1);
    ranks_at.erase(best);
    if (i > 0) ranks_at[i - 1] = rank_of(ids[i - 1], ids[i]);
    if (i + 1 < ids.size()) ranks_at[i] = rank_of(ids[i], ids[i + 1]);
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  const std::vector<MergeRule> list = read_rules(input);
  std::string text;
  while (!input.empty() && text.size() < kMostBytes) {
    const uint8_t shape = input.byte();
    std::string unit;
    for (const char byte : input.take(1 + (shape & 7))) {
      unit += static_cast<char>('a' + (static_cast<uint8_t>(byte) & 3));
    }
    for (size_t left = 1 + (shape >> 3) * (shape >> 3) / 4; left > 0; --left) text += unit;
  }
  text.resize(std::min(text.size(), kMostBytes));
  if (text.empty()) return 0;

  std::array<int64_t, 256> byte_ids;
  for (size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = static_cast<int64_t>(byte);
  const MergeRules rules(byte_ids, list, -1);
  const fuzz::Bytes bytes(text);
  const Ids expected = merge_simply(list, text);
  Ids ids;
  merge_long(rules, bytes.data(), bytes.size(), ids);
  check(ids == expected, "long pre-tokens are merged in their order");
  rules.merge(bytes.data(), bytes.size(), ids);
  check(ids == expected, "pre-tokens are merged in their order");
  // Prefixes of different lengths, side by side.
  std::vector<BatchItem> items(5);
  std::vector<fuzz::Bytes> prefixes;
  for (size_t i = 0; i < items.size(); ++i) {
    const size_t length = std::min(text.size(), BatchItem::kMostBytes) * (i + 1) / items.size();
    prefixes.emplace_back(std::string_view(text).substr(0, std::max<size_t>(length, 1)));
  }
  for (const BatchMerger merge_batch : {merge_batch_portable, avx2_batch_merger()}) {
    if (merge_batch == nullptr) continue;
    for (size_t i = 0; i < items.size(); ++i) {
      items[i].bytes = prefixes[i].data();
      items[i].length = items[i].readable = prefixes[i].size();
    }
    merge_batch(rules, items.data(), items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      check(Ids(items[i].ids, items[i].ids + items[i].count) ==
                merge_simply(list, prefixes[i].view()),
            "pre-tokens are merged side by side");
    }
  }
  return 0;
}
