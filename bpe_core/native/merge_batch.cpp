#include "merge_batch.hpp"

#include <algorithm>
#include <vector>

namespace bpe {

void merge_batch_portable(const MergeRules& rules, BatchItem* items, size_t n) {
  std::vector<uint32_t> ids;
  for (BatchItem* item = items; item != items + n; ++item) {
    rules.merge(item->bytes, item->length, ids);
    item->count = ids.size();
    std::copy(ids.begin(), ids.end(), item->ids);
  }
}

}  // namespace bpe
