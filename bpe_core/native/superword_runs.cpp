#include "superword_runs.hpp"

#include <stdexcept>
#include <utility>

namespace bpe {

SuperwordRuns::SuperwordRuns(Scanner words, Scanner chunks, const uint8_t* bytes,
                             const int64_t* offsets, size_t n, size_t most_words)
    : words_(std::move(words)),
      chunks_(std::move(chunks)),
      most_words_(most_words),
      bytes_(bytes + offsets[0], bytes + offsets[n]) {
  if (most_words < 2) throw std::invalid_argument("a run must have at least two words");
  tokens_.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    const size_t length = static_cast<size_t>(offsets[i + 1] - offsets[i]);
    if (length != 0) tokens_.insert(view(bytes_.data() + (offsets[i] - offsets[0]), length));
  }
}

}  // namespace bpe
