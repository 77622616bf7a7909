#include "merge_texts.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "bytes_hash.hpp"
#include "stand_ins.hpp"
#include "utf8.hpp"

namespace bpe {
namespace {

// Indices of byte strings; of equal ones the first counts.
class KeyTable {
 public:
  explicit KeyTable(const KeySpans& keys) : keys_(keys) {
    size_t slots = 16;
    while (slots < keys.n * 2) slots *= 2;
    slots_.resize(slots);
    for (size_t i = 0; i < keys.n; ++i) {
      const uint64_t hash = hash_of(begin_of(i), length_of(i), readable_of(i));
      uint64_t& slot = slots_[find_slot(hash, begin_of(i), length_of(i))];
      has_equal_ |= slot != 0;
      if (slot == 0) slot = (hash >> 32) << 32 | (i + 1);
    }
  }

  bool has_equal() const { return has_equal_; }

  // The index of a key, or -1 if it is missing.
  int64_t find(uint64_t hash, const uint8_t* bytes, size_t length) const {
    return static_cast<int64_t>(slots_[find_slot(hash, bytes, length)] & UINT32_MAX) - 1;
  }

  // Memory that `find` will need is asked for early, first that of the slot.
  void prefetch_slot(uint64_t hash) const {
    __builtin_prefetch(&slots_[hash & (slots_.size() - 1)]);
  }
  void prefetch_key(uint64_t hash) const {
    const uint32_t found = static_cast<uint32_t>(slots_[hash & (slots_.size() - 1)]);
    if (found != 0) __builtin_prefetch(begin_of(found - 1));
  }

  static uint64_t hash_of(const uint8_t* bytes, size_t length, size_t readable) {
    if (length > kShortKeyBytes) return hash_long_key(bytes, length);
    return length == 0 ? 0 : hash_short_key(load_short_key(bytes, length, readable), length);
  }

 private:
  // The slot of a key, or the free slot for it.
  size_t find_slot(uint64_t hash, const uint8_t* bytes, size_t length) const {
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask;; at = (at + 1) & mask) {
      if (slots_[at] == 0) return at;
      if (slots_[at] >> 32 != hash >> 32) continue;
      const size_t i = static_cast<uint32_t>(slots_[at]) - 1;
      if (length_of(i) == length && std::memcmp(begin_of(i), bytes, length) == 0) return at;
    }
  }
  const uint8_t* begin_of(size_t i) const { return keys_.bytes + keys_.offsets[i]; }
  size_t length_of(size_t i) const {
    return static_cast<size_t>(keys_.offsets[i + 1] - keys_.offsets[i]);
  }
  size_t readable_of(size_t i) const {
    return static_cast<size_t>(keys_.offsets[keys_.n] - keys_.offsets[i]);
  }

  KeySpans keys_;
  std::vector<uint64_t> slots_;  // the upper half of a hash, and an index + 1; 0 is free
  bool has_equal_ = false;
};

// Leaves out all but the last of the rows with the same left and right id.
void drop_repeated(std::vector<int64_t>& rows) {
  const size_t n = rows.size() / 3;
  size_t slots = 16;
  while (slots < n * 2) slots *= 2;
  std::vector<uint32_t> by_pair(slots);  // an index + 1; 0 is free
  std::vector<size_t> dropped;
  for (size_t i = 0; i < n; ++i) {
    const int64_t* const row = rows.data() + 3 * i;
    const ShortKey pair = {static_cast<uint64_t>(row[0]), static_cast<uint64_t>(row[1])};
    for (size_t at = hash_short_key(pair, 0) & (slots - 1);; at = (at + 1) & (slots - 1)) {
      uint32_t& found = by_pair[at];
      if (found != 0) {
        const int64_t* const other = rows.data() + 3 * (found - size_t{1});
        if (other[0] != row[0] || other[1] != row[1]) continue;
        dropped.push_back(found - 1);
      }
      found = static_cast<uint32_t>(i + 1);
      break;
    }
  }
  for (const size_t i : dropped) rows[3 * i] = -1;
  if (dropped.empty()) return;
  size_t kept = 0;
  for (size_t i = 0; i < n; ++i) {
    if (rows[3 * i] < 0) continue;
    std::copy_n(rows.data() + 3 * i, 3, rows.data() + 3 * kept++);
  }
  rows.resize(3 * kept);
}

// Appends the bytes that stand-ins mean; false if a character is none.
bool append_stand_ins(const uint8_t* text, size_t size, std::vector<uint8_t>& bytes) {
  for (size_t i = 0; i < size;) {
    const DecodedCharacter character = decode_utf8(text + i, size - i);
    const int byte = byte_of_stand_in(character.code_point);
    if (byte < 0) return false;
    bytes.push_back(static_cast<uint8_t>(byte));
    i += character.size;
  }
  return true;
}

// Reads JSON from left to right; any method may find that it is not what was expected.
class JsonReader {
 public:
  JsonReader(const uint8_t* json, size_t size) : json_(json), size_(size) {}

  size_t at() const { return at_; }
  // The next character that is not white space; 0 at the end.
  uint8_t peek() {
    while (at_ < size_ &&
           (json_[at_] == ' ' || json_[at_] == '\n' || json_[at_] == '\r' || json_[at_] == '\t')) {
      ++at_;
    }
    return at_ < size_ ? json_[at_] : 0;
  }
  bool take(uint8_t expected) {
    if (peek() != expected) return false;
    ++at_;
    return true;
  }
  // Skips a string; returns the text between its quotes, escapes included.
  std::optional<std::string_view> skip_string() {
    if (!take('"')) return std::nullopt;
    const size_t begin = at_;
    for (; at_ < size_ && json_[at_] != '"'; ++at_) {
      if (json_[at_] == '\\') ++at_;
    }
    if (at_ >= size_) return std::nullopt;
    return std::string_view(reinterpret_cast<const char*>(json_) + begin, at_++ - begin);
  }
  // Skips a value; checks only its strings and brackets.
  bool skip_value() {
    size_t depth = 0;
    do {
      const uint8_t next = peek();
      if (next == 0) return false;
      if (next == '"') {
        if (!skip_string()) return false;
      } else if (next == '{' || next == '[') {
        ++depth;
        ++at_;
      } else if (next == '}' || next == ']') {
        if (depth == 0) return false;
        --depth;
        ++at_;
      } else {
        ++at_;
        if (depth == 0) {
          while (at_ < size_ && json_[at_] != ',' && json_[at_] != '}' && json_[at_] != ']') ++at_;
        }
      }
    } while (depth > 0);
    return true;
  }
  // Takes an integer of at most 18 digits and no sign.
  std::optional<int64_t> take_integer() {
    peek();
    const size_t begin = at_;
    int64_t value = 0;
    for (; at_ < size_ && json_[at_] >= '0' && json_[at_] <= '9'; ++at_) {
      if (at_ - begin == 18) return std::nullopt;
      value = value * 10 + (json_[at_] - '0');
    }
    const uint8_t next = peek();
    if (at_ == begin || (next != ',' && next != '}')) return std::nullopt;
    return value;
  }
  // Goes into the object that is next, up to the value of a key.
  bool enter(std::string_view key) {
    if (!take('{')) return false;
    do {
      const std::optional<std::string_view> found = skip_string();
      if (!found || !take(':')) return false;
      if (*found == key) return true;
      if (!skip_value()) return false;
    } while (take(','));
    return false;
  }
  // Takes a string and appends its text. Of spaces in it, the first is left out where `split` asks
  // for a place to cut at, and any other is a mistake.
  bool append_string(std::vector<uint8_t>& text, size_t* split) {
    if (!take('"')) return false;
    bool is_split = false;
    for (; at_ < size_; ++at_) {
      uint8_t byte = json_[at_];
      if (byte == '"') {
        ++at_;
        return split == nullptr || is_split;
      }
      if (byte < 0x20) return false;
      if (byte == '\\') {
        if (++at_ >= size_) return false;
        if (json_[at_] == 'u') {
          if (!append_escaped(text)) return false;
          continue;
        }
        static constexpr std::string_view kEscapes = "\"\\/bfnrt";
        static constexpr std::string_view kMeant = "\"\\/\b\f\n\r\t";
        const size_t escape = kEscapes.find(static_cast<char>(json_[at_]));
        if (escape == std::string_view::npos) return false;
        byte = static_cast<uint8_t>(kMeant[escape]);
      } else if (byte == ' ' && split != nullptr) {
        if (is_split) return false;
        is_split = true;
        *split = text.size();
        continue;
      }
      text.push_back(byte);
    }
    return false;
  }

 private:
  // Appends the character of four hexadecimal digits, and stays at the last.
  bool append_escaped(std::vector<uint8_t>& text) {
    if (size_ - at_ < 5) return false;
    uint32_t code_point = 0;
    for (int i = 0; i < 4; ++i) {
      const uint8_t digit = json_[++at_];
      const uint8_t letter = static_cast<uint8_t>((digit | 0x20) - 'a');
      if (!(digit >= '0' && digit <= '9') && letter >= 6) return false;
      code_point = code_point << 4 | (digit <= '9' ? digit - '0' : letter + 10u);
    }
    // A space here would be one to cut at.
    if (code_point == 0x20 || (code_point >= 0xD800 && code_point < 0xE000)) return false;
    uint8_t bytes[4];
    text.insert(text.end(), bytes, bytes + encode_utf8(code_point, bytes));
    return true;
  }

  const uint8_t* json_;
  size_t size_;
  size_t at_ = 0;
};

}  // namespace

bool has_equal_keys(const KeySpans& keys) { return KeyTable(keys).has_equal(); }

std::optional<std::vector<int64_t>> MergeTexts::rows(const KeySpans& tokens, const int64_t* ids,
                                                     bool stand_ins) const {
  struct Key {
    size_t begin;
    size_t length;
    uint64_t hash;
  };
  constexpr size_t kBlock = 64;  // merges whose sides are looked up together
  const KeyTable table(tokens);
  std::vector<int64_t> rows(ends_.size() / 2 * 3);
  int64_t* out = rows.data();
  std::vector<uint8_t> bytes;
  std::vector<Key> keys;
  size_t begin = 0;
  for (size_t i = 0; i < ends_.size();) {
    bytes.clear();
    keys.clear();
    for (const size_t end = std::min(ends_.size(), i + 2 * kBlock); i < end; i += 2) {
      const size_t from = bytes.size();
      const auto append = [&](size_t first, size_t last) {
        if (stand_ins) return append_stand_ins(texts_.data() + first, last - first, bytes);
        bytes.insert(bytes.end(), texts_.data() + first, texts_.data() + last);
        return true;
      };
      if (!append(begin, ends_[i])) return std::nullopt;
      const size_t middle = bytes.size();
      if (!append(ends_[i], ends_[i + 1])) return std::nullopt;
      if (middle == from || middle == bytes.size()) return std::nullopt;
      keys.push_back({from, middle - from, 0});
      keys.push_back({middle, bytes.size() - middle, 0});
      keys.push_back({from, bytes.size() - from, 0});
      begin = ends_[i + 1];
    }
    bytes.resize(bytes.size() + kShortKeyBytes);
    for (Key& key : keys) {
      const uint8_t* const at = bytes.data() + key.begin;
      key.hash = KeyTable::hash_of(at, key.length, bytes.size() - key.begin);
      table.prefetch_slot(key.hash);
    }
    for (const Key& key : keys) table.prefetch_key(key.hash);
    for (const Key& key : keys) {
      const int64_t index = table.find(key.hash, bytes.data() + key.begin, key.length);
      if (index < 0) return std::nullopt;
      *out++ = ids[index];
    }
  }
  drop_repeated(rows);
  return rows;
}

std::optional<FoundMerges> find_merges(const uint8_t* json, size_t size) {
  JsonReader reader(json, size);
  if (!reader.enter("model") || !reader.enter("merges") || reader.peek() != '[') {
    return std::nullopt;
  }
  FoundMerges found;
  found.begin = reader.at();
  reader.take('[');
  if (!reader.take(']')) {
    do {
      size_t left_end = 0;
      if (reader.take('[')) {
        if (!reader.append_string(found.merges.texts(), nullptr)) return std::nullopt;
        left_end = found.merges.texts().size();
        if (!reader.take(',') || !reader.append_string(found.merges.texts(), nullptr) ||
            !reader.take(']')) {
          return std::nullopt;
        }
      } else if (!reader.append_string(found.merges.texts(), &left_end)) {
        return std::nullopt;
      }
      found.merges.add(left_end);
    } while (reader.take(','));
    if (!reader.take(']')) return std::nullopt;
  }
  found.end = reader.at();
  const std::vector<uint8_t>& texts = found.merges.texts();
  if (utf8_valid_prefix(texts.data(), texts.size()) != texts.size()) return std::nullopt;
  return found;
}

std::optional<TokenizerOutline> outline_of(const uint8_t* json, size_t size) {
  JsonReader reader(json, size);
  TokenizerOutline outline;
  if (!reader.enter("model") || !reader.take('{')) return std::nullopt;
  do {
    const std::optional<std::string_view> key = reader.skip_string();
    if (!key || !reader.take(':')) return std::nullopt;
    reader.peek();
    const size_t begin = reader.at();
    if (*key == "vocab" && outline.vocab_end == 0) {
      if (!reader.take('{')) return std::nullopt;
      do {
        const bool is_entry = reader.skip_string() && reader.take(':');
        const std::optional<int64_t> id = is_entry ? reader.take_integer() : std::nullopt;
        if (!id) return std::nullopt;
        outline.largest_id = std::max(outline.largest_id, *id);
      } while (reader.take(','));
      if (!reader.take('}')) return std::nullopt;
      outline.vocab_begin = begin;
      outline.vocab_end = reader.at();
      continue;
    }
    if (!reader.skip_value()) return std::nullopt;
    if (*key == "merges" && outline.merges_end == 0) {
      outline.merges_begin = begin;
      outline.merges_end = reader.at();
    }
  } while (reader.take(','));
  if (outline.vocab_end == 0 || outline.merges_end == 0) return std::nullopt;
  return outline;
}

}  // namespace bpe
