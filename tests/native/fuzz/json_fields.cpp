// Fields of JSON lines, found with and without AVX2 and by a simple reader. The input is the line.
#include "json_fields.hpp"

#include <map>
#include <optional>

#include "fuzz.hpp"
#include "utf8.hpp"

using namespace bpe;
using fuzz::check;

namespace {

// A reader of RFC 8259 that keeps the texts and numbers of a, b, and meta.lang.
class SimpleReader {
 public:
  struct Field {
    JsonKind kind = JsonKind::kAbsent;
    std::string text;  // of a string, unescaped; of an integer, its digits
  };
  using Fields = std::map<std::string, Field>;

  explicit SimpleReader(std::string_view line) : left_(line) {}

  // Nothing if the line is not an object, or has what the native reader leaves to others.
  std::optional<Fields> read() {
    space();
    if (!object("", 0)) return std::nullopt;
    space();
    if (!left_.empty()) return std::nullopt;
    return fields_;
  }
  // Whether a part of a path was not as expected.
  bool is_unsure() const { return unsure_; }

 private:
  bool object(const std::string& path, int depth) {
    if (!take('{')) return false;
    std::map<std::string, int> seen;
    space();
    if (take('}')) return true;
    do {
      space();
      std::string key;
      if (!string(key, true)) return false;
      space();
      if (!take(':')) return false;
      space();
      const std::string full = path + key;
      const bool is_wanted = full == "a" || full == "b" || full == "meta" || full == "meta.lang";
      const bool counts = is_wanted && key.find('.') == std::string::npos && depth < 2;
      if (counts && ++seen[key] == 2) unsure_ = true;
      if (!value(counts ? full : "?", depth + 1)) return false;
      space();
    } while (take(','));
    return take('}');
  }

  bool value(const std::string& path, int depth) {
    const bool is_field = path == "a" || path == "b" || path == "meta.lang";
    Field field{JsonKind::kOther, ""};
    if (left_.starts_with('"')) {
      field.kind = JsonKind::kText;
      if (!string(field.text)) return false;
      if (path == "meta") unsure_ = true;
    } else if (left_.starts_with('{')) {
      if (!object(path == "meta" ? "meta." : "?.", depth)) return false;
      if (path == "meta") return true;
    } else if (take('[')) {
      if (path == "meta") unsure_ = true;
      space();
      if (!take(']')) {
        do {
          space();
          if (!value("?", depth + 1)) return false;
          space();
        } while (take(','));
        if (!take(']')) return false;
      }
    } else if (take_word("null")) {
      field.kind = JsonKind::kAbsent;
    } else if (take_word("true") || take_word("false")) {
      if (path == "meta") unsure_ = true;
    } else {
      if (path == "meta") unsure_ = true;
      if (!number(field)) return false;
    }
    if (is_field) fields_[path] = field;
    return true;
  }

  bool number(Field& field) {
    const std::string_view begin = left_;
    const bool minus = take('-');
    for (const char* const word : {"NaN", "Infinity", "Inf"}) {
      if (take_word(word)) return true;
    }
    if (!take('0') && digits() == 0) return false;
    field.kind = JsonKind::kInteger;
    if (take('.')) {
      field.kind = JsonKind::kOther;
      if (digits() == 0) return false;
    }
    if (take('e') || take('E')) {
      field.kind = JsonKind::kOther;
      if (!take('+')) take('-');
      if (digits() == 0) return false;
    }
    if (field.kind == JsonKind::kInteger) {
      field.text = begin.substr(0, begin.size() - left_.size());
      if (minus && field.text == "-0") field.text = "0";
    }
    return true;
  }
  size_t digits() {
    size_t n = 0;
    while (!left_.empty() && left_[0] >= '0' && left_[0] <= '9') {
      left_.remove_prefix(1);
      ++n;
    }
    return n;
  }

  bool string(std::string& text, bool is_key = false) {
    if (!take('"')) return false;
    for (;;) {
      if (left_.empty()) return false;
      const char next = left_[0];
      left_.remove_prefix(1);
      if (next == '"') return true;
      if (static_cast<uint8_t>(next) < 0x20) return false;
      if (next != '\\') {
        text.push_back(next);
        continue;
      }
      if (left_.empty()) return false;
      const char escape = left_[0];
      left_.remove_prefix(1);
      if (escape != 'u') {
        const size_t which = std::string_view("\"\\/bfnrt").find(escape);
        if (which == std::string_view::npos) return false;
        text.push_back("\"\\/\b\f\n\r\t"[which]);
        continue;
      }
      uint32_t code_point = 0;
      if (!unit(code_point)) return false;
      if (code_point >= 0xD800 && code_point < 0xE000) {
        uint32_t low = 0;
        const std::string_view before = left_;
        if (code_point < 0xDC00 && take('\\') && take('u') && unit(low) && low >= 0xDC00 &&
            low < 0xE000) {
          code_point = 0x10000 + ((code_point - 0xD800) << 10 | (low - 0xDC00));
        } else {
          // A key with half of a pair is none of the fields.
          left_ = before;
          unsure_ |= !is_key;
          text.push_back('\xFF');
          continue;
        }
      }
      uint8_t bytes[4];
      text.append(reinterpret_cast<char*>(bytes), encode_utf8(code_point, bytes));
    }
  }
  bool unit(uint32_t& code_point) {
    if (left_.size() < 4) return false;
    for (int i = 0; i < 4; ++i) {
      const int digit = std::isxdigit(static_cast<uint8_t>(left_[0]))
                            ? std::stoi(std::string(1, left_[0]), nullptr, 16)
                            : -1;
      if (digit < 0) return false;
      code_point = code_point << 4 | static_cast<uint32_t>(digit);
      left_.remove_prefix(1);
    }
    return true;
  }

  void space() {
    while (!left_.empty() && std::string_view(" \t\n\r").find(left_[0]) != std::string_view::npos) {
      left_.remove_prefix(1);
    }
  }
  bool take(char expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(1);
    return true;
  }
  bool take_word(std::string_view word) {
    if (!left_.starts_with(word)) return false;
    left_.remove_prefix(word.size());
    return true;
  }

  std::string_view left_;
  Fields fields_;
  bool unsure_ = false;
};

}  // namespace

FUZZ_TARGET(data, size) {
  static const std::vector<std::vector<std::string>> paths = {{"a"}, {"b"}, {"meta", "lang"}};
  static const JsonFields fastest(paths);
  static const JsonFields portable(paths, true);
  fuzz::Bytes line(fuzz::view(data, size));
  const int64_t start = 0;
  const auto end = static_cast<int64_t>(size);
  const JsonSpans spans = fastest.find(line.data(), &start, &end, 1);
  const JsonSpans others = portable.find(line.data(), &start, &end, 1);
  check(spans.starts == others.starts && spans.ends == others.ends && spans.kinds == others.kinds,
        "fields with and without AVX2");
  SimpleReader reader(line.view());
  std::optional<SimpleReader::Fields> expected;
  // Not too deep for a recursive reader.
  const bool is_flat =
      std::ranges::count(line.view(), '[') + std::ranges::count(line.view(), '{') < 1000;
  if (is_flat) expected = reader.read();
  for (size_t i = 0; i < spans.kinds.size(); ++i) {
    const auto kind = static_cast<JsonKind>(spans.kinds[i]);
    const auto from = static_cast<size_t>(spans.starts[i]);
    const auto to = static_cast<size_t>(spans.ends[i]);
    check(from <= to && to <= size, "a span lies inside the line");
    if (!is_flat || kind == JsonKind::kBlank) continue;
    if (kind == JsonKind::kOther) continue;
    check(expected && !reader.is_unsure(), "no field is found in a line that is not an object");
    const std::string& name = paths[i].size() == 1 ? paths[i][0] : "meta.lang";
    const SimpleReader::Field& field = (*expected)[name];
    std::string text(line.view().substr(from, to - from));
    if (kind == JsonKind::kEscaped) {
      const int64_t first = 0;
      auto last = static_cast<int64_t>(text.size());
      fuzz::Bytes escaped(text);
      unescape_json(escaped.data(), &first, &last, 1);
      text = escaped.view().substr(0, static_cast<size_t>(last));
      check(field.kind == JsonKind::kText, "an escaped text is a text");
    } else {
      check(field.kind == kind, "a field has the kind that a simple reader finds");
    }
    check(field.text == text, "a field has the text that a simple reader finds");
  }
  // What a simple reader is sure of, the native one finds too, unless it is of no field's kind.
  if (expected && !reader.is_unsure()) {
    for (size_t i = 0; i < spans.kinds.size(); ++i) {
      const std::string& name = paths[i].size() == 1 ? paths[i][0] : "meta.lang";
      const JsonKind kind = (*expected)[name].kind;
      if (kind == JsonKind::kOther) continue;
      check(static_cast<JsonKind>(spans.kinds[i]) != JsonKind::kOther, "a valid line is read");
    }
  }
  return 0;
}
