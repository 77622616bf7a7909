#include "encoder.hpp"

#include <algorithm>
#include <cstring>
#include <queue>
#include <stdexcept>

namespace bpe {
namespace {

constexpr int kFieldBits = 21;
constexpr uint64_t kFieldMask = (uint64_t{1} << kFieldBits) - 1;
constexpr uint64_t kFreeRule = 0;
constexpr uint32_t kMissingId = UINT32_MAX;
constexpr size_t kBatch = 64;       // pre-tokens hashed and prefetched together
constexpr size_t kShortMerge = 64;  // longer pre-tokens merge by a heap
constexpr size_t kLongestCached = 256;
constexpr size_t kMostReservedIds = size_t{1} << 28;

uint64_t pair_key(uint32_t left, uint32_t right) {
  return (static_cast<uint64_t>(left) << kFieldBits) | right;
}

size_t pair_hash(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 20); }

uint8_t filter_bit(size_t hash) { return static_cast<uint8_t>(1 << (hash & 7)); }

// For custom patterns: a segment is a pre-token.
size_t scan_whole(const uint8_t*, size_t size, size_t, size_t* ends, size_t) {
  ends[0] = size;
  return 1;
}

template <class Id>
void write_ids(IdBuffer<Id>& ids, const std::vector<uint32_t>& values) {
  for (uint32_t value : values) {
    *ids.end() = static_cast<Id>(value);
    ids.advance(1);
  }
}

// The 16 bytes of an entry's value: up to 7 ids of 16 bits, or 5 of 24, and their number. All are
// written out at once, and as many of them count as there are.
struct Ids16 {
  static constexpr size_t kIds = 7;
  static constexpr uint32_t kLargestId = 0xFFFF;
  static constexpr size_t kWritten = 8;

  static size_t count(const uint8_t* value) { return value[15]; }
  template <class Id>
  static void write(const uint8_t* value, Id* out) {
    uint16_t ids[kWritten];
    std::memcpy(ids, value, sizeof ids);
    for (size_t i = 0; i < kWritten; ++i) out[i] = static_cast<Id>(ids[i]);
  }
  static void store(const uint32_t* ids, size_t n, uint8_t* value) {
    for (size_t i = 0; i < n; ++i) {
      const uint16_t id = static_cast<uint16_t>(ids[i]);
      std::memcpy(value + 2 * i, &id, sizeof id);
    }
    value[15] = static_cast<uint8_t>(n);
  }
};

struct Ids24 {
  static constexpr size_t kIds = 5;
  static constexpr uint32_t kLargestId = 0xFFFFFF;
  static constexpr size_t kWritten = 5;

  static size_t count(const uint8_t* value) { return value[15]; }
  template <class Id>
  static void write(const uint8_t* value, Id* out) {
    for (size_t i = 0; i < kWritten; ++i) {
      uint32_t id;
      std::memcpy(&id, value + 3 * i, sizeof id);
      out[i] = static_cast<Id>(id & kLargestId);
    }
  }
  static void store(const uint32_t* ids, size_t n, uint8_t* value) {
    for (size_t i = 0; i < n; ++i) std::memcpy(value + 3 * i, &ids[i], 3);
    value[15] = static_cast<uint8_t>(n);
  }
};

constexpr size_t kMaxWritten = std::max(Ids16::kWritten, Ids24::kWritten);

// A value that says where in the ring the ids are.
struct RingPlace {
  uint64_t place;
  uint32_t count;
  uint32_t ids_in_place = 0;  // its last byte is what Ids16::count and Ids24::count read
};
static_assert(sizeof(RingPlace) == 16);

}  // namespace

Encoder::Workspace::Ring::Ring() : words_(kWords) {}

uint64_t Encoder::Workspace::Ring::append(size_t n) {
  const uint64_t left = kWords - next_ % kWords;
  if (left < n) next_ += left;
  const uint64_t place = next_;
  next_ += n;
  return place;
}

Encoder::Workspace::Workspace(size_t cache_entries) {
  size_t entries = 2;
  while (entries < cache_entries) entries *= 2;
  entries_ = ZeroedArray<Entry>(entries);
  bucket_mask_ = entries / 2 - 1;
}

Encoder::Encoder(const std::array<int64_t, 256>& byte_ids, const std::vector<MergeRule>& rules,
                 int64_t unknown_id, Scanner scanner)
    : byte_pair_ranks_(256 * 256, kNoRank),
      unknown_id_(unknown_id),
      scanner_(scanner != nullptr ? scanner : scan_whole) {
  std::unordered_map<uint32_t, uint32_t> symbol_of_id;
  symbol_of_id.reserve(rules.size() + 256);
  id_of_symbol_.reserve(rules.size() + 256);
  for (int64_t id : byte_ids) {
    const uint32_t symbol = static_cast<uint32_t>(id_of_symbol_.size());
    id_of_symbol_.push_back(id < 0 ? kMissingId : static_cast<uint32_t>(id));
    if (id > Ids16::kLargestId) ids_of_16_bits_ = false;
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
  rules_ = ZeroedArray<uint64_t>(capacity);
  rule_mask_ = capacity - 1;
  rule_filter_.assign(capacity, 0);
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
    if (rule.result > Ids16::kLargestId) ids_of_16_bits_ = false;
    const uint64_t rank = result_of_rank_.size() - 1;
    if (id_of_symbol_.size() > kFieldMask || rank >= kFieldMask) {
      throw std::invalid_argument("a tokenizer may have at most 2,097,151 tokens and merges");
    }
    const uint64_t key = pair_key(left, right);
    const size_t hash = pair_hash(key);
    size_t at = hash & rule_mask_;
    while (rules_[at] != kFreeRule && rules_[at] >> kFieldBits != key) at = (at + 1) & rule_mask_;
    if (rules_[at] != kFreeRule) continue;
    rules_[at] = key << kFieldBits | (rank + 1);
    rule_filter_[filter_byte(hash)] |= filter_bit(hash);
    if (left < 256 && right < 256)
      byte_pair_ranks_[left << 8 | right] = static_cast<uint32_t>(rank);
  }
}

inline size_t Encoder::filter_byte(size_t hash) const { return hash >> 3 & rule_mask_; }

inline uint32_t Encoder::rank_of(uint32_t left, uint32_t right) const {
  const uint64_t key = pair_key(left, right);
  const size_t hash = pair_hash(key);
  if ((rule_filter_[filter_byte(hash)] & filter_bit(hash)) == 0) return kNoRank;
  size_t at = hash & rule_mask_;
  while (true) {
    const uint64_t rule = rules_[at];
    if (rule == kFreeRule) return kNoRank;
    if (rule >> kFieldBits == key) {
      const uint32_t rank = static_cast<uint32_t>(rule & kFieldMask) - 1;
      __builtin_prefetch(&result_of_rank_[rank]);
      return rank;
    }
    at = (at + 1) & rule_mask_;
  }
}

inline void Encoder::prefetch_rank(uint32_t left, uint32_t right) const {
  __builtin_prefetch(&rule_filter_[filter_byte(pair_hash(pair_key(left, right)))]);
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
    const uint32_t result = result_of_rank_[lowest];
    symbols[at] = result;
    // Both look-ups are begun before either is needed.
    if (at > 0) prefetch_rank(symbols[at - 1], result);
    if (at + 2 < n) prefetch_rank(result, symbols[at + 2]);
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

// The key of a pre-token in the cache, and the hash that gives its bucket. Longer ones than are
// cached have the key of a free entry.
inline uint64_t Encoder::cache_key(const uint8_t* bytes, size_t length, size_t readable,
                                   ShortKey& key) {
  if (length <= Workspace::kKeyBytes) [[likely]] {
    key = load_short_key(bytes, length, readable);
    key.high |= static_cast<uint64_t>(length) << 56;
    return hash_short_key(key, 0);
  }
  if (length > kLongestCached) {
    key = {0, 0};
    return 0;
  }
  const uint64_t hash = hash_long_key(bytes, length);
  key = {hash, uint64_t{0xFF} << 56 | length};
  return hash;
}

// What the cache has no ids in place for.
template <class Id, class Inline>
Id* Encoder::encode_rare(Workspace& workspace, const uint8_t* bytes, size_t length, ShortKey key,
                         size_t bucket, Id* out) const {
  using Entry = Workspace::Entry;
  const auto copy = [&](const uint32_t* ids, size_t n) {
    for (size_t i = 0; i < n; ++i) *out++ = static_cast<Id>(ids[i]);
    return out;
  };
  Entry* pair = &workspace.entries_[bucket * 2];
  const bool is_short = length <= Workspace::kKeyBytes;
  const bool is_cached = length <= kLongestCached;
  for (size_t i = 0; i < 2 && is_cached; ++i) {
    if (pair[i].key != key || Inline::count(pair[i].value) != 0) continue;
    RingPlace there;
    std::memcpy(&there, pair[i].value, sizeof there);
    if (!workspace.ring_.holds(there.place)) continue;
    const uint32_t* ids = workspace.ring_.at(there.place);
    if (is_short || std::memcmp(ids + there.count, bytes, length) == 0) {
      return copy(ids, there.count);
    }
  }
  uint32_t short_ids[kShortMerge];
  const uint32_t* ids = short_ids;
  size_t n;
  if (length <= kShortMerge) {
    n = merge_to_ids(bytes, length, short_ids);
  } else {
    merge_pretoken(bytes, length, workspace.ids_);
    ids = workspace.ids_.data();
    n = workspace.ids_.size();
  }
  if (!is_cached) return copy(ids, n);
  Entry entry = {key, {}};
  if (is_short && n <= Inline::kIds && *std::max_element(ids, ids + n) <= Inline::kLargestId) {
    Inline::store(ids, n, entry.value);
  } else {
    const size_t words = n + (is_short ? 0 : (length + 3) / 4);
    const RingPlace there = {.place = workspace.ring_.append(words),
                             .count = static_cast<uint32_t>(n),
                             .ids_in_place = 0};
    uint32_t* at = workspace.ring_.at(there.place);
    std::copy_n(ids, n, at);
    if (!is_short) std::memcpy(at + n, bytes, length);
    std::memcpy(entry.value, &there, sizeof there);
  }
  // The newer of a bucket's two stands first, and the older one makes room.
  pair[1] = pair[0];
  pair[0] = entry;
  return copy(ids, n);
}

template <class Id, class Inline>
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
      const uint64_t hash = cache_key(text + begin, ends[i] - begin, readable - begin, keys[i]);
      buckets[i] = hash & workspace.bucket_mask_;
      __builtin_prefetch(&workspace.entries_[buckets[i] * 2]);
      begin = ends[i];
    }
    // No pre-token has more ids than bytes; a hit always writes all inline ids.
    ids.reserve_more(ends[found - 1] - pos + kMaxWritten);
    Id* out = ids.end();
    begin = pos;
    for (size_t i = 0; i < found; ++i) {
      const Entry* pair = &workspace.entries_[buckets[i] * 2];
      const bool is_first = pair[0].key == keys[i];
      const bool is_second = pair[1].key == keys[i];
      const uint8_t* value = pair[is_first ? 0 : 1].value;
      const size_t count = Inline::count(value);
      if ((is_first | is_second) & (count != 0)) [[likely]] {
        Inline::write(value, out);
        out += count;
      } else {
        out = encode_rare<Id, Inline>(workspace, text + begin, ends[i] - begin, keys[i], buckets[i],
                                      out);
      }
      begin = ends[i];
    }
    ids.advance(static_cast<size_t>(out - ids.end()));
    pos = begin;
  }
}

template <class Id>
void Encoder::encode_text(Workspace& workspace, const uint8_t* text, size_t size, size_t readable,
                          IdBuffer<Id>& ids) const {
  if (ids_of_16_bits_) {
    encode_segment<Id, Ids16>(workspace, text, size, readable, ids);
  } else {
    encode_segment<Id, Ids24>(workspace, text, size, readable, ids);
  }
}

template <class Id>
void Encoder::encode_documents(Workspace& workspace, const DocumentSpans& documents,
                               const SpecialMatcher& specials,
                               const std::vector<uint32_t>& special_ids, const Affixes& affixes,
                               IdBuffer<Id>& ids, int64_t* offsets) const {
  size_t bytes = 0;
  for (size_t i = 0; i < documents.n; ++i) {
    bytes += static_cast<size_t>(documents.ends[i] - documents.starts[i]);
  }
  // There are at most as many ids. What is not written to costs no memory.
  ids.reserve_more(std::min(bytes, kMostReservedIds));
  for (size_t i = 0; i < documents.n; ++i) {
    const uint8_t* text = documents.data + documents.starts[i];
    const size_t length = static_cast<size_t>(documents.ends[i] - documents.starts[i]);
    const size_t readable = documents.size - static_cast<size_t>(documents.starts[i]);
    ids.reserve_more(affixes.prepend.size());
    write_ids(ids, affixes.prepend);
    size_t begin = 0;
    SpecialMatch match;
    while (specials.find(text, length, begin, match)) {
      encode_text(workspace, text + begin, match.begin - begin, readable - begin, ids);
      ids.reserve_more(1);
      *ids.end() = static_cast<Id>(special_ids[match.index]);
      ids.advance(1);
      begin = match.end;
    }
    encode_text(workspace, text + begin, length - begin, readable - begin, ids);
    ids.reserve_more(affixes.append.size());
    write_ids(ids, affixes.append);
    offsets[i] = static_cast<int64_t>(ids.size());
  }
}

template <class Id>
void Encoder::encode_spans(Workspace& workspace, const DocumentSpans& spans,
                           const int64_t* special_ids, IdBuffer<Id>& ids, int64_t* offsets) const {
  for (size_t i = 0; i < spans.n; ++i) {
    const size_t begin = static_cast<size_t>(spans.starts[i]);
    const size_t length = static_cast<size_t>(spans.ends[i]) - begin;
    if (special_ids[i] >= 0) {
      ids.reserve_more(1);
      *ids.end() = static_cast<Id>(special_ids[i]);
      ids.advance(1);
    } else {
      encode_text(workspace, spans.data + begin, length, spans.size - begin, ids);
    }
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
