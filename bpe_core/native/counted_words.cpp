#include "counted_words.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>

namespace bpe {

namespace {

std::string quoted(std::string_view bytes) {
  constexpr size_t kShown = 40;
  static const char* digits = "0123456789abcdef";
  std::string text = "b'";
  for (const char c : bytes.substr(0, kShown)) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte >= 0x20 && byte < 0x7f && c != '\'' && c != '\\') {
      text += c;
    } else {
      text += {'\\', 'x', digits[byte >> 4], digits[byte & 15]};
    }
  }
  return text + (bytes.size() > kShown ? "...'" : "'");
}

void check_offsets(const int64_t* offsets, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (offsets[i] < 0 || offsets[i] > offsets[i + 1]) {
      throw std::invalid_argument("offsets: expected ascending values from 0, found " +
                                  std::to_string(offsets[i]) + " before " +
                                  std::to_string(offsets[i + 1]) + " at word " + std::to_string(i));
    }
  }
}

}  // namespace

void CountedWords::check() const {
  check_offsets(offsets, n);
  for (size_t i = 0; i < n; ++i) {
    if (counts[i] < 1) {
      throw std::invalid_argument("counts: expected at least 1, found " +
                                  std::to_string(counts[i]) + " for word " + std::to_string(i));
    }
  }
}

std::vector<PairTally> CountedWords::count_byte_pairs() const {
  std::vector<PairTally> pairs(size_t{256} * 256);
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* word = begin(i);
    for (size_t k = 0; k + 1 < length(i); ++k) {
      PairTally& pair = pairs[size_t{word[k]} << 8 | word[k + 1]];
      ++pair.occurrences;
      pair.count += static_cast<uint64_t>(counts[i]);
      if (pair.count > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        const char* chars = reinterpret_cast<const char*>(word);
        throw std::overflow_error(
            "the count of the pair (" + quoted({chars + k, 1}) + ", " + quoted({chars + k + 1, 1}) +
            ") exceeds 2^63 - 1 at word " + std::to_string(i) + " (" + quoted({chars, length(i)}) +
            ", count " + std::to_string(counts[i]) + "); scale the counts down");
      }
    }
  }
  return pairs;
}

std::vector<size_t> CountedWords::by_count() const {
  constexpr size_t kSmall = 1 << 16;  // counts below are sorted by counting
  std::vector<size_t> starts(kSmall + 1);
  const auto bucket = [&](size_t i) {
    return kSmall - static_cast<size_t>(std::min<int64_t>(counts[i], kSmall));
  };
  for (size_t i = 0; i < n; ++i) {
    if (length(i) > 1) ++starts[bucket(i) + 1];
  }
  std::partial_sum(starts.begin(), starts.end(), starts.begin());
  const size_t num_large = starts[1];
  std::vector<size_t> order(starts.back());
  for (size_t i = 0; i < n; ++i) {
    if (length(i) > 1) order[starts[bucket(i)]++] = i;
  }
  std::stable_sort(order.begin(), order.begin() + static_cast<ptrdiff_t>(num_large),
                   [&](size_t a, size_t b) { return counts[a] > counts[b]; });
  return order;
}

std::vector<size_t> CountedWords::in_order() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < n; ++i) {
    if (length(i) > 1) order.push_back(i);
  }
  return order;
}

size_t CountedWords::num_slots() const {
  size_t slots = 1;
  for (size_t i = 0; i < n; ++i) slots += length(i) > 1 ? length(i) + 1 : 0;
  return slots;
}

WordBytes WordSymbols::to_bytes() const {
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (symbols[i].empty()) {
      throw std::invalid_argument("symbols: expected bytes, found none for symbol " +
                                  std::to_string(i));
    }
  }
  check_offsets(offsets, n);
  WordBytes bytes;
  bytes.offsets.push_back(0);
  for (size_t i = 0; i < n; ++i) {
    for (const uint32_t* symbol = begin(i); symbol != end(i); ++symbol) {
      if (*symbol >= symbols.size()) {
        throw std::invalid_argument("words: expected symbols below " +
                                    std::to_string(symbols.size()) + ", found " +
                                    std::to_string(*symbol) + " in word " + std::to_string(i));
      }
      bytes.keys.insert(bytes.keys.end(), symbols[*symbol].begin(), symbols[*symbol].end());
    }
    bytes.offsets.push_back(static_cast<int64_t>(bytes.keys.size()));
  }
  return bytes;
}

}  // namespace bpe
