#include "merge_rules.hpp"

#include <algorithm>
#include <stdexcept>
#include <unordered_map>

#include "long_merge.hpp"

namespace bpe {
namespace {

// Symbols by id. The ids of most tokenizers are dense enough for an array.
class SymbolOfId {
 public:
  explicit SymbolOfId(size_t dense) : dense_(dense, kNone) {}

  // The symbol of the id, which is assigned now if it has none.
  uint32_t emplace(uint32_t id, uint32_t symbol) {
    if (id >= dense_.size()) return sparse_.emplace(id, symbol).first->second;
    if (dense_[id] == kNone) dense_[id] = symbol;
    return dense_[id];
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  std::vector<uint32_t> dense_;
  std::unordered_map<uint32_t, uint32_t> sparse_;
};

}  // namespace

MergeRules::MergeRules(const std::array<int64_t, 256>& byte_ids,
                       const std::vector<MergeRule>& rules, int64_t unknown_id, bool join_unknown)
    : byte_pair_ranks_(256 * 256, kNoRank),
      joined_unknown_(join_unknown ? static_cast<uint32_t>(unknown_id) : kNoId) {
  const auto too_many = [] {
    throw std::invalid_argument("a tokenizer may have at most 2,097,151 tokens and merges");
  };
  if (rules.size() >= kFieldMask) too_many();
  SymbolOfId symbols(2 * rules.size() + 1024);
  const auto add_symbol = [&](int64_t id) {
    if (id < 0 || id >= int64_t{kInnerIds}) id = unknown_id < 0 ? kNoId : unknown_id;
    ids_.push_back(static_cast<uint32_t>(id));
    if (ids_.back() != kNoId) largest_id_ = std::max(largest_id_, ids_.back());
  };
  const auto symbol_for = [&](uint32_t id) {
    const uint32_t symbol = symbols.emplace(id, static_cast<uint32_t>(ids_.size()));
    if (symbol == ids_.size()) add_symbol(id);
    return symbol;
  };
  ids_.reserve(rules.size() + kByteSymbols);
  for (int64_t id : byte_ids) {
    if (id >= 0) symbols.emplace(static_cast<uint32_t>(id), static_cast<uint32_t>(ids_.size()));
    add_symbol(id);
  }
  results_.reserve(rules.size());
  for (const MergeRule& rule : rules) results_.push_back(symbol_for(rule.result));
  size_t lines = 16;
  while (lines * 4 < rules.size()) lines *= 2;
  lines_ = ZeroedArray<Line>(lines);
  line_mask_ = lines - 1;
  size_t filter_bytes = 1024;
  while (filter_bytes < rules.size()) filter_bytes *= 2;
  filter_.assign(filter_bytes, 0);
  filter_mask_ = filter_bytes - 1;
  bool in_order = true;
  for (uint32_t rank = 0; rank < rules.size(); ++rank) {
    add_rule(symbol_for(rules[rank].left), symbol_for(rules[rank].right), rank);
    in_order &= results_[rank] == kByteSymbols + rank;
  }
  if (ids_.size() > kFieldMask) too_many();
  if (in_order) results_ = {};
}

void MergeRules::add_rule(uint32_t left, uint32_t right, uint32_t rank) {
  const uint64_t key = pair_key(left, right);
  const size_t hash = pair_hash(key);
  for (size_t at = hash & line_mask_;; at = (at + 1) & line_mask_) {
    for (uint64_t& rule : lines_[at].rules) {
      if (rule >> kFieldBits == key && rule != 0) return;
      if (rule != 0) continue;
      rule = key << kFieldBits | (rank + 1);
      filter_[hash >> 3 & filter_mask_] |= static_cast<uint8_t>(1 << (hash & 7));
      if (left < kByteSymbols && right < kByteSymbols) byte_pair_ranks_[left << 8 | right] = rank;
      return;
    }
  }
}

uint32_t MergeRules::find_rank(uint64_t key, size_t hash) const {
  for (size_t at = hash & line_mask_;; at = (at + 1) & line_mask_) {
    for (const uint64_t rule : lines_[at].rules) {
      if (rule == 0) return kNoRank;
      if (rule >> kFieldBits == key) return static_cast<uint32_t>(rule & kFieldMask) - 1;
    }
  }
}

void MergeRules::merge(const uint8_t* bytes, size_t length, std::vector<uint32_t>& ids) const {
  if (length > kShort) {
    merge_long(*this, bytes, length, ids);
    return;
  }
  ids.resize(kShort);
  ids.resize(merge_short(bytes, length, ids.data()));
  for (uint32_t& id : ids) id = id_of(id);
}

// Merges in place. Returns the number of remaining symbols.
size_t MergeRules::merge_short(const uint8_t* bytes, size_t length, uint32_t* symbols) const {
  uint32_t ranks[kShort];  // of the pair that begins at each symbol
  size_t n = length;
  symbols[0] = bytes[0];
  for (size_t i = 1; i < n; ++i) {
    symbols[i] = bytes[i];
    ranks[i - 1] = rank_of_bytes(bytes[i - 1], bytes[i]);
  }
  while (n > 1) {
    uint32_t lowest = ranks[0];
    size_t at = 0;
    for (size_t i = 1; i + 1 < n; ++i) {
      if (ranks[i] < lowest) {
        lowest = ranks[i];
        at = i;
      }
    }
    if (lowest == kNoRank) break;
    const uint32_t result = result_of(lowest);
    symbols[at] = result;
    // Both lookups are started before either is needed.
    if (at > 0) __builtin_prefetch(filter_byte(pair_hash(pair_key(symbols[at - 1], result))));
    if (at + 2 < n) __builtin_prefetch(filter_byte(pair_hash(pair_key(result, symbols[at + 2]))));
    --n;
    for (size_t i = at + 1; i < n; ++i) {
      symbols[i] = symbols[i + 1];
      ranks[i - 1] = ranks[i];
    }
    if (at > 0) ranks[at - 1] = rank_of(symbols[at - 1], symbols[at]);
    if (at + 1 < n) ranks[at] = rank_of(symbols[at], symbols[at + 1]);
  }
  return n;
}

}  // namespace bpe
