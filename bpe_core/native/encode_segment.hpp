// Encoding of the text between two special tokens: pre-tokens are looked up in a cache, and those
// that it lacks are merged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "id_buffer.hpp"
#include "id_cache.hpp"
#include "merge_batch.hpp"
#include "merge_rules.hpp"
#include "scanner.hpp"
#include "scanner_masks.hpp"
#include "unicode_tables.hpp"
#include "utf8.hpp"
#include "whole_tokens.hpp"

namespace bpe {

// The parts of a tokenizer that encoding needs.
struct EncoderParts {
  const MergeRules& rules;
  const WholeTokens& whole;
  const Scanner& scan;
  BatchMerger merge_batch;
  bool drops_white_space;  // pre-tokens that begin with it have no ids
};

// Cache and scratch memory of one thread at a time.
struct Workspace {
  static constexpr size_t kItems = 32;
  static constexpr size_t kMostKept = size_t{1} << 24;  // bytes of normalized text
  static constexpr size_t kShortText = 16384;           // bytes; ids of such texts fit short_ids
  // Lines of the cache for streams, which take little memory: with the ring 1.25 MiB, half of it
  // allocated at once.
  static constexpr size_t kStreamLines = size_t{1} << 14;

  explicit Workspace(size_t cache_entries) : cache(cache_entries), items(kItems) {
    ids.reserve(IdCache::kLongestPretoken);
    short_ids.reserve_more(kShortText + IdCache::kMostWritten);
  }

  IdCache cache;
  size_t most_lines = SIZE_MAX;  // to which the cache may grow
  std::vector<BatchItem> items;
  std::vector<uint32_t> ids;     // of the pre-token at hand
  IdBuffer<uint32_t> short_ids;  // of the text at hand
  std::string normalized;        // the segment at hand, if normalizing changes it
  std::string prefixed;          // its first pre-token with a space before it

  void forget_long_text() {
    for (std::string* text : {&normalized, &prefixed}) {
      if (text->capacity() > kMostKept) std::string().swap(*text);
    }
  }
};

// Pre-tokens that are looked up together: the memory of all is asked for before any is needed.
struct LookupBatch {
  static constexpr size_t kMost = 256;

  const uint8_t* text;
  size_t readable;
  size_t size;
  size_t bounds[kMost + 1];
  alignas(32) ShortKey keys[kMost];
  IdCache::Line* lines[kMost];

  const uint8_t* bytes(size_t i) const { return text + bounds[i]; }
  size_t length(size_t i) const { return bounds[i + 1] - bounds[i]; }
};

inline bool begins_with_white_space(const uint8_t* text, size_t size) {
  const uint32_t first = decode_utf8(text, size).code_point;
  return first != kInvalidCodePoint && (class_of_code_point(first) & kWhiteSpace) != 0;
}

// The ids of pre-token i of the batch, which are not in place in its line of the cache. Valid until
// the next call. Throws UnknownByte.
template <class Inline>
IdsView find_or_merge(const EncoderParts& parts, Workspace& workspace, const LookupBatch& batch,
                      size_t i) {
  IdCache& cache = workspace.cache;
  const uint8_t* const bytes = batch.bytes(i);
  const size_t length = batch.length(i);
  const bool is_cached = length <= IdCache::kLongestPretoken;
  const auto find = [&](size_t k) {
    return cache.find_elsewhere<Inline>(batch.lines[k], batch.keys[k], batch.bytes(k),
                                        batch.length(k));
  };
  const auto insert = [&](size_t k, const IdsView& ids) {
    cache.insert<Inline>(batch.lines[k], batch.keys[k], batch.bytes(k), batch.length(k), ids.data,
                         ids.size);
    return ids;
  };
  if (is_cached) {
    const IdsView found = find(i);
    if (found.data != nullptr) return found;
  }
  const auto find_whole = [&](size_t k) -> IdsView {
    if (parts.drops_white_space && begins_with_white_space(batch.bytes(k), batch.length(k))) {
      return {workspace.ids.data(), 0};
    }
    const uint32_t* const id = parts.whole.find(batch.keys[k], batch.bytes(k), batch.length(k));
    return {id, id != nullptr ? size_t{1} : 0};
  };
  if (const IdsView ids = find_whole(i); ids.data != nullptr) {
    return is_cached ? insert(i, ids) : ids;
  }
  if (length > BatchItem::kMostBytes) {
    parts.rules.merge(bytes, length, workspace.ids);
    const IdsView ids = {workspace.ids.data(),
                         parts.rules.joined_unknown(workspace.ids.data(), workspace.ids.size())};
    return is_cached ? insert(i, ids) : ids;
  }
  // If one is missing, others often are too: they are merged together.
  size_t indices[Workspace::kItems];
  size_t n = 0;
  for (size_t k = i; k < batch.size && n < Workspace::kItems; ++k) {
    if (batch.length(k) > BatchItem::kMostBytes) continue;
    if (k > i && (IdCache::is_in(*batch.lines[k], batch.keys[k]) || find(k).data != nullptr ||
                  find_whole(k).data != nullptr)) {
      continue;
    }
    BatchItem& item = workspace.items[n];
    item.bytes = batch.bytes(k);
    item.length = batch.length(k);
    item.readable = batch.readable - batch.bounds[k];
    indices[n++] = k;
  }
  parts.merge_batch(parts.rules, workspace.items.data(), n);
  for (size_t k = 0; k < n; ++k) {
    BatchItem& item = workspace.items[k];
    item.count = parts.rules.joined_unknown(item.ids, item.count);
    insert(indices[k], {item.ids, item.count});
  }
  return {workspace.items[0].ids, workspace.items[0].count};
}

// Encodes one segment and appends its ids. Isa: see PortableLookup.
template <class Isa, class Id, class Inline>
BPE_ALWAYS_INLINE void encode_segment(const EncoderParts& parts, Workspace& workspace,
                                      const uint8_t* text, size_t size, size_t readable,
                                      IdBuffer<Id>& ids) {
  IdCache& cache = workspace.cache;
  LookupBatch batch;
  batch.text = text;
  batch.readable = readable;
  for (size_t pos = 0; pos < size; pos = batch.bounds[batch.size]) {
    if (cache.is_crowded(workspace.most_lines)) cache.grow(&Isa::hash);
    uint8_t* const lines = reinterpret_cast<uint8_t*>(cache.lines());
    const uint64_t offset_mask = cache.offset_mask();
    batch.bounds[0] = pos;
    batch.size = parts.scan(text, size, pos, batch.bounds + 1, LookupBatch::kMost);
    for (size_t i = 0; i < batch.size; ++i) {
      const uint64_t hash =
          make_key<Isa>(batch.bytes(i), batch.length(i), readable - batch.bounds[i], batch.keys[i]);
      batch.lines[i] = reinterpret_cast<IdCache::Line*>(lines + (hash & offset_mask));
      __builtin_prefetch(batch.lines[i]);
    }
    // No pre-token has more ids than bytes; a hit always writes out a whole value.
    ids.reserve_more(batch.bounds[batch.size] - pos + IdCache::kMostWritten);
    Id* out = ids.end();
    for (size_t i = 0; i < batch.size; ++i) {
      const uint8_t* const value = Isa::find(*batch.lines[i], batch.keys[i]);
      if (value != nullptr) [[likely]] {
        Isa::template write<Inline>(value, out);
        out += value[15];
        continue;
      }
      if (IdCache::may_be_beside(*batch.lines[i], batch.keys[i])) {
        IdCache::Line* const other = cache.beside(batch.lines[i]);
        if (const uint8_t* const near = Isa::find(*other, batch.keys[i]); near != nullptr) {
          Isa::template write<Inline>(near, out);
          out += near[15];
          cache.move_closer(batch.lines[i], other, near);
          continue;
        }
      }
      const IdsView found = find_or_merge<Inline>(parts, workspace, batch, i);
      for (size_t k = 0; k < found.size; ++k) *out++ = static_cast<Id>(found.data[k]);
    }
    ids.advance(static_cast<size_t>(out - ids.end()));
  }
}

template <class Id>
using SegmentEncoder = void (*)(const EncoderParts& parts, Workspace& workspace,
                                const uint8_t* text, size_t size, size_t readable,
                                IdBuffer<Id>& ids);

// Segment encoders by what ids they write and how the cache holds them.
struct SegmentEncoders {
  SegmentEncoder<uint16_t> narrow;          // ids of up to 16 bits, as uint16
  SegmentEncoder<uint32_t> narrow_in_wide;  // the same, as uint32
  SegmentEncoder<uint32_t> wide;            // others
};

// All nullptr where it was not compiled. May be used only where cpu_has_avx2_and_aes().
SegmentEncoders avx2_segment_encoders();

}  // namespace bpe
