// From bytes of a file to documents: separators, one look at each document, and the places where a
// long document may be cut.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "normalizer.hpp"
#include "special_matcher.hpp"
#include "splitter.hpp"

namespace bpe {

// Returns the reason that these cannot separate documents, or nullptr if they can. The positions of
// separators must not depend on where the search begins, so an end of one must not be the beginning
// of another or of itself ("abab" in "ababab"). A separator may lie inside another ("\n" in
// "\r\n"). One byte repeated is allowed if the others don't hold that byte: it is matched from the
// start of its run.
const char* separator_problem(const std::vector<std::string>& separators);

// Separators of documents. The leftmost occurrence counts; at one position, the longest.
class Separators {
 public:
  // std::invalid_argument if there are none or one is empty.
  explicit Separators(std::vector<std::string> separators);

  size_t shortest() const { return longest_first_.back().size(); }
  size_t longest() const { return longest_first_.front().size(); }

  // The only separator, or nullptr if there are several.
  const std::string* only() const {
    return longest_first_.size() == 1 ? longest_first_.data() : nullptr;
  }

  bool may_begin_with(uint8_t byte) const { return first_bytes_[byte]; }

  // Length of the separator that begins at text[0]; 0 if none does.
  size_t match(const uint8_t* text, size_t size) const;

 private:
  std::vector<std::string> longest_first_;
  std::array<bool, 256> first_bytes_{};
};

struct SeparatorPlaces {
  std::vector<int64_t> begins;
  std::vector<int64_t> ends;
};

// The first `limit` separators that begin in data[from, size). Unless the data is `at_end`, a place
// is decided only where the longest separator would fit.
SeparatorPlaces find_separators(const uint8_t* data, size_t size, const Separators& separators,
                                size_t from, size_t limit, bool at_end);

struct DocumentSplit {
  std::vector<int64_t> starts;  // of the documents that are finished and not empty
  std::vector<int64_t> ends;
  int64_t empty = 0;     // number of empty documents
  size_t rest = 0;       // where the next document begins
  size_t resume = 0;     // from where to search its separator, at least `rest`
  bool stopped = false;  // at `max_documents`; else the data (or what may begin) is used up
};

struct SplitLimits {
  size_t begin_before;   // documents that begin here or later are left alone
  size_t max_bytes;      // a document longer than this is left alone, with all after it
  size_t max_documents;  // of one call, empty ones included; more than 0
};

// Splits data[start, size) at the separators: document after document, each ended by a separator.
// The text after the last separator is unfinished. `start` is the beginning of a document, `from`
// >= `start` the beginning of the search for its separator; `at_end` is that of find_separators.
DocumentSplit split_documents(const uint8_t* data, size_t size, const Separators& separators,
                              size_t start, size_t from, const SplitLimits& limits, bool at_end);

// For each document data[starts[i], ends[i]): the length of its longest valid UTF-8 prefix (its own
// length when it is valid) and its xxh3-128, as pairs (high, low) in hashes[2 * i].
// std::invalid_argument for a document outside of data[0, size).
void scan_documents(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* ends,
                    size_t num_documents, int64_t* valid_prefixes, uint64_t* hashes);

// Number of characters of a valid UTF-8 text.
size_t count_characters(const uint8_t* text, size_t size);

// Between which characters long text may be cut, if not by the rule of the named patterns.
struct CutRule {
  bool before_white_space = false;     // for white-space words: only there
  const Splitter* splitter = nullptr;  // where it allows a cut
  bool after_special = true;           // also between a special token and what follows it
};

// Result of safe_cut if there is no position to cut at.
inline constexpr int64_t kNoCut = -1;

// Number of bytes beyond a position that safe_cut must see to decide on a cut there.
size_t cut_lookahead(const SpecialMatcher& specials);

// End of the first chunk of a long document. text[0, size) begins at a chunk's start and ends
// at the document's end if `at_end`. A cut may be after a letter and before a character that is
// not a letter, mark or apostrophe, unless an occurrence of a special token spans it
// (occurrences are found leftmost and longest from the chunk's start on). With a normalizer both
// characters must be fixed (`Normalizer::is_fixed`): then normalized text has the cut too, between
// the same letter and the same character, which may have taken marks that follow it. CutRule
// replaces the condition on the two characters. The result is the last such position in (0, limit],
// else the first after `limit`, else kNoCut: then, unless `at_end`, more text may contain one. It
// depends on the document, the chunk's start and `limit`, not on `size`.
// std::invalid_argument if not `at_end` and `size` is less than limit +
// cut_lookahead(specials).
int64_t safe_cut(const uint8_t* text, size_t size, bool at_end, size_t limit,
                 const SpecialMatcher& specials, const Normalizer& normalizer,
                 const CutRule& rule = {});

}  // namespace bpe
