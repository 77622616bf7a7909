// Packing: assignment of pieces to rows, and copying of their ids.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

// Best fit decreasing (Johnson 1973): the pieces from the longest to the shortest, equally long
// ones in their order; each into the row with the least sufficient space, of several the one that
// was started first, otherwise into a new row. Then rows are numbered by their first piece. All
// lengths are in [1, capacity]. Writes the row of each piece; returns the number of rows. O(n log
// n).
size_t best_fit_rows(const int64_t* lengths, size_t n, int64_t capacity, int64_t* rows);

// Copies n pieces of items: source[starts[i], starts[i] + lengths[i]) to target[places[i], …).
void copy_pieces(const uint8_t* source, const int64_t* starts, const int64_t* lengths,
                 const int64_t* places, size_t n, size_t item_bytes, uint8_t* target);

}  // namespace bpe
