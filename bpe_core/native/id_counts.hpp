// Counts of ids.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

// Adds 1 to counts[id] for each of n ids. Returns the index of the first id that is not below
// `size`, or n; the ids before that index are counted.
template <class Id>
size_t add_id_counts(const Id* ids, size_t n, int64_t* counts, size_t size) {
  for (size_t i = 0; i < n; ++i) {
    const size_t id = ids[i];
    if (id >= size) [[unlikely]]
      return i;
    ++counts[id];
  }
  return n;
}

// Documents that contain each id, one element for each id below `size`.
struct DocumentFrequency {
  int64_t* documents;  // how many
  int64_t* first;      // the first row of all with the id
  int64_t* last;       // the last document with the id, or -1
};

// Adds rows to the frequencies: row i has ids[offsets[i]:offsets[i + 1]] and belongs to a document,
// whose rows follow each other. Returns the index of the first id that is not below `size`, or the
// number of ids.
template <class Id>
size_t add_document_frequency(const Id* ids, const int64_t* offsets, const int64_t* document,
                              size_t rows, int64_t first_row, DocumentFrequency found,
                              size_t size) {
  for (size_t row = 0; row < rows; ++row) {
    for (auto i = static_cast<size_t>(offsets[row]); i < static_cast<size_t>(offsets[row + 1]);
         ++i) {
      const size_t id = ids[i];
      if (id >= size) [[unlikely]]
        return i;
      if (found.last[id] == document[row]) continue;
      found.last[id] = document[row];
      if (found.documents[id]++ == 0) found.first[id] = first_row + static_cast<int64_t>(row);
    }
  }
  return static_cast<size_t>(offsets[rows]);
}

}  // namespace bpe
