#include "encoder.hpp"

#include <algorithm>
#include <cstring>
#include <queue>
#include <stdexcept>

namespace bpe {
namespace {

constexpr int kFieldBits = 21;
constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;
constexpr uint64_t kFreeRule = ~uint64_t{0};
constexpr uint32_t kMissingId = UINT32_MAX;
constexpr size_t kBatch = 64;       // pre-tokens hashed and prefetched together
constexpr size_t kShortMerge = 48;  // longer pre-tokens merge by a heap
constexpr size_t kLongCacheEntries = size_t{1} << 15;
constexpr size_t kLongCacheKeyBytes = size_t{1} << 20;
constexpr size_t kLongCacheIds = size_t{1} << 19;
constexpr size_t kLongestCachedKey = 256;
constexpr size_t kSpilledIds = size_t{1} << 20;

uint64_t pair_key(uint32_t left, uint32_t right) {
  return (static_cast<uint64_t>(left) << kFieldBits) | right;
}

size_t pair_hash(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }

template <class Id>
void write_ids(IdBuffer<Id>& ids, const std::vector<uint32_t>& values) {
  for (uint32_t value : values) {
    *ids.end() = static_cast<Id>(value);
    ids.advance(1);
  }
}

}  // namespace

Encoder::Workspace::Workspace(size_t cache_entries) : long_entries_(kLongCacheEntries) {
  size_t entries = 2;
  while (entries < cache_entries) entries *= 2;
  entries_ = ZeroedArray<Entry>(entries);
  bucket_mask_ = entries / 2 - 1;
  spilled_ids_.reserve(kSpilledIds);
  long_keys_.reserve(kLongCacheKeyBytes);
  long_ids_.reserve(kLongCacheIds);
}

Encoder::Encoder(const std::array<int64_t, 256>& byte_ids, const std::vector<MergeRule>& rules,
                 int64_t unknown_id, Scanner scanner)
    : byte_pair_ranks_(256 * 256, kNoRank), unknown_id_(unknown_id), scanner_(scanner) {
  std::unordered_map<uint32_t, uint32_t> symbol_of_id;
  symbol_of_id.reserve(rules.size() + 256);
  id_of_symbol_.reserve(rules.size() + 256);
  for (int64_t id : byte_ids) {
    const uint32_t symbol = static_cast<uint32_t>(id_of_symbol_.size());
    id_of_symbol_.push_back(id < 0 ? kMissingId : static_cast<uint32_t>(id));
    if (id >= 0) symbol_of_id.emplace(static_cast<uint32_t>(id), symbol);
  }
  const auto symbol_for = [&](uint32_t id) {
    const auto [place, is_new] =
        symbol_of_id.emplace(id, static_cast<uint32_t>(id_of_symbol_.size()));
    if (is_new) id_of_symbol_.push_back(id);
    return place->second;
  };
  size_t capacity = 1024;
  while (capacity < rules.size() * 2) capacity *= 2;
  rules_.assign(capacity, kFreeRule);
  rule_mask_ = capacity - 1;
  result_of_rank_.reserve(rules.size());
  const MergeRule* last = nullptr;
  for (const MergeRule& rule : rules) {
    const uint32_t left = symbol_for(rule.left);
    const uint32_t right = symbol_for(rule.right);
    const uint32_t result = symbol_for(rule.result);
    if (last == nullptr || last->rank != rule.rank) {
      if (last != nullptr && last->rank > rule.rank) {
        throw std::invalid_argument("merge rules must be in ascending order of rank");
      }
      result_of_rank_.push_back(result);
    } else if (result_of_rank_.back() != result) {
      throw std::invalid_argument("merge rules of one rank must have one result");
    }
    last = &rule;
    const uint64_t rank = result_of_rank_.size() - 1;
    if (id_of_symbol_.size() > kFieldMask || rank > kFieldMask) {
      throw std::invalid_argument("a tokenizer may have at most 2,097,151 tokens and merges");
    }
    const uint64_t key = pair_key(left, right);
    size_t at = pair_hash(key) & rule_mask_;
    while (rules_[at] != kFreeRule && rules_[at] >> kFieldBits != key) at = (at + 1) & rule_mask_;
    if (rules_[at] != kFreeRule) continue;
    rules_[at] = key << kFieldBits | rank;
    if (left < 256 && right < 256)
      byte_pair_ranks_[left << 8 | right] = static_cast<uint32_t>(rank);
  }
}

inline uint32_t Encoder::rank_of(uint32_t left, uint32_t right) const {
  const uint64_t key = pair_key(left, right);
  size_t at = pair_hash(key) & rule_mask_;
  while (true) {
    const uint64_t rule = rules_[at];
    if (rule >> kFieldBits == key) return static_cast<uint32_t>(rule & kFieldMask);
    if (rule == kFreeRule) return kNoRank;
    at = (at + 1) & rule_mask_;
  }
}

inline uint32_t Encoder::id_of(uint32_t symbol) const {
  const uint32_t id = id_of_symbol_[symbol];
  if (id != kMissingId) [[likely]]
    return id;
  if (unknown_id_ < 0) throw UnknownByte{static_cast<uint8_t>(symbol)};
  return static_cast<uint32_t>(unknown_id_);
}

// Merges in place, the lowest rank first and of equal ranks the leftmost; returns how many symbols
// are left.
size_t Encoder::merge_short(const uint8_t* bytes, size_t length, uint32_t* symbols) const {
  uint32_t ranks[kShortMerge];  // of the pair that begins at each symbol
  size_t n = length;
  symbols[0] = bytes[0];
  for (size_t i = 1; i < n; ++i) {
    symbols[i] = bytes[i];
    ranks[i - 1] = byte_pair_ranks_[static_cast<size_t>(bytes[i - 1]) << 8 | bytes[i]];
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
    symbols[at] = result_of_rank_[lowest];
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

void Encoder::merge_long(const uint8_t* bytes, size_t length, std::vector<uint32_t>& ids) const {
  // A linked list of symbols over the bytes' places, and a heap of (rank, place) whose entries are
  // checked when they come up: near-linear for any length.
  struct Node {
    uint32_t symbol;
    uint32_t before;
    uint32_t after;
    uint32_t rank;  // of the pair with the next symbol; kNoRank also for what was merged away
  };
  if (length > UINT32_MAX - 2) throw std::invalid_argument("a pre-token of over 4 GiB");
  const uint32_t n = static_cast<uint32_t>(length);
  std::vector<Node> nodes(n);
  std::vector<uint64_t> first_entries;
  for (uint32_t i = 0; i < n; ++i) {
    nodes[i] = {bytes[i], i - 1, i + 1, kNoRank};
    if (i + 1 == n) break;
    const uint32_t rank = byte_pair_ranks_[static_cast<size_t>(bytes[i]) << 8 | bytes[i + 1]];
    nodes[i].rank = rank;
    if (rank != kNoRank) first_entries.push_back(static_cast<uint64_t>(rank) << 32 | i);
  }
  std::priority_queue<uint64_t, std::vector<uint64_t>, std::greater<>> heap(
      std::greater<>{}, std::move(first_entries));
  const auto update = [&](uint32_t at) {
    Node& node = nodes[at];
    node.rank = node.after == n ? kNoRank : rank_of(node.symbol, nodes[node.after].symbol);
    if (node.rank != kNoRank) heap.push(static_cast<uint64_t>(node.rank) << 32 | at);
  };
  while (!heap.empty()) {
    const uint64_t top = heap.top();
    heap.pop();
    const uint32_t at = static_cast<uint32_t>(top);
    if (nodes[at].rank != top >> 32) continue;
    Node& node = nodes[at];
    Node& merged = nodes[node.after];
    node.symbol = result_of_rank_[node.rank];
    merged.rank = kNoRank;
    node.after = merged.after;
    if (node.after != n) nodes[node.after].before = at;
    update(at);
    if (at != 0) update(node.before);
  }
  for (uint32_t at = 0; at != n; at = nodes[at].after) ids.push_back(id_of(nodes[at].symbol));
}

const uint32_t* Encoder::whole_token(const uint8_t* bytes, size_t length) const {
  if (whole_.empty()) [[likely]]
    return nullptr;
  const auto found = whole_.find(std::string(reinterpret_cast<const char*>(bytes), length));
  return found == whole_.end() ? nullptr : &found->second;
}

// The ids of a pre-token of at most kShortMerge bytes; returns their number.
size_t Encoder::merge_to_ids(const uint8_t* bytes, size_t length, uint32_t* ids) const {
  if (const uint32_t* id = whole_token(bytes, length)) {
    ids[0] = *id;
    return 1;
  }
  const size_t n = merge_short(bytes, length, ids);
  for (size_t i = 0; i < n; ++i) ids[i] = id_of(ids[i]);
  return n;
}

void Encoder::merge_pretoken(const uint8_t* bytes, size_t length,
                             std::vector<uint32_t>& ids) const {
  ids.clear();
  if (length <= kShortMerge) {
    ids.resize(kShortMerge);
    ids.resize(merge_to_ids(bytes, length, ids.data()));
  } else if (const uint32_t* id = whole_token(bytes, length)) {
    ids.push_back(*id);
  } else {
    merge_long(bytes, length, ids);
  }
}

template <class Id>
void Encoder::encode_long(Workspace& workspace, const uint8_t* bytes, size_t length,
                          Id*& out) const {
  using LongEntry = Workspace::LongEntry;
  const auto copy = [&](const uint32_t* ids, size_t n) {
    for (size_t i = 0; i < n; ++i) *out++ = static_cast<Id>(ids[i]);
  };
  const bool cached = length <= kLongestCachedKey;
  LongEntry* entry = nullptr;
  uint64_t hash = 0;
  if (cached) {
    if (length >= 16) {
      hash = hash_long_key(bytes, length);
    } else {
      hash = hash_short_key(load_short_key(bytes, length, length), length);
    }
    size_t at = hash % kLongCacheEntries;
    while (workspace.long_entries_[at].length != 0) {
      entry = &workspace.long_entries_[at];
      if (entry->hash == hash && entry->length == length &&
          std::memcmp(workspace.long_keys_.data() + entry->key_at, bytes, length) == 0) {
        return copy(workspace.long_ids_.data() + entry->ids_at, entry->count);
      }
      at = (at + 1) % kLongCacheEntries;
    }
    entry = &workspace.long_entries_[at];
  }
  merge_pretoken(bytes, length, workspace.ids_);
  const std::vector<uint32_t>& ids = workspace.ids_;
  copy(ids.data(), ids.size());
  if (!cached) return;
  // The arenas never grow: when one is full, or the table three quarters, all is forgotten.
  if (workspace.long_size_ * 4 >= kLongCacheEntries * 3 ||
      workspace.long_keys_.size() + length > kLongCacheKeyBytes ||
      workspace.long_ids_.size() + ids.size() > kLongCacheIds) {
    std::memset(static_cast<void*>(workspace.long_entries_.data()), 0,
                kLongCacheEntries * sizeof(LongEntry));
    workspace.long_size_ = 0;
    workspace.long_keys_.clear();
    workspace.long_ids_.clear();
    entry = &workspace.long_entries_[hash % kLongCacheEntries];
  }
  *entry = {hash, static_cast<uint32_t>(workspace.long_keys_.size()), static_cast<uint32_t>(length),
            static_cast<uint32_t>(workspace.long_ids_.size()), static_cast<uint32_t>(ids.size())};
  workspace.long_keys_.insert(workspace.long_keys_.end(), bytes, bytes + length);
  workspace.long_ids_.insert(workspace.long_ids_.end(), ids.begin(), ids.end());
  ++workspace.long_size_;
}

template <class Id>
void Encoder::encode_missed(Workspace& workspace, const uint8_t* bytes, size_t length, ShortKey key,
                            size_t bucket, Id*& out) const {
  using Entry = Workspace::Entry;
  uint32_t ids[kShortMerge];
  const size_t n = merge_to_ids(bytes, length, ids);
  for (size_t i = 0; i < n; ++i) *out++ = static_cast<Id>(ids[i]);
  Entry entry = {
      key.low, key.high, {0, 0, 0}, static_cast<uint8_t>(length), static_cast<uint8_t>(n), 0};
  if (n <= Workspace::kInlineIds) {
    std::copy_n(ids, n, entry.ids);
  } else {
    std::vector<uint32_t>& spilled = workspace.spilled_ids_;
    if (spilled.size() + n > kSpilledIds) {
      spilled.clear();
      ++workspace.generation_;
    }
    entry.count = Workspace::kSpilled;
    entry.ids[0] = static_cast<uint32_t>(spilled.size());
    entry.ids[1] = static_cast<uint32_t>(n);
    entry.ids[2] = workspace.generation_;
    spilled.insert(spilled.end(), ids, ids + n);
  }
  // The newer of a bucket's two stands first, and the older one makes room.
  Entry* pair = &workspace.entries_[bucket * 2];
  pair[1] = pair[0];
  pair[0] = entry;
}

template <class Id>
void Encoder::encode_segment(Workspace& workspace, const uint8_t* text, size_t size,
                             size_t readable, IdBuffer<Id>& ids) const {
  using Entry = Workspace::Entry;
  size_t ends[kBatch];
  ShortKey keys[kBatch];
  size_t buckets[kBatch];
  size_t pos = 0;
  while (pos < size) {
    const size_t found = scanner_(text, size, pos, ends, kBatch);
    size_t begin = pos;
    for (size_t i = 0; i < found; ++i) {
      const size_t length = ends[i] - begin;
      if (length <= kShortKeyBytes) [[likely]] {
        keys[i] = load_short_key(text + begin, length, readable - begin);
        buckets[i] = hash_short_key(keys[i], length) & workspace.bucket_mask_;
        __builtin_prefetch(&workspace.entries_[buckets[i] * 2]);
      }
      begin = ends[i];
    }
    // No pre-token has more ids than bytes; a hit always writes all inline ids.
    ids.reserve_more(ends[found - 1] - pos + Workspace::kInlineIds);
    Id* out = ids.end();
    begin = pos;
    for (size_t i = 0; i < found; ++i) {
      const size_t length = ends[i] - begin;
      if (length <= kShortKeyBytes) [[likely]] {
        const Entry* pair = &workspace.entries_[buckets[i] * 2];
        const auto matches = [&](const Entry& entry) {
          return entry.low == keys[i].low && entry.high == keys[i].high && entry.length == length;
        };
        const Entry* entry = matches(pair[0]) ? &pair[0] : &pair[1];
        const bool hit = entry == &pair[0] || matches(*entry);
        if (hit && entry->count <= Workspace::kInlineIds) [[likely]] {
          out[0] = static_cast<Id>(entry->ids[0]);
          out[1] = static_cast<Id>(entry->ids[1]);
          out[2] = static_cast<Id>(entry->ids[2]);
          out += entry->count;
        } else if (hit && entry->ids[2] == workspace.generation_) {
          const uint32_t* spilled = workspace.spilled_ids_.data() + entry->ids[0];
          for (uint32_t k = 0; k < entry->ids[1]; ++k) *out++ = static_cast<Id>(spilled[k]);
        } else {
          encode_missed(workspace, text + begin, length, keys[i], buckets[i], out);
        }
      } else {
        encode_long(workspace, text + begin, length, out);
      }
      begin = ends[i];
    }
    ids.advance(static_cast<size_t>(out - ids.end()));
    pos = begin;
  }
}

template <class Id>
void Encoder::encode_documents(Workspace& workspace, const DocumentSpans& documents,
                               const SpecialMatcher& specials,
                               const std::vector<uint32_t>& special_ids, const Affixes& affixes,
                               IdBuffer<Id>& ids, int64_t* offsets) const {
  for (size_t i = 0; i < documents.n; ++i) {
    const uint8_t* text = documents.data + documents.starts[i];
    const size_t length = static_cast<size_t>(documents.ends[i] - documents.starts[i]);
    const size_t readable = documents.size - static_cast<size_t>(documents.starts[i]);
    ids.reserve_more(affixes.prepend.size());
    write_ids(ids, affixes.prepend);
    size_t begin = 0;
    SpecialMatch match;
    while (specials.find(text, length, begin, match)) {
      encode_segment(workspace, text + begin, match.begin - begin, readable - begin, ids);
      ids.reserve_more(1);
      *ids.end() = static_cast<Id>(special_ids[match.index]);
      ids.advance(1);
      begin = match.end;
    }
    encode_segment(workspace, text + begin, length - begin, readable - begin, ids);
    ids.reserve_more(affixes.append.size());
    write_ids(ids, affixes.append);
    offsets[i] = static_cast<int64_t>(ids.size());
  }
}

template <class Id>
void Encoder::encode_spans(Workspace& workspace, const DocumentSpans& spans,
                           const int64_t* special_ids, IdBuffer<Id>& ids, int64_t* offsets) const {
  for (size_t i = 0; i < spans.n; ++i) {
    const size_t length = static_cast<size_t>(spans.ends[i] - spans.starts[i]);
    ids.reserve_more(length + 1);
    Id* out = ids.end();
    if (special_ids[i] >= 0) {
      *out++ = static_cast<Id>(special_ids[i]);
    } else if (length > 0) {
      encode_long(workspace, spans.data + spans.starts[i], length, out);
    }
    ids.advance(static_cast<size_t>(out - ids.end()));
    offsets[i] = static_cast<int64_t>(ids.size());
  }
}

template void Encoder::encode_documents(Workspace&, const DocumentSpans&, const SpecialMatcher&,
                                        const std::vector<uint32_t>&, const Affixes&,
                                        IdBuffer<uint16_t>&, int64_t*) const;
template void Encoder::encode_documents(Workspace&, const DocumentSpans&, const SpecialMatcher&,
                                        const std::vector<uint32_t>&, const Affixes&,
                                        IdBuffer<uint32_t>&, int64_t*) const;
template void Encoder::encode_spans(Workspace&, const DocumentSpans&, const int64_t*,
                                    IdBuffer<uint32_t>&, int64_t*) const;

}  // namespace bpe
