// The counting loop. Pre-tokens are looked up in batches: the memory of all is prefetched before
// any is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "pretoken_table.hpp"
#include "scanner_masks.hpp"

namespace bpe {

// Keys: see PortableKeys. In addition, Keys::find(keys, key) returns the slot of a key among three,
// or 3. kDocuments: documents are counted too.
template <class Keys, bool kDocuments>
struct SegmentCounter {
  static constexpr size_t kBatch = 256;

  BPE_ALWAYS_INLINE static void add_segment(PretokenTable& table,
                                            const PretokenTable::Segment& segment,
                                            const Scanner& scanner, size_t max_pretoken_bytes,
                                            std::vector<LongPretoken>& too_long) {
    size_t bounds[kBatch + 1];
    alignas(32) ShortKey keys[kBatch];
    uint64_t hashes[kBatch];
    const uint8_t* const text = segment.text;
    const size_t longest = max_pretoken_bytes == 0 ? SIZE_MAX : max_pretoken_bytes;
    size_t found;
    for (size_t pos = 0; pos < segment.size; pos = bounds[found]) {
      bounds[0] = pos;
      found = scanner(text, segment.size, pos, bounds + 1, kBatch);
      table.reserve_batch(found);
      for (size_t i = 0; i < found; ++i) {
        hashes[i] = make_key<Keys>(text + bounds[i], bounds[i + 1] - bounds[i],
                                   segment.readable - bounds[i], keys[i]);
        const PretokenTable::Line& line = table.line_of(hashes[i]);
        __builtin_prefetch(&line, 1);
        if constexpr (kDocuments) __builtin_prefetch(&table.documents_of(line), 1);
      }
      for (size_t i = 0; i < found; ++i) {
        PretokenTable::Line& line = table.line_of(hashes[i]);
        const size_t slot = Keys::find(line.keys, keys[i]);
        if constexpr (kDocuments) {
          if (slot < PretokenTable::kSlots) table.note_document(line, slot);
        }
        if (slot < PretokenTable::kSlots && ++line.counts[slot] != 0) [[likely]]
          continue;
        const uint8_t* const bytes = text + bounds[i];
        const size_t length = bounds[i + 1] - bounds[i];
        if (slot < PretokenTable::kSlots) {
          table.carry(bytes, length);
        } else if (length > longest) {
          too_long.push_back({segment.document, segment.begin + bounds[i], length});
        } else {
          const PretokenTable::Place place = table.place_of({keys[i], hashes[i], bytes, length});
          if constexpr (kDocuments) table.note_document(place.line, place.slot);
          if (++place.line.counts[place.slot] == 0) table.carry(bytes, length);
        }
      }
    }
  }
};

}  // namespace bpe
