// Counting pre-tokens of several groups, each in a table of its own, within one limit of memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "encoder.hpp"
#include "normalizer.hpp"
#include "pretoken_table.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "superword_runs.hpp"

namespace bpe {

// How documents are split.
struct SplitRules {
  Scanner scanner;
  Normalizer normalizer;
  SpecialMatcher specials;
  size_t max_pretoken_bytes;  // longer pre-tokens are not counted; 0: no limit
  // If not null, these runs are counted instead of pre-tokens, without a limit of length.
  std::shared_ptr<const SuperwordRuns> runs;
};

class PretokenTables {
 public:
  PretokenTables(bool portable, bool counts_documents)
      : portable_(portable), counts_documents_(counts_documents) {
    clear();
  }

  // Counts the pre-tokens of documents, cut at special tokens and normalized between them, from
  // document `first` on, until `memory_limit` (0: none) would be exceeded. Returns the number of
  // the first document not counted; `documents.n` when all are. At least one document is counted
  // per call. Pre-tokens that are too long are listed in `too_long`.
  // groups: the table of each document; nullptr for the first. continues: the documents are parts
  // of the one before.
  size_t add_documents(const DocumentSpans& documents, const int32_t* groups, bool continues,
                       size_t first, const SplitRules& rules, size_t memory_limit,
                       std::vector<LongPretoken>& too_long);

  // The table of a group, which is made if necessary.
  PretokenTable& table(size_t group);
  const std::vector<PretokenTable>& tables() const { return tables_; }

  void clear();  // removes everything and releases memory

  size_t size() const;
  int64_t total() const;
  size_t memory_bytes() const;

 private:
  bool portable_;
  bool counts_documents_;
  std::vector<PretokenTable> tables_;  // at least one
};

}  // namespace bpe
