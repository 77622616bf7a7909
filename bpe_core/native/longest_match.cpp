#include "longest_match.hpp"

#include <algorithm>
#include <functional>
#include <stdexcept>

#include "utf8.hpp"
#include "words.hpp"

namespace bpe {
namespace {

size_t edge_hash(uint64_t key) { return static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> 24); }

int64_t special_id_at(const uint8_t* text, size_t pos, size_t size,
                      const std::vector<int64_t>& special_ids) {
  if (size - pos < kSpecialMarkBytes) throw std::invalid_argument("a special token is cut off");
  const size_t index = static_cast<size_t>(text[pos + 1]) << 16 |
                       static_cast<size_t>(text[pos + 2]) << 8 | text[pos + 3];
  if (index >= special_ids.size()) throw std::invalid_argument("no special token has this index");
  return special_ids[index];
}

}  // namespace

LongestMatcher::LongestMatcher(const uint8_t* keys, const int64_t* offsets, const int64_t* ids,
                               size_t n, WordEndMeaning word_end)
    : word_end_(word_end), ids_(ids, ids + n) {
  if (n >= (size_t{1} << 24)) throw std::invalid_argument("at most 2^24 - 1 tokens");
  const size_t bytes = static_cast<size_t>(n == 0 ? 0 : offsets[n] - offsets[0]);
  if (bytes >= kNone) throw std::invalid_argument("the tokens have too many bytes");
  size_t slots = 1024;
  while (slots < 2 * bytes) slots *= 2;
  edges_.assign(slots, {0, 0});
  edge_mask_ = slots - 1;
  token_.push_back(kNone);
  std::vector<uint32_t> parents = {kRoot};
  std::vector<uint8_t> last_bytes = {0};
  std::vector<uint32_t> depths = {0};
  for (size_t i = 0; i < n; ++i) {
    const uint8_t* const key = keys + offsets[i];
    const size_t length = static_cast<size_t>(offsets[i + 1] - offsets[i]);
    lengths_.push_back(static_cast<uint32_t>(length));
    longest_ = std::max(longest_, length);
    if (length == 0) continue;
    uint32_t node = kRoot;
    for (size_t at = length; at-- > 0;) {
      uint32_t child = child_of(node, key[at]);
      if (child == kNone) {
        child = static_cast<uint32_t>(token_.size());
        add_edge(node, key[at], child);
        token_.push_back(kNone);
        parents.push_back(node);
        last_bytes.push_back(key[at]);
        depths.push_back(depths[node] + 1);
      }
      node = child;
    }
    if (token_[node] == kNone) token_[node] = static_cast<uint32_t>(i);
  }
  // Shallow nodes first: the failure link of a node leads to a shallower one.
  std::vector<uint32_t> order(token_.size());
  std::vector<uint32_t> begins(longest_ + 2, 0);
  for (uint32_t depth : depths) ++begins[depth + 1];
  for (size_t i = 1; i < begins.size(); ++i) begins[i] += begins[i - 1];
  for (uint32_t node = 0; node < token_.size(); ++node) order[begins[depths[node]]++] = node;
  fail_.assign(token_.size(), kRoot);
  match_.assign(token_.size(), kRoot);
  for (const uint32_t node : order) {
    if (node == kRoot) continue;
    if (parents[node] != kRoot) fail_[node] = step(fail_[parents[node]], last_bytes[node]);
    match_[node] = token_[node] != kNone ? node : match_[fail_[node]];
  }
}

uint32_t LongestMatcher::child_of(uint32_t node, uint8_t byte) const {
  const uint64_t key = (static_cast<uint64_t>(node) << 8 | byte) + 1;
  for (size_t at = edge_hash(key) & edge_mask_;; at = (at + 1) & edge_mask_) {
    if (edges_[at].key == key) return edges_[at].child;
    if (edges_[at].key == 0) return kNone;
  }
}

void LongestMatcher::add_edge(uint32_t node, uint8_t byte, uint32_t child) {
  const uint64_t key = (static_cast<uint64_t>(node) << 8 | byte) + 1;
  size_t at = edge_hash(key) & edge_mask_;
  while (edges_[at].key != 0) at = (at + 1) & edge_mask_;
  edges_[at] = {key, child};
}

uint32_t LongestMatcher::step(uint32_t node, uint8_t byte) const {
  for (;; node = fail_[node]) {
    const uint32_t child = child_of(node, byte);
    if (child != kNone) return child;
    if (node == kRoot) return kRoot;
  }
}

// The longest match at each position of [begin, end), stored at its position minus begin; reading
// starts at `from` >= end, which must be the end of the text or beyond all tokens that begin before
// `end`.
void LongestMatcher::find_matches(const uint8_t* text, size_t begin, size_t end, size_t from,
                                  std::vector<uint32_t>& matches) const {
  matches.resize(end - begin);
  uint32_t node = kRoot;
  for (size_t pos = from; pos-- > begin;) {
    node = step(node, text[pos]);
    if (pos < end) matches[pos - begin] = match_[node];
  }
}

// The longest of these matches that does not separate a character from its suffix.
uint32_t LongestMatcher::allowed_match(const uint8_t* text, size_t pos, uint32_t match,
                                       size_t size) const {
  if (word_end_ != WordEndMeaning::suffix) return match;
  for (; match != kRoot; match = match_[fail_[match]]) {
    const size_t end = pos + lengths_[token_[match]];
    if (end >= size || text[end] != kWordEnd) break;
  }
  return match;
}

size_t LongestMatcher::unknown_end(const uint8_t* text, size_t pos, size_t size) const {
  const size_t end = pos + decode_utf8(text + pos, size - pos).size;
  const bool has_suffix =
      word_end_ == WordEndMeaning::suffix && end < size && text[end] == kWordEnd;
  return end + (has_suffix ? 1 : 0);
}

void LongestMatcher::add_unknown(const uint8_t* text, size_t& pos, size_t size,
                                 std::vector<int64_t>& ids) const {
  if (text[pos] != kWordEnd || word_end_ == WordEndMeaning::symbol) ids.push_back(kUnknown);
  pos = unknown_end(text, pos, size);
}

void LongestMatcher::left_to_right(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                                   size_t num_documents, const std::vector<int64_t>& special_ids,
                                   std::vector<int64_t>& ids, int64_t* ends_ids) const {
  std::vector<uint32_t> matches;
  const size_t block = std::max(kBlockBytes, longest_);
  for (size_t i = 0; i < num_documents; ++i) {
    const uint8_t* const document = text + starts[i];
    const size_t size = static_cast<size_t>(ends[i] - starts[i]);
    size_t pos = 0;
    while (pos < size) {
      const size_t begin = pos;
      const size_t end = std::min(size, begin + block);
      find_matches(document, begin, end, std::min(size, end + longest_), matches);
      while (pos < end) {
        if (document[pos] == kSpecialMark) {
          ids.push_back(special_id_at(document, pos, size, special_ids));
          pos += kSpecialMarkBytes;
          continue;
        }
        const uint32_t match = allowed_match(document, pos, matches[pos - begin], size);
        if (match == kRoot) {
          add_unknown(document, pos, size, ids);
        } else {
          ids.push_back(ids_[token_[match]]);
          pos += lengths_[token_[match]];
        }
      }
    }
    ends_ids[i] = static_cast<int64_t>(ids.size());
  }
}

constexpr uint8_t kCovered = 1;
constexpr uint8_t kTaken = 2;

struct LongestMatcher::LongestFirstScratch {
  // Rank in the order in the upper bits, position in the word in the lower: the least comes first.
  static constexpr int kPlaceBits = 40;

  std::vector<uint32_t> matches;
  std::vector<uint64_t> heap;
  std::vector<uint8_t> covered;  // 0, kCovered, or kTaken at the start of an accepted match
};

// A match is accepted if none of it is covered. If its start is not covered, checking its last byte
// is enough: earlier matches have at least as many characters, so none is inside it.
void LongestMatcher::encode_word(const uint8_t* word, size_t size, LongestFirstScratch& scratch,
                                 std::vector<int64_t>& ids) const {
  if (size >> LongestFirstScratch::kPlaceBits != 0) {
    throw std::invalid_argument("a word is too long");
  }
  std::vector<uint32_t>& matches = scratch.matches;
  std::vector<uint64_t>& heap = scratch.heap;
  find_matches(word, 0, size, size, matches);
  heap.clear();
  scratch.covered.assign(size, 0);
  const auto key_of = [&](size_t pos) {
    return static_cast<uint64_t>(token_[matches[pos]]) << LongestFirstScratch::kPlaceBits | pos;
  };
  for (size_t pos = 0; pos < size; ++pos) {
    matches[pos] = allowed_match(word, pos, matches[pos], size);
    if (matches[pos] != kRoot) heap.push_back(key_of(pos));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const size_t pos =
        static_cast<size_t>(heap.back() & ((uint64_t{1} << LongestFirstScratch::kPlaceBits) - 1));
    heap.pop_back();
    if (scratch.covered[pos]) continue;
    const auto end_of = [&] { return pos + lengths_[token_[matches[pos]]]; };
    if (!scratch.covered[end_of() - 1]) {
      std::fill(scratch.covered.begin() + static_cast<std::ptrdiff_t>(pos),
                scratch.covered.begin() + static_cast<std::ptrdiff_t>(end_of()), kCovered);
      scratch.covered[pos] = kTaken;
      continue;
    }
    do {
      matches[pos] = allowed_match(word, pos, match_[fail_[matches[pos]]], size);
    } while (matches[pos] != kRoot && scratch.covered[end_of() - 1]);
    if (matches[pos] == kRoot) continue;
    heap.push_back(key_of(pos));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  }
  for (size_t pos = 0; pos < size;) {
    if (scratch.covered[pos] == kTaken) {
      ids.push_back(ids_[token_[matches[pos]]]);
      pos += lengths_[token_[matches[pos]]];
    } else {
      // If tokens are not whole characters, one may begin inside this one.
      size_t end = pos;
      add_unknown(word, end, size, ids);
      do {
        ++pos;
      } while (pos < end && scratch.covered[pos] != kTaken);
    }
  }
}

void LongestMatcher::longest_first(const uint8_t* text, const int64_t* starts, const int64_t* ends,
                                   size_t num_documents, const std::vector<int64_t>& special_ids,
                                   std::vector<int64_t>& ids, int64_t* ends_ids) const {
  LongestFirstScratch scratch;
  for (size_t i = 0; i < num_documents; ++i) {
    const uint8_t* const document = text + starts[i];
    const size_t size = static_cast<size_t>(ends[i] - starts[i]);
    for (size_t pos = 0; pos < size;) {
      if (document[pos] == kSpecialMark) {
        ids.push_back(special_id_at(document, pos, size, special_ids));
        pos += kSpecialMarkBytes;
        continue;
      }
      const uint8_t* const word_end = std::find(document + pos, document + size, uint8_t{kWordEnd});
      const size_t end = std::min(size, static_cast<size_t>(word_end - document) + 1);
      encode_word(document + pos, end - pos, scratch, ids);
      pos = end;
    }
    ends_ids[i] = static_cast<int64_t>(ids.size());
  }
}

}  // namespace bpe
