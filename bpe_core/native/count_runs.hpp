// Sorted runs of pre-tokens with their counts: their packed form, and merging many as streams.
//
// A packed section is a sequence of records in strictly ascending order of the key's bytes:
//   varint  number of leading bytes shared with the key before
//   varint  number of bytes that follow
//   without groups:
//     varint  count
//     varint  documents, if they are counted
//   with groups:
//     varint  number of groups
//     for each of them, in ascending order of the numbers: varint number, count[, documents]
//   bytes   the rest of the key
// With groups, a section begins with the names of its groups, which the records number from 0:
//   varint  number of names
//   for each, in strictly ascending order of bytes: varint length, bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "pretoken_tables.hpp"

namespace bpe {

struct RunLayout {
  bool groups;
  bool documents;
};

// Counts of a pre-token in a group; without groups, in the only one, 0.
struct GroupCount {
  uint32_t group;
  int64_t count;
  int64_t documents;
};

// Packs the entries of one table, as sections without groups by shard.
std::vector<std::string> pack_sections(const PretokenTable& table, size_t shards);

// Packs the entries of the tables of groups with these different names.
std::vector<std::string> pack_grouped_sections(const std::vector<PretokenTable>& tables,
                                               const std::vector<std::string>& names,
                                               size_t shards);

// Rows as columns: keys[offsets[i], offsets[i + 1]) has counts[i] and, if they are counted,
// documents[i]. With groups it has the entries of group_offsets[i] to group_offsets[i + 1].
struct CountColumns {
  std::vector<uint8_t> keys;
  std::vector<int64_t> offsets = {0};
  std::vector<int64_t> counts;
  std::vector<int64_t> documents;
  std::vector<int64_t> group_offsets = {0};
  std::vector<int32_t> groups;
  std::vector<int64_t> group_counts;
  std::vector<int64_t> group_documents;
};

// Sums over the merged rows of a group.
struct GroupTotals {
  int64_t rows = 0;
  int64_t pretokens = 0;
  int64_t bytes = 0;
};

// Merges packed sections, adding up the counts of equal keys. Memory: one chunk per source.
class CountMerger {
 public:
  // Replaces `chunk` by the next bytes of a source; an empty chunk is its end.
  using Refill = std::function<void(size_t source, std::string& chunk)>;

  // The limits of a call.
  struct Limits {
    size_t rows;
    size_t bytes;    // of the keys
    size_t entries;  // of groups
  };

  // same_document: all sources are of one document.
  CountMerger(size_t sources, Refill refill, RunLayout layout = {}, bool same_document = false);

  // Returns rows until one of the limits is reached or everything is merged. The rows of a call
  // depend on the merged sequence alone, not on the sources' chunks. Throws std::invalid_argument
  // for a damaged section, std::overflow_error for a sum above 64 bits.
  CountColumns read(const Limits& limits);
  // Returns the same rows packed, to follow others or the header of a section.
  std::string read_packed(const Limits& limits);

  // The names of all groups, in order.
  const std::vector<std::string>& names() const { return names_; }
  // The start of a section with these groups; empty without groups.
  std::string header() const;
  // Sums of what was read so far by `read`, by group.
  const std::vector<GroupTotals>& totals() const { return totals_; }

 private:
  struct Source {
    std::string chunk;
    size_t at = 0;
    bool ended = false;
    std::vector<uint32_t> groups;  // the number in `names_` of each of its groups
    std::string key;
    std::vector<GroupCount> counts;
  };

  bool fill(size_t source);
  uint64_t read_varint(size_t source);
  int64_t read_count(size_t source);
  void read_bytes(size_t source, size_t size, std::string& out);
  std::vector<std::string> read_names(size_t source);
  void read_all_names();
  bool advance(size_t source);  // to the next record; false at the end
  bool later(size_t a, size_t b) const;
  void add(const GroupCount& counted);
  bool merge_next();  // into key_ and merged_; false at the end

  Refill refill_;
  RunLayout layout_;
  bool same_document_;
  std::vector<std::string> names_;
  std::vector<GroupTotals> totals_;
  std::vector<Source> sources_;
  std::vector<size_t> heap_;  // of sources by their current key
  std::string key_;
  std::string previous_tail_;  // of the key before the one that is read
  std::vector<GroupCount> merged_;
  std::vector<size_t> place_of_;  // in merged_, plus 1, of each group; 0 if it is not there
};

}  // namespace bpe
