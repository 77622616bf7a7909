#include "whole_tokens.hpp"

#include <algorithm>
#include <cstring>

namespace bpe {
namespace {

constexpr size_t kItems = 32;

// Calls visit(i, ids, n) with the ids that the merges make of token i; n is 0 if one of its bytes
// has no id.
template <class Visit>
void merge_each(const MergeRules& rules, BatchMerger merge_batch, const TokenSpans& tokens,
                Visit visit) {
  std::vector<BatchItem> items(kItems);
  std::vector<size_t> indices;
  std::vector<uint32_t> ids;
  const auto merge_alone = [&](size_t i) {
    try {
      rules.merge(tokens.begin_of(i), tokens.length_of(i), ids);
    } catch (const UnknownByte&) {
      ids.clear();
    }
    visit(i, ids.data(), ids.size());
  };
  const auto merge_gathered = [&] {
    try {
      merge_batch(rules, items.data(), indices.size());
      for (size_t k = 0; k < indices.size(); ++k) visit(indices[k], items[k].ids, items[k].count);
    } catch (const UnknownByte&) {
      for (const size_t i : indices) merge_alone(i);
    }
    indices.clear();
  };
  for (size_t i = 0; i < tokens.n; ++i) {
    const size_t length = tokens.length_of(i);
    if (length == 0) continue;
    if (length > BatchItem::kMostBytes) {
      merge_alone(i);
      continue;
    }
    BatchItem& item = items[indices.size()];
    item.bytes = tokens.begin_of(i);
    item.length = length;
    item.readable = tokens.readable_of(i);
    indices.push_back(i);
    if (indices.size() == kItems) merge_gathered();
  }
  merge_gathered();
}

}  // namespace

WholeTokens::WholeTokens(const MergeRules& rules, BatchMerger merge_batch,
                         const TokenSpans& tokens) {
  std::vector<size_t> unmade;
  merge_each(rules, merge_batch, tokens, [&](size_t i, const uint32_t* ids, size_t n) {
    if (n != 1 || ids[0] != tokens.ids[i]) unmade.push_back(i);
  });
  if (unmade.empty()) return;
  size_t slots = 16;
  while (slots < unmade.size() * 2) slots *= 2;
  slots_.resize(slots);
  slot_mask_ = slots - 1;
  filter_.assign(slots / 4, 0);  // 16 bits for a slot: few pre-tokens get past it
  filter_mask_ = filter_.size() - 1;
  for (const size_t i : unmade) {
    add(tokens.begin_of(i), tokens.length_of(i), tokens.readable_of(i), tokens.ids[i]);
  }
}

const uint32_t* WholeTokens::find_slot(uint64_t hash, const ShortKey& key, const uint8_t* bytes,
                                       size_t length) const {
  for (size_t at = hash >> 32 & slot_mask_; !is_free(slots_[at].key); at = (at + 1) & slot_mask_) {
    const Slot& slot = slots_[at];
    if (!(slot.key == key)) continue;
    if (is_long(key) && std::memcmp(long_bytes_.data() + slot.place, bytes, length) != 0) continue;
    return &slot.id;
  }
  return nullptr;
}

void WholeTokens::add(const uint8_t* bytes, size_t length, size_t readable, uint32_t id) {
  ShortKey key;
  make_key<PortableKeys>(bytes, length, readable, key);
  const uint64_t hash = hash_of(key);
  filter_[hash >> 6 & filter_mask_] |= uint64_t{1} << (hash & 63);
  size_t at = hash >> 32 & slot_mask_;
  while (!is_free(slots_[at].key)) at = (at + 1) & slot_mask_;
  slots_[at] = {key, long_bytes_.size(), id};
  if (is_long(key)) long_bytes_.insert(long_bytes_.end(), bytes, bytes + length);
}

}  // namespace bpe
