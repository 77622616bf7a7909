// Encoding: documents to token ids.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "encode_segment.hpp"
#include "id_buffer.hpp"
#include "merge_rules.hpp"
#include "normalizer.hpp"
#include "scanner.hpp"
#include "special_matcher.hpp"
#include "whole_tokens.hpp"

namespace bpe {

// For which room is made at a time. What is not written to costs no memory.
inline constexpr size_t kMostReservedIds = size_t{1} << 28;

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

// Ids around each document.
struct Affixes {
  std::vector<uint32_t> prepend;
  std::vector<uint32_t> append;
};

// A space added before text that does not begin with one. A segment is the text between two special
// tokens, if not empty.
struct SpacePrefix {
  enum class Place {
    nowhere,
    first_segment,  // before a segment that begins the document
    every_segment,
    document,    // before a document that is not empty, also where a special token begins it
    byte_level,  // before every segment, normalized special tokens count too; ▁ is not a space
  };
  Place place = Place::nowhere;
  bool before_space = false;  // also where the text begins with a space or a space sign
};

class Encoder {
 public:
  // scanner: nullptr for custom patterns, whose spans are encoded. normalizer: applied to the text
  // between special tokens; spans are normalized already. portable: without instructions that only
  // some CPUs have.
  Encoder(MergeRules rules, Scanner scanner, Normalizer normalizer, bool portable);

  // Maximum number of ids for a byte of text.
  size_t growth() const {
    // A segment has at least one byte, and at most one space before it.
    return normalizer_.growth() * (space_prefix_.place == SpacePrefix::Place::nowhere ? 1 : 2);
  }

  // Largest id that the merges make.
  uint32_t largest_id() const { return rules_.largest_id(); }

  // Pre-tokens of these bytes are these tokens, whatever the merges make of them (ignore_merges).
  // Returns whether the merges make something else of any.
  bool set_whole_tokens(const TokenSpans& tokens) {
    whole_ = WholeTokens(rules_, merge_batch_, tokens);
    return !whole_.empty();
  }

  // Places other than byte_level are for a scanner that splits what follows a boundary as if
  // nothing stood before it.
  void set_space_prefix(SpacePrefix prefix) { space_prefix_ = prefix; }

  // Pre-tokens that begin with white space get no ids.
  void drop_white_space() { drops_white_space_ = true; }

  // Encodes documents cut at special tokens. Appends their ids, and writes the number of ids after
  // each document to `offsets`. `continues`: each is the rest of a document, so that no space is
  // put before it. Throws UnknownByte, and std::invalid_argument for uint16 ids if the tokenizer
  // has larger ones.
  template <class Id>
  void encode_documents(Workspace& workspace, const DocumentSpans& documents,
                        const SpecialTokens& specials, const Affixes& affixes, bool continues,
                        IdBuffer<Id>& ids, int64_t* offsets) const;

  // Encodes spans that are pre-tokens (custom patterns); a span with special_ids[i] >= 0 is that
  // special token.
  template <class Id>
  void encode_spans(Workspace& workspace, const DocumentSpans& spans, const int64_t* special_ids,
                    IdBuffer<Id>& ids, int64_t* offsets) const;

 private:
  template <class Id>
  SegmentEncoder<Id> segment_encoder() const;

  // Returns true if a space is added before a segment that begins at `from` of a document.
  bool has_space_prefix(std::string_view segment, size_t from, bool continues) const;

  // Encodes a segment, with a space before it if it does not begin with one.
  template <class Id>
  void encode_byte_level(SegmentEncoder<Id> encode, const EncoderParts& parts, Workspace& workspace,
                         std::string_view segment, IdBuffer<Id>& ids) const;

  // Encodes the first pre-token of a segment with a space before it, and returns its end. Only it
  // is copied.
  template <class Id>
  size_t encode_prefixed(SegmentEncoder<Id> encode, const EncoderParts& parts, Workspace& workspace,
                         std::string_view segment, IdBuffer<Id>& ids) const;

  MergeRules rules_;
  WholeTokens whole_;
  Scanner scanner_;
  Normalizer normalizer_;
  SpacePrefix space_prefix_;
  bool drops_white_space_ = false;
  BatchMerger merge_batch_;
  SegmentEncoders segment_encoders_;
};

}  // namespace bpe
