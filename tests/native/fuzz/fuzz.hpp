// What the targets share: reading of inputs, and the check that two results are equal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "scanner.hpp"

namespace fuzz {

inline void check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// A copy in memory of its own, so that the sanitizer sees every access beyond it.
class Bytes {
 public:
  explicit Bytes(std::string_view bytes) : size_(bytes.size()), data_(new uint8_t[bytes.size()]) {
    std::copy(bytes.begin(), bytes.end(), data_.get());
  }
  const uint8_t* data() const { return data_.get(); }
  uint8_t* data() { return data_.get(); }
  size_t size() const { return size_; }
  std::string_view view() const { return {reinterpret_cast<const char*>(data_.get()), size_}; }

 private:
  size_t size_;
  std::unique_ptr<uint8_t[]> data_;
};

inline std::string_view view(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// The bytes of an input, consumed from the front. What is missing is zero.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : left_(view(data, size)) {}

  uint8_t byte() {
    if (left_.empty()) return 0;
    const auto byte = static_cast<uint8_t>(left_.front());
    left_.remove_prefix(1);
    return byte;
  }
  bool flag() { return (byte() & 1) != 0; }
  uint32_t below(uint32_t limit) { return limit > 256 ? word() % limit : byte() % limit; }
  uint32_t word() {
    const uint32_t low = byte();
    return low | static_cast<uint32_t>(byte()) << 8;
  }
  std::string_view take(size_t size) {
    const std::string_view taken = left_.substr(0, size);
    left_.remove_prefix(taken.size());
    return taken;
  }
  // A string of at most 255 bytes, behind its length.
  std::string_view text() { return take(byte()); }
  std::string_view rest() { return take(left_.size()); }
  bool empty() const { return left_.empty(); }

 private:
  std::string_view left_;
};

inline std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts = {""};
  for (const char byte : text) {
    if (byte == separator) {
      parts.emplace_back();
    } else {
      parts.back().push_back(byte);
    }
  }
  return parts;
}

// The counts of a pre-token, in the simple readers and tables that native code is compared with.
struct Counted {
  int64_t count = 0;
  int64_t documents = 0;
  bool operator==(const Counted&) const = default;
};

using Ends = std::vector<size_t>;

// The ends of all pre-tokens, found `capacity` at a time.
inline Ends cut(const bpe::Scanner& scanner, const uint8_t* text, size_t size,
                size_t capacity = 256) {
  Ends ends;
  Ends found(capacity);
  for (size_t pos = 0; pos < size; pos = ends.back()) {
    const size_t n = scanner(text, size, pos, found.data(), capacity);
    check(n > 0 && n <= capacity, "a scanner finds an end");
    for (size_t i = 0; i < n; ++i) {
      check(found[i] > pos && found[i] <= size, "ends ascend");
      pos = found[i];
      ends.push_back(pos);
    }
  }
  return ends;
}

inline std::vector<std::string> pretokens(const bpe::Scanner& scanner, std::string_view text) {
  const Bytes bytes(text);
  std::vector<std::string> parts;
  size_t begin = 0;
  for (const size_t end : cut(scanner, bytes.data(), bytes.size())) {
    parts.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return parts;
}

// Byte strings as the columns that native code takes.
struct Columns {
  explicit Columns(const std::vector<std::string>& strings) : bytes(join(strings)) {
    for (const std::string& string : strings) {
      offsets.push_back(offsets.back() + static_cast<int64_t>(string.size()));
    }
  }
  static std::string join(const std::vector<std::string>& strings) {
    std::string joined;
    for (const std::string& string : strings) joined += string;
    return joined;
  }

  Bytes bytes;
  std::vector<int64_t> offsets = {0};
};

}  // namespace fuzz

#define FUZZ_TARGET(data, size) \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size)
