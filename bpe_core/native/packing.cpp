#include "packing.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace bpe {

size_t best_fit_rows(const int64_t* lengths, size_t n, int64_t capacity, int64_t* rows) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::set<std::pair<int64_t, int64_t>> open;  // (free space, row), without full rows
  int64_t begun = 0;
  for (const size_t piece : order) {
    const auto fitting = open.lower_bound({lengths[piece], 0});
    int64_t room = capacity;
    if (fitting == open.end()) {
      rows[piece] = begun++;
    } else {
      std::tie(room, rows[piece]) = *fitting;
      open.erase(fitting);
    }
    if (room > lengths[piece]) open.emplace(room - lengths[piece], rows[piece]);
  }
  std::vector<int64_t> numbers(static_cast<size_t>(begun), -1);
  int64_t numbered = 0;
  for (size_t i = 0; i < n; ++i) {
    int64_t& number = numbers[static_cast<size_t>(rows[i])];
    if (number < 0) number = numbered++;
    rows[i] = number;
  }
  return static_cast<size_t>(begun);
}

void copy_pieces(const uint8_t* source, const int64_t* starts, const int64_t* lengths,
                 const int64_t* places, size_t n, size_t item_bytes, uint8_t* target) {
  for (size_t i = 0; i < n; ++i) {
    if (lengths[i] == 0) continue;
    std::memcpy(target + static_cast<size_t>(places[i]) * item_bytes,
                source + static_cast<size_t>(starts[i]) * item_bytes,
                static_cast<size_t>(lengths[i]) * item_bytes);
  }
}

}  // namespace bpe
