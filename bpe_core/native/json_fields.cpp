#include "json_fields.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "utf8.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace bpe {
namespace {

bool is_special(uint8_t byte) { return byte == '"' || byte == '\\' || byte < 0x20; }

bool is_white_space(uint8_t byte) {
  return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n';
}

bool is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

const uint8_t* find_special_portable(const uint8_t* text, const uint8_t* end) {
  while (text != end && !is_special(*text)) ++text;
  return text;
}

#if defined(__x86_64__)

__attribute__((target("avx2")))
const uint8_t* find_special_avx2(const uint8_t* text, const uint8_t* end) {
  const __m256i quotation = _mm256_set1_epi8('"');
  const __m256i backslash = _mm256_set1_epi8('\\');
  const __m256i last_control = _mm256_set1_epi8(0x1F);
  for (; end - text >= 32; text += 32) {
    const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(text));
    const __m256i marks =
        _mm256_or_si256(_mm256_cmpeq_epi8(bytes, quotation), _mm256_cmpeq_epi8(bytes, backslash));
    const __m256i controls = _mm256_cmpeq_epi8(_mm256_min_epu8(bytes, last_control), bytes);
    const auto found =
        static_cast<uint32_t>(_mm256_movemask_epi8(_mm256_or_si256(marks, controls)));
    if (found != 0) return text + __builtin_ctz(found);
  }
  return find_special_portable(text, end);
}

#endif

auto fastest_find_special(bool portable) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (!portable && __builtin_cpu_supports("avx2")) return find_special_avx2;
#else
  static_cast<void>(portable);
#endif
  return find_special_portable;
}

constexpr uint32_t kNoHex = 0xFFFFFFFF;

// The number written by four hexadecimal digits, or kNoHex.
uint32_t four_hex_digits(const uint8_t* text) {
  uint32_t number = 0;
  for (size_t i = 0; i < 4; ++i) {
    const uint8_t byte = text[i];
    const uint8_t letter = byte | 0x20;
    if (is_digit(byte)) {
      number = number << 4 | static_cast<uint32_t>(byte - '0');
    } else if (letter >= 'a' && letter <= 'f') {
      number = number << 4 | static_cast<uint32_t>(letter - 'a' + 10);
    } else {
      return kNoHex;
    }
  }
  return number;
}

// The character for the byte after a backslash; 0 for "u" and for invalid escapes.
uint8_t simple_escape(uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '/':
      return byte;
    case 'b':
      return '\b';
    case 'f':
      return '\f';
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return 0;
  }
}

struct Escape {
  uint32_t code_point;  // kNoHex if it is not an escape
  uint32_t size;        // in bytes, with the backslash
  bool is_half;         // of a surrogate pair
};

// The escape that starts with the backslash at text[0].
Escape read_escape(const uint8_t* text, const uint8_t* end) {
  constexpr Escape kNone = {kNoHex, 0, false};
  if (end - text < 2) return kNone;
  if (const uint8_t simple = simple_escape(text[1]); simple != 0) return {simple, 2, false};
  if (text[1] != 'u' || end - text < 6) return kNone;
  const uint32_t first = four_hex_digits(text + 2);
  if (first == kNoHex) return kNone;
  if (first < 0xD800 || first >= 0xE000) return {first, 6, false};
  if (first < 0xDC00 && end - text >= 12 && text[6] == '\\' && text[7] == 'u') {
    const uint32_t second = four_hex_digits(text + 8);
    if (second >= 0xDC00 && second < 0xE000) {
      return {0x10000 + ((first - 0xD800) << 10 | (second - 0xDC00)), 12, false};
    }
  }
  return {first, 6, true};
}

// Writes the text with its escapes replaced to `target`, which may be `text`. Returns its end.
uint8_t* unescape(const uint8_t* text, const uint8_t* end, uint8_t* target) {
  while (text != end) {
    const auto* const found =
        static_cast<const uint8_t*>(std::memchr(text, '\\', static_cast<size_t>(end - text)));
    const uint8_t* const backslash = found == nullptr ? end : found;
    const auto size = static_cast<size_t>(backslash - text);
    std::memmove(target, text, size);
    target += size;
    text = backslash;
    while (text != end && *text == '\\') {
      const Escape escape = read_escape(text, end);
      if (escape.code_point == kNoHex) throw std::invalid_argument("a backslash begins no escape");
      target += encode_utf8(escape.code_point, target);
      text += escape.size;
    }
  }
  return target;
}

}  // namespace

// Reads one line from its start. Every function moves `at_` past what it reads, and returns false
// if the text is invalid.
class JsonLine {
 public:
  JsonLine(const JsonFields& fields, std::vector<uint64_t>& open, std::vector<size_t>& met_in,
           JsonSpans& spans, const uint8_t* data, size_t line, size_t num_lines)
      : fields_(fields),
        open_(open),
        met_in_(met_in),
        spans_(spans),
        data_(data),
        line_(line),
        num_lines_(num_lines) {}

  // True if the line is an object and nothing else, and every part of it is understood.
  bool read(const uint8_t* begin, const uint8_t* end) {
    at_ = begin;
    end_ = end;
    if (at_ == end_ || *at_ != '{' || !read_object(0)) return false;
    return at_ == end_;
  }

 private:
  struct String {
    const uint8_t* begin;
    const uint8_t* end;
    bool is_escaped = false;
    bool has_half = false;  // of a surrogate pair
  };

  void skip_white_space() {
    while (at_ != end_ && is_white_space(*at_)) ++at_;
  }

  bool skip(char byte) {
    if (at_ == end_ || *at_ != static_cast<uint8_t>(byte)) return false;
    ++at_;
    return true;
  }

  bool skip_word(std::string_view word) {
    if (static_cast<size_t>(end_ - at_) < word.size()) return false;
    if (std::memcmp(at_, word.data(), word.size()) != 0) return false;
    at_ += word.size();
    return true;
  }

  bool skip_digits() {
    const uint8_t* const begin = at_;
    while (at_ != end_ && is_digit(*at_)) ++at_;
    return at_ != begin;
  }

  bool read_string(String& string) {
    if (!skip('"')) return false;
    string.begin = at_;
    while (true) {
      at_ = fields_.find_special_(at_, end_);
      if (at_ == end_ || *at_ < 0x20) return false;
      if (*at_ == '"') break;
      do {
        const Escape escape = read_escape(at_, end_);
        if (escape.code_point == kNoHex) return false;
        string.is_escaped = true;
        string.has_half |= escape.is_half;
        at_ += escape.size;
      } while (at_ != end_ && *at_ == '\\');
    }
    string.end = at_++;
    return true;
  }

  bool read_number(bool& is_whole) {
    is_whole = false;
    skip('-');
    if (skip_word("Inf")) {
      skip_word("inity");
      return true;
    }
    if (skip_word("NaN")) return true;
    if (!skip('0') && !skip_digits()) return false;
    is_whole = true;
    if (skip('.')) {
      is_whole = false;
      if (!skip_digits()) return false;
    }
    if (skip('e') || skip('E')) {
      is_whole = false;
      if (!skip('+')) skip('-');
      if (!skip_digits()) return false;
    }
    return true;
  }

  bool skip_scalar() {
    if (at_ == end_) return false;
    switch (*at_) {
      case '"': {
        String string;
        return read_string(string);
      }
      case 't':
        return skip_word("true");
      case 'f':
        return skip_word("false");
      case 'n':
        return skip_word("null");
      default: {
        bool is_whole;
        return read_number(is_whole);
      }
    }
  }

  bool skip_key() {
    String key;
    skip_white_space();
    if (!read_string(key)) return false;
    skip_white_space();
    return skip(':');
  }

  // Objects and arrays may be nested as deeply as memory allows: one bit for each open one shows if
  // it is an object.
  bool skip_value() {
    size_t depth = 0;
    while (true) {
      // Before a value.
      skip_white_space();
      if (at_ == end_) return false;
      if (*at_ == '{' || *at_ == '[') {
        const bool is_object = *at_++ == '{';
        skip_white_space();
        if (!skip(is_object ? '}' : ']')) {
          push(depth++, is_object);
          if (is_object && !skip_key()) return false;
          continue;
        }
      } else if (!skip_scalar()) {
        return false;
      }
      // After a value.
      while (true) {
        if (depth == 0) return true;
        const bool is_object = (open_[(depth - 1) / 64] >> ((depth - 1) % 64) & 1) != 0;
        skip_white_space();
        if (skip(',')) {
          if (is_object && !skip_key()) return false;
          break;
        }
        if (!skip(is_object ? '}' : ']')) return false;
        --depth;
      }
    }
  }

  void push(size_t depth, bool is_object) {
    if (depth / 64 == open_.size()) open_.push_back(0);
    const uint64_t bit = uint64_t{1} << (depth % 64);
    open_[depth / 64] = is_object ? open_[depth / 64] | bit : open_[depth / 64] & ~bit;
  }

  // The object of a node, from its brace on.
  bool read_object(size_t node) {
    ++at_;
    skip_white_space();
    if (skip('}')) return true;
    while (true) {
      String key;
      skip_white_space();
      if (!read_string(key)) return false;
      skip_white_space();
      if (!skip(':')) return false;
      skip_white_space();
      const size_t child = child_of(node, key);
      if (child == 0 ? !skip_value() : !read_child(child)) return false;
      skip_white_space();
      if (skip('}')) return true;
      if (!skip(',')) return false;
    }
  }

  // The node of a key in the object of `node`; 0 if it is not part of a path.
  size_t child_of(size_t node, const String& key) {
    const uint8_t* begin = key.begin;
    auto size = static_cast<size_t>(key.end - key.begin);
    if (key.is_escaped) {
      if (key.has_half) return 0;
      key_.resize(size);
      size = static_cast<size_t>(unescape(key.begin, key.end, key_.data()) - key_.data());
      begin = key_.data();
    }
    for (const auto& [name, child] : fields_.nodes_[node].children) {
      if (name.size() == size && std::memcmp(name.data(), begin, size) == 0) return child;
    }
    return 0;
  }

  bool read_child(size_t node) {
    if (met_in_[node] == line_) return false;
    met_in_[node] = line_;
    if (at_ == end_) return false;
    if (*at_ == 'n') return skip_word("null");
    const JsonFields::Node& here = fields_.nodes_[node];
    if (here.field != SIZE_MAX) return here.children.empty() && read_field(here.field);
    return *at_ == '{' && read_object(node);
  }

  bool read_field(size_t field) {
    const uint8_t* begin = at_;
    if (*at_ == '"') {
      String string;
      if (!read_string(string)) return false;
      if (string.has_half) return false;
      note(field, string.begin, string.end,
           string.is_escaped ? JsonKind::kEscaped : JsonKind::kText);
    } else if (*at_ == '-' || is_digit(*at_)) {
      bool is_whole;
      if (!read_number(is_whole)) return false;
      if (at_ - begin == 2 && begin[0] == '-' && begin[1] == '0') ++begin;
      note(field, begin, at_, is_whole ? JsonKind::kInteger : JsonKind::kOther);
    } else {
      if (!skip_value()) return false;
      note(field, begin, begin, JsonKind::kOther);
    }
    return true;
  }

  void note(size_t field, const uint8_t* begin, const uint8_t* end, JsonKind kind) {
    const size_t place = field * num_lines_ + line_;
    spans_.starts[place] = begin - data_;
    spans_.ends[place] = end - data_;
    spans_.kinds[place] = static_cast<uint8_t>(kind);
  }

  const JsonFields& fields_;
  std::vector<uint64_t>& open_;
  std::vector<size_t>& met_in_;  // by node, the last line that contained it
  JsonSpans& spans_;
  const uint8_t* const data_;
  const size_t line_;
  const size_t num_lines_;
  std::vector<uint8_t> key_;
  const uint8_t* at_ = nullptr;
  const uint8_t* end_ = nullptr;
};

JsonFields::JsonFields(const std::vector<std::vector<std::string>>& paths, bool portable)
    : nodes_(1), num_fields_(paths.size()), find_special_(fastest_find_special(portable)) {
  for (size_t field = 0; field < paths.size(); ++field) {
    size_t node = 0;
    for (const std::string& key : paths[field]) {
      auto& children = nodes_[node].children;
      const auto found = std::find_if(children.begin(), children.end(),
                                      [&](const auto& child) { return child.first == key; });
      if (found != children.end()) {
        node = found->second;
        continue;
      }
      const size_t child = nodes_.size();
      children.emplace_back(key, child);
      nodes_.emplace_back();
      node = child;
    }
    if (node == 0) throw std::invalid_argument("a path must have a key");
    if (nodes_[node].field != SIZE_MAX) throw std::invalid_argument("a path is there twice");
    nodes_[node].field = field;
  }
}

JsonSpans JsonFields::find(const uint8_t* data, const int64_t* starts, const int64_t* ends,
                           size_t num_lines) const {
  JsonSpans spans;
  spans.starts.resize(num_fields_ * num_lines);
  spans.ends.resize(num_fields_ * num_lines);
  spans.kinds.resize(num_fields_ * num_lines);
  std::vector<uint64_t> open;
  std::vector<size_t> met_in(nodes_.size(), SIZE_MAX);
  for (size_t line = 0; line < num_lines; ++line) {
    const uint8_t* begin = data + starts[line];
    const uint8_t* end = data + ends[line];
    while (begin != end && is_white_space(*begin)) ++begin;
    while (begin != end && is_white_space(end[-1])) --end;
    const auto set_all = [&](JsonKind kind) {
      for (size_t field = 0; field < num_fields_; ++field) {
        const size_t place = field * num_lines + line;
        spans.starts[place] = spans.ends[place] = begin - data;
        spans.kinds[place] = static_cast<uint8_t>(kind);
      }
    };
    set_all(begin == end ? JsonKind::kBlank : JsonKind::kAbsent);
    if (begin == end) continue;
    JsonLine reader(*this, open, met_in, spans, data, line, num_lines);
    if (!reader.read(begin, end)) set_all(JsonKind::kOther);
  }
  return spans;
}

void unescape_json(uint8_t* data, const int64_t* starts, int64_t* ends, size_t num_texts) {
  for (size_t i = 0; i < num_texts; ++i) {
    uint8_t* const begin = data + starts[i];
    ends[i] = unescape(begin, data + ends[i], begin) - data;
  }
}

}  // namespace bpe
