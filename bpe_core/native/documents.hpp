// From bytes of a file to documents: separators, one look at each document, and the places where a
// long document may be cut.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "normalizer.hpp"
#include "special_matcher.hpp"

namespace bpe {

// Why `separator` can't separate documents, or nullptr if it can. It must not be empty, and must
// not overlap itself ("abab" in "ababab"), since where it stands would then depend on where the
// search begins. One byte repeated is allowed: it is matched from the start of its run.
const char* separator_problem(std::string_view separator);

// Appends to `begins` the places of the leftmost non-overlapping occurrences of `separator` that
// begin in data[from, size) and end by `size`, at most `limit` of them.
void find_separators(const uint8_t* data, size_t size, std::string_view separator, size_t from,
                     std::vector<int64_t>& begins, size_t limit);

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
// What follows the last separator is not finished. `start` is where a document begins, `from` >=
// `start` from where its separator is searched.
DocumentSplit split_documents(const uint8_t* data, size_t size, std::string_view separator,
                              size_t start, size_t from, const SplitLimits& limits);

// For each document data[starts[i], ends[i]): the length of its longest valid UTF-8 prefix (its own
// length when it is valid) and its xxh3-128, as pairs (high, low) in hashes[2 * i].
// std::invalid_argument for a document outside of data[0, size).
void scan_documents(const uint8_t* data, size_t size, const int64_t* starts, const int64_t* ends,
                    size_t num_documents, int64_t* valid_prefixes, uint64_t* hashes);

// What safe_cut gives when there is no place.
inline constexpr int64_t kNoCut = -1;

// How many bytes beyond a place safe_cut must see to know whether it may cut there.
size_t cut_lookahead(const SpecialMatcher& specials);

// Where the first piece of a long document ends. text[0, size) begins at a piece's start and ends
// at the document's end if `at_end`. A cut may stand after a letter and before a character that is
// no letter, no mark and no apostrophe, unless an occurrence of a special token spans it
// (occurrences are found leftmost and longest from the piece's start on). With a normalizer both
// characters must be fixed (`Normalizer::is_fixed`): then normalized text has the cut too, between
// the same letter and the same character, which may have taken marks that follow it. The result is
// the last such place in (0, limit], else the first after `limit`, else kNoCut: then, unless
// `at_end`, more text may hold one. It depends on the document, the piece's start and `limit`, not
// on `size`. With before_white_space, for white-space words, a cut stands there alone.
// std::invalid_argument if not `at_end` and `size` is less than limit +
// cut_lookahead(specials).
int64_t safe_cut(const uint8_t* text, size_t size, bool at_end, size_t limit,
                 const SpecialMatcher& specials, const Normalizer& normalizer,
                 bool before_white_space = false);

}  // namespace bpe
