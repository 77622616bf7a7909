#include "token_files.hpp"

#include <array>
#include <charconv>
#include <string_view>

#include "stand_ins.hpp"

namespace bpe {
namespace {

constexpr std::string_view kHex = "0123456789abcdef";
constexpr std::string_view kBase64 =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

// By byte, the code point that stands in for it: below 0x800, so two bytes of UTF-8 at most.
constexpr auto kCodePoints = [] {
  std::array<uint16_t, 256> code_points{};
  for (uint32_t code_point = 0; code_point < kStandIns.size(); ++code_point) {
    const int byte = byte_of_stand_in(code_point);
    if (byte >= 0) code_points[static_cast<size_t>(byte)] = static_cast<uint16_t>(code_point);
  }
  return code_points;
}();

std::string_view text_at(const KeySpans& texts, int64_t row) {
  const int64_t begin = texts.offsets[row];
  return {reinterpret_cast<const char*>(texts.bytes) + begin,
          static_cast<size_t>(texts.offsets[row + 1] - begin)};
}

size_t bytes_of(const KeySpans& texts) {
  return texts.n == 0 ? 0 : static_cast<size_t>(texts.offsets[texts.n] - texts.offsets[0]);
}

void append_number(int64_t number, std::string& out) {
  std::array<char, 20> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number).ptr;
  out.append(digits.data(), end);
}

void append_escaped(char character, std::string& out) {
  switch (character) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    case '\f':
      out += "\\f";
      return;
    case '\b':
      out += "\\b";
      return;
    default:
      break;
  }
  const auto code = static_cast<uint8_t>(character);
  out += "\\u00";
  out += kHex[code >> 4];
  out += kHex[code & 15];
}

void append_string(std::string_view text, std::string& out) {
  out += '"';
  size_t done = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out += text.substr(done, i - done);
    append_escaped(text[i], out);
    done = i + 1;
  }
  out += text.substr(done);
  out += '"';
}

void append_base64(std::string_view bytes, std::string& out) {
  const auto at = [&](size_t i) -> uint32_t {
    return i < bytes.size() ? static_cast<uint8_t>(bytes[i]) : 0;
  };
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const uint32_t bits = at(i) << 16 | at(i + 1) << 8 | at(i + 2);
    out += kBase64[bits >> 18];
    out += kBase64[bits >> 12 & 63];
    out += i + 1 < bytes.size() ? kBase64[bits >> 6 & 63] : '=';
    out += i + 2 < bytes.size() ? kBase64[bits & 63] : '=';
  }
}

}  // namespace

TokenTexts stand_ins_of(const KeySpans& tokens) {
  TokenTexts texts;
  texts.text.reserve(bytes_of(tokens) * 3 / 2);
  texts.offsets.reserve(tokens.n + 1);
  texts.offsets.push_back(0);
  for (size_t i = 0; i < tokens.n; ++i) {
    for (const char byte : text_at(tokens, static_cast<int64_t>(i))) {
      const uint32_t code_point = kCodePoints[static_cast<uint8_t>(byte)];
      if (code_point < 0x80) {
        texts.text += static_cast<char>(code_point);
      } else {
        texts.text += static_cast<char>(0xC0 | code_point >> 6);
        texts.text += static_cast<char>(0x80 | (code_point & 63));
      }
    }
    texts.offsets.push_back(static_cast<int64_t>(texts.text.size()));
  }
  return texts;
}

std::string vocabulary_json(const KeySpans& texts, const int64_t* ids, const int64_t* rows,
                            size_t num_rows) {
  std::string out;
  out.reserve(bytes_of(texts) + 14 * num_rows);
  out += '{';
  for (size_t i = 0; i < num_rows; ++i) {
    if (i > 0) out += ", ";
    append_string(text_at(texts, rows[i]), out);
    out += ": ";
    append_number(ids[rows[i]], out);
  }
  out += '}';
  return out;
}

std::string merges_json(const KeySpans& texts, const MergeSides& merges) {
  std::string out;
  out.reserve(bytes_of(texts) + 10 * merges.n);
  out += '[';
  for (size_t i = 0; i < merges.n; ++i) {
    if (i > 0) out += ", ";
    out += '[';
    append_string(text_at(texts, merges.left[i]), out);
    out += ", ";
    append_string(text_at(texts, merges.right[i]), out);
    out += ']';
  }
  out += ']';
  return out;
}

std::string merge_lines(const KeySpans& texts, const MergeSides& merges) {
  std::string out;
  out.reserve(bytes_of(texts) + 2 * merges.n);
  for (size_t i = 0; i < merges.n; ++i) {
    out += text_at(texts, merges.left[i]);
    out += ' ';
    out += text_at(texts, merges.right[i]);
    out += '\n';
  }
  return out;
}

std::string rank_lines(const KeySpans& tokens, const int64_t* ids) {
  std::string out;
  out.reserve(bytes_of(tokens) * 4 / 3 + 12 * tokens.n);
  for (size_t i = 0; i < tokens.n; ++i) {
    append_base64(text_at(tokens, static_cast<int64_t>(i)), out);
    out += ' ';
    append_number(ids[i], out);
    out += '\n';
  }
  return out;
}

}  // namespace bpe
