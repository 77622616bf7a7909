// Learning of byte-pair merges from words counted by group, for equal compression of all groups.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "merge_learner.hpp"

namespace bpe {

// Word i is keys[offsets[i], offsets[i + 1]). It has the counts counts[k] > 0 in groups[k], for k
// of [begins[i], begins[i + 1]). Words need be neither sorted nor unique.
struct GroupedWords {
  const uint8_t* keys;
  const int64_t* offsets;
  const int64_t* begins;
  const int32_t* groups;
  const int64_t* counts;
  size_t n;
};

struct ParityOptions {
  size_t num_groups = 0;
  // By group, its intended compression, of which only the proportions matter. Empty: groups
  // num_groups, ..., 2 * num_groups - 1 are text to measure the groups by and not to learn from.
  std::vector<double> ratios;
  size_t global_merges = 0;  // learned first, from the sum of all groups
  size_t window_size = 0;    // 0: no window
  double alpha = 2;          // of the last window_size choices, one group gets alpha / num_groups
};

// Returns a learner that, for each merge, chooses the group of the lowest compression and merges
// its most frequent pair, in all groups. Compression is the initial length in tokens, divided by
// the current length and by the ratio; without ratios, the longest text of a group is the least
// compressed. Of equal groups, the first is chosen. min_frequency is that of a pair in the chosen
// group. A group without such a pair is not chosen again. Counts of merges are sums of all groups.
//
// Throws like the constructor of MergeLearner, and std::invalid_argument for unknown groups and for
// the tie-break first_seen.
MergeLearner make_parity_learner(const GroupedWords& words, const ParityOptions& parity,
                                 MergeLearnerOptions options);

}  // namespace bpe
