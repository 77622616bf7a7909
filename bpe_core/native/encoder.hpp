// Encoding: documents to token ids.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "encode_segment.hpp"
#include "id_buffer.hpp"
#include "merge_rules.hpp"
#include "normalizer.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "whole_tokens.hpp"

namespace bpe {

// Documents data[starts[i], ends[i]); `size` bytes of data may be read.
struct DocumentSpans {
  const uint8_t* data;
  size_t size;
  const int64_t* starts;
  const int64_t* ends;
  size_t n;

  size_t bytes_of(size_t i) const { return static_cast<size_t>(ends[i] - starts[i]); }
  DocumentSpans slice(size_t from, size_t to) const {
    return {data, size, starts + from, ends + from, to - from};
  }
};

// What is put around each document.
struct Affixes {
  std::vector<uint32_t> prepend;
  std::vector<uint32_t> append;
};

class Encoder {
 public:
  // scanner: nullptr for custom patterns, of which spans are encoded. normalizer: of the text
  // between special tokens; spans are normalized already. portable: without what only some CPUs can
  // do.
  Encoder(MergeRules rules, Scanner scanner, Normalizer normalizer, bool portable);

  // How many ids a byte of text becomes at most.
  size_t growth() const { return normalizer_.growth(); }

  // Of what the merges make.
  uint32_t largest_id() const { return rules_.largest_id(); }

  // Pre-tokens of these bytes are these tokens, whatever the merges make of them (ignore_merges).
  // Returns whether the merges make something else of any.
  bool set_whole_tokens(const TokenSpans& tokens) {
    whole_ = WholeTokens(rules_, merge_batch_, tokens);
    return !whole_.empty();
  }

  // Encodes documents cut at special tokens, whose ids stand in special_ids by match index. Appends
  // their ids, and writes the number of ids after each document to `offsets`. Throws UnknownByte,
  // and std::invalid_argument for uint16 ids if the tokenizer has larger ones.
  template <class Id>
  void encode_documents(Workspace& workspace, const DocumentSpans& documents,
                        const SpecialMatcher& specials, const std::vector<uint32_t>& special_ids,
                        const Affixes& affixes, IdBuffer<Id>& ids, int64_t* offsets) const;

  // Encodes spans that are pre-tokens (custom patterns); a span with special_ids[i] >= 0 is that
  // special token.
  template <class Id>
  void encode_spans(Workspace& workspace, const DocumentSpans& spans, const int64_t* special_ids,
                    IdBuffer<Id>& ids, int64_t* offsets) const;

 private:
  template <class Id>
  SegmentEncoder<Id> segment_encoder() const;

  MergeRules rules_;
  WholeTokens whole_;
  Scanner scanner_;
  Normalizer normalizer_;
  BatchMerger merge_batch_;
  SegmentEncoders segment_encoders_;
};

}  // namespace bpe
