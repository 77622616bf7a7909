// Fields of JSON objects that stand one a line, found where they stand: nothing is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace bpe {

// What a field holds.
enum class JsonKind : uint8_t {
  kAbsent = 0,   // it is missing or null, or the object that would hold it is
  kText = 1,     // a string without escapes; the span is between the quotation marks
  kEscaped = 2,  // a string with escapes, for unescape_json
  kInteger = 3,  // a whole number; the span has its digits as they stand, of -0 only the 0
  kOther = 4,    // something else, or this reader is not sure; then all fields of the line say so
  kBlank = 5,    // there is no object: the line is white space
};

struct JsonSpans {
  // Of field f in line i at [f * lines + i], in the data; an empty span in the line where there is
  // no text and no number.
  std::vector<int64_t> starts;
  std::vector<int64_t> ends;
  std::vector<uint8_t> kinds;
};

// Finds fields by their paths. A line is an object with white space around it, in the JSON of
// RFC 8259, bytes above 0x7F unseen; NaN, Inf, Infinity and these with a minus sign are numbers
// too. It is not sure of a line in which a part of a path stands twice in its object, or holds
// something else than an object, and of a text with half of a surrogate pair.
class JsonFields {
 public:
  // A path is the keys that lead to a field, in UTF-8. `portable`: without AVX2.
  // std::invalid_argument for an empty path or one that is there twice.
  explicit JsonFields(const std::vector<std::vector<std::string>>& paths, bool portable = false);

  size_t size() const { return num_fields_; }

  // The fields of lines data[starts[i], ends[i]).
  JsonSpans find(const uint8_t* data, const int64_t* starts, const int64_t* ends,
                 size_t num_lines) const;

 private:
  friend class JsonLine;

  // A key of a path. The first is the object itself.
  struct Node {
    std::vector<std::pair<std::string, size_t>> children;
    size_t field = SIZE_MAX;  // that ends here
  };

  std::vector<Node> nodes_;
  size_t num_fields_;
  // The first quotation mark, backslash or control character of a text, or its end.
  const uint8_t* (*find_special_)(const uint8_t* text, const uint8_t* end);
};

// Replaces the escapes in data[starts[i], ends[i]), the insides of strings that are kEscaped, where
// they stand, and puts the new ends into `ends`.
void unescape_json(uint8_t* data, const int64_t* starts, int64_t* ends, size_t num_texts);

}  // namespace bpe
