// Compiled patterns equal a backtracking engine, and those with scanners their own scanners. The
// input: the number of a pattern of tests/support/native_fuzzing.py, which wrote their programs,
// then the text.
#include <fstream>

#include "naive_pattern.hpp"

using namespace bpe;

namespace {

struct Compiled {
  std::vector<fuzz::PatternParts> chain;
  std::shared_ptr<const PatternSplitter> splitter;
};

template <class Number>
std::vector<Number> read_numbers(std::istream& file) {
  size_t n = 0;
  file >> n;
  std::vector<Number> numbers(n);
  for (Number& number : numbers) {
    int64_t value = 0;
    file >> value;
    number = static_cast<Number>(value);
  }
  return numbers;
}

PatternCode read_code(std::istream& file) {
  PatternCode code;
  const auto numbers = read_numbers<int32_t>(file);
  for (size_t i = 0; i + 2 < numbers.size(); i += 3) {
    code.push_back({numbers[i], numbers[i + 1], numbers[i + 2]});
  }
  return code;
}

std::vector<Compiled> read_patterns() {
  std::ifstream file(FUZZ_OUT "/patterns.txt");
  size_t num_patterns = 0;
  file >> num_patterns;
  std::vector<Compiled> patterns(num_patterns);
  for (Compiled& pattern : patterns) {
    size_t num_steps = 0;
    file >> num_steps;
    std::vector<std::shared_ptr<const PatternStep>> steps;
    for (size_t i = 0; i < num_steps; ++i) {
      fuzz::PatternParts parts;
      file >> parts.of_bytes;
      const auto starts = read_numbers<uint32_t>(file);
      const auto classes = read_numbers<uint8_t>(file);
      parts.classes = std::make_shared<const CharacterClasses>(starts, classes);
      file >> parts.sets.columns;
      parts.sets.cells = read_numbers<uint8_t>(file);
      parts.code = read_code(file);
      size_t num_scouts = 0;
      file >> num_scouts;
      for (size_t k = 0; k < num_scouts; ++k) {
        bool ahead = false;
        file >> ahead;
        parts.scouts.push_back({ahead, read_code(file)});
      }
      steps.push_back(parts.step());
      pattern.chain.push_back(std::move(parts));
    }
    pattern.splitter = std::make_shared<const PatternSplitter>(std::move(steps));
  }
  fuzz::check(!patterns.empty() && file, "there is a file of patterns");
  return patterns;
}

// The first patterns of the file, in this order.
constexpr Pattern kScanned[] = {Pattern::gpt2,  Pattern::cl100k, Pattern::cl100k_tiktoken,
                                Pattern::o200k, Pattern::qwen2,  Pattern::deepseek_v3};

}  // namespace

FUZZ_TARGET(data, size) {
  static const std::vector<Compiled> patterns = read_patterns();
  fuzz::Input input(data, size);
  const size_t number = input.below(static_cast<uint32_t>(patterns.size()));
  const std::string_view text = input.rest().substr(0, 400);
  fuzz::compare_splitter(patterns[number].splitter, patterns[number].chain, text);
  const fuzz::Bytes bytes(text);
  // They differ in overlong forms and surrogates.
  const bool is_valid = utf8_valid_prefix(bytes.data(), bytes.size()) == bytes.size();
  if (number < std::size(kScanned) && is_valid) {
    fuzz::check(fuzz::cut(scanner_for(kScanned[number]), bytes.data(), bytes.size()) ==
                    fuzz::cut(Scanner(patterns[number].splitter), bytes.data(), bytes.size()),
                "a compiled pattern equals its scanner");
  }
  return 0;
}
