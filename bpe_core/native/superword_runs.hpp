// Runs of words that are single tokens, from which superwords are learned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "bytes_hash.hpp"
#include "scanner.hpp"

namespace bpe {

// Finds the runs in a text: consecutive words of a chunk, each of which is one of the tokens. They
// are cut from the left into pieces of at most `most_words`; a piece of one word is left out.
class SuperwordRuns {
 public:
  // words, chunks: the patterns that split text into words, and into what superwords may span; a
  // chunk consists of whole words. Token i is bytes[offsets[i], offsets[i + 1]). Throws
  // std::invalid_argument for fewer than two words.
  SuperwordRuns(Scanner words, Scanner chunks, const uint8_t* bytes, const int64_t* offsets,
                size_t n, size_t most_words);

  // Calls visit(begin, end) for each piece of text[0, size).
  template <class Visit>
  void for_each(const uint8_t* text, size_t size, Visit visit) const {
    size_t chunks[kBatch];
    size_t begin = 0;
    while (const size_t found = chunks_(text, size, begin, chunks, kBatch)) {
      for (size_t i = 0; i < found; ++i) {
        visit_runs(text, begin, chunks[i], visit);
        begin = chunks[i];
      }
    }
  }

 private:
  static constexpr size_t kBatch = 64;

  struct Hash {
    size_t operator()(std::string_view token) const {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(token.data());
      if (token.size() > kShortKeyBytes) return hash_long_key(bytes, token.size());
      return hash_short_key(load_short_key(bytes, token.size(), token.size()), token.size());
    }
  };

  template <class Visit>
  void visit_runs(const uint8_t* text, size_t from, size_t to, Visit& visit) const {
    const uint8_t* const chunk = text + from;
    const size_t size = to - from;
    size_t ends[kBatch];
    size_t at = 0;
    size_t run = 0;        // where the piece begins
    size_t num_words = 0;  // in the piece
    const auto finish = [&] {
      if (num_words > 1) visit(from + run, from + at);
      num_words = 0;
    };
    while (const size_t found = words_(chunk, size, at, ends, kBatch)) {
      for (size_t i = 0; i < found; ++i) {
        // The only word of a chunk is in no run.
        if (at == 0 && ends[i] == size) return;
        const bool is_token = tokens_.contains(view(chunk + at, ends[i] - at));
        if (!is_token || num_words == most_words_) finish();
        if (is_token && num_words++ == 0) run = at;
        at = ends[i];
      }
    }
    finish();
  }

  static std::string_view view(const uint8_t* bytes, size_t length) {
    return {reinterpret_cast<const char*>(bytes), length};
  }

  Scanner words_;
  Scanner chunks_;
  size_t most_words_;
  std::vector<uint8_t> bytes_;  // of the tokens
  std::unordered_set<std::string_view, Hash> tokens_;
};

}  // namespace bpe
