// Fields of JSON objects, one per line, found in place: nothing is copied. Lines that this reader
// is not sure of are left to Python's `json`, so it need not implement all of JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bpe {

// Content of a field.
enum class JsonKind : uint8_t {
  kAbsent = 0,   // it is missing or null, or its parent object is
  kText = 1,     // a string without escapes; the span is between the quotation marks
  kEscaped = 2,  // a string with escapes, for unescape_json
  kInteger = 3,  // an integer; the span has its digits as written, for -0 only the 0
  kOther = 4,  // something else, or this reader is not sure; then all fields of the line are kOther
  kBlank = 5,  // the line is white space
};

struct JsonSpans {
  // Field f of line i is at [f * lines + i] and refers to the data. The span is empty, but inside
  // the line, if there is neither text nor a number.
  std::vector<int64_t> starts;
  std::vector<int64_t> ends;
  std::vector<uint8_t> kinds;
};

// Finds fields by their paths. A line is an object with whitespace around it, in the JSON of RFC
// 8259, without a check of bytes above 0x7F; NaN, Inf, Infinity and these with a minus sign are
// numbers, too. The reader is not sure of a line if a part of a path occurs twice in its object, or
// is not an object, or if a text contains half of a surrogate pair.
class JsonFields {
 public:
  // A path is the keys that lead to a field, in UTF-8. `portable`: without AVX2. Throws
  // std::invalid_argument for an empty path or a duplicate.
  explicit JsonFields(const std::vector<std::vector<std::string>>& paths, bool portable = false);

  size_t size() const { return num_fields_; }

  // The fields of lines data[starts[i], ends[i]).
  JsonSpans find(const uint8_t* data, const int64_t* starts, const int64_t* ends,
                 size_t num_lines) const;

 private:
  friend class JsonLine;

  // A key of a path. The first one is the line's object.
  struct Node {
    std::vector<std::pair<std::string, size_t>> children;
    size_t field = SIZE_MAX;  // the field whose path ends here
  };

  std::vector<Node> nodes_;
  size_t num_fields_;
  // The first quotation mark, backslash or control character of a text, or its end.
  const uint8_t* (*find_special_)(const uint8_t* text, const uint8_t* end);
};

// Replaces the escapes in data[starts[i], ends[i]), the contents of strings that are kEscaped, in
// place, and writes the new ends to `ends`.
void unescape_json(uint8_t* data, const int64_t* starts, int64_t* ends, size_t num_texts);

}  // namespace bpe
