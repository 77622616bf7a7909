#include "encoder.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "scanner_blocks.hpp"

namespace bpe {
namespace {

// For custom patterns: a segment is a pre-token.
size_t scan_whole(const uint8_t*, size_t size, size_t, size_t* ends, size_t, uint32_t) {
  ends[0] = size;
  return 1;
}

template <class Id>
void write_ids(IdBuffer<Id>& ids, const std::vector<uint32_t>& values) {
  for (uint32_t value : values) ids.push_back(static_cast<Id>(value));
}

struct PortableLookup : PortableKeys {
  // The value of a key in its line, or nullptr.
  static const uint8_t* find(const IdCache::Line& line, const ShortKey& key) {
    const bool is_first = line.keys[0] == key;
    if (!(is_first | (line.keys[1] == key))) return nullptr;
    return line.values[is_first ? 0 : 1];
  }

  // Writes all ids that a value may have: at most IdCache::kMostWritten.
  template <class Inline, class Id>
  static void write(const uint8_t* value, Id* out) {
    for (size_t i = 0; i < Inline::kIds; ++i) out[i] = static_cast<Id>(Inline::load(value, i));
  }
};

template <class Id, class Inline>
void encode_segment_portable(const EncoderParts& parts, Workspace& workspace, const uint8_t* text,
                             size_t size, size_t readable, IdBuffer<Id>& ids) {
  encode_segment<PortableLookup, Id, Inline>(parts, workspace, text, size, readable, ids);
}

constexpr SegmentEncoders kPortableSegmentEncoders = {encode_segment_portable<uint16_t, Ids16>,
                                                      encode_segment_portable<uint32_t, Ids16>,
                                                      encode_segment_portable<uint32_t, Ids24>};

}  // namespace

Encoder::Encoder(MergeRules rules, Scanner scanner, Normalizer normalizer, bool portable)
    : rules_(std::move(rules)),
      scanner_(scanner != nullptr ? std::move(scanner) : Scanner(scan_whole)),
      normalizer_(normalizer),
      merge_batch_(merge_batch_portable),
      segment_encoders_(kPortableSegmentEncoders) {
  if (portable || !cpu_has_avx2_and_aes()) return;
  merge_batch_ = avx2_batch_merger();
  segment_encoders_ = avx2_segment_encoders();
}

template <>
SegmentEncoder<uint16_t> Encoder::segment_encoder() const {
  if (rules_.largest_id() > Ids16::kLargestId) {
    throw std::invalid_argument("ids of 16 bits: the tokenizer has larger ones");
  }
  return segment_encoders_.narrow;
}

template <>
SegmentEncoder<uint32_t> Encoder::segment_encoder() const {
  return rules_.largest_id() > Ids16::kLargestId ? segment_encoders_.wide
                                                 : segment_encoders_.narrow_in_wide;
}

bool Encoder::has_space_prefix(std::string_view segment, size_t from, bool continues) const {
  using enum SpacePrefix::Place;
  if (space_prefix_.place == nowhere || space_prefix_.place == byte_level) return false;
  if (from == 0 ? continues : space_prefix_.place != every_segment) return false;
  if (segment.empty()) {
    return space_prefix_.place == document && !normalizer_.removes_spaces();
  }
  return space_prefix_.before_space || !(segment.starts_with(' ') || segment.starts_with("\u2581"));
}

template <class Id>
void Encoder::encode_byte_level(SegmentEncoder<Id> encode, const EncoderParts& parts,
                                Workspace& workspace, std::string_view segment,
                                IdBuffer<Id>& ids) const {
  if (segment.empty()) return;
  std::string& prefixed = workspace.prefixed;
  prefixed.assign(segment.starts_with(' ') ? 0 : 1, ' ').append(segment);
  encode(parts, workspace, reinterpret_cast<const uint8_t*>(prefixed.data()), prefixed.size(),
         prefixed.size(), ids);
}

template <class Id>
size_t Encoder::encode_prefixed(SegmentEncoder<Id> encode, const EncoderParts& parts,
                                Workspace& workspace, std::string_view segment,
                                IdBuffer<Id>& ids) const {
  size_t end = 0;
  scanner_(reinterpret_cast<const uint8_t*>(segment.data()), segment.size(), 0, &end, 1);
  std::string& prefixed = workspace.prefixed;
  prefixed.assign(1, ' ').append(segment.substr(0, end));
  encode(parts, workspace, reinterpret_cast<const uint8_t*>(prefixed.data()), prefixed.size(),
         prefixed.size(), ids);
  return end;
}

template <class Id>
void Encoder::encode_documents(Workspace& workspace, const DocumentSpans& documents,
                               const SpecialTokens& specials, const Affixes& affixes,
                               bool continues, IdBuffer<Id>& ids, int64_t* offsets) const {
  const EncoderParts parts{rules_, whole_, scanner_, merge_batch_, drops_white_space_};
  const SegmentEncoder<Id> encode = segment_encoder<Id>();
  size_t bytes = 0;
  for (size_t i = 0; i < documents.n; ++i) bytes += documents.bytes_of(i);
  // There are at most as many ids. What is not written to costs no memory.
  ids.reserve_more(std::min(bytes, kMostReservedIds));
  for (size_t i = 0; i < documents.n; ++i) {
    const uint8_t* text = documents.data + documents.starts[i];
    const size_t length = documents.bytes_of(i);
    const size_t readable = documents.size - static_cast<size_t>(documents.starts[i]);
    write_ids(ids, affixes.prepend);
    const auto encode_part = [&](size_t from, size_t to) {
      const char* const source = reinterpret_cast<const char*>(text + from);
      const std::string_view part =
          normalizer_.normalized({source, to - from}, workspace.normalized);
      const bool is_source = part.data() == source;
      size_t done = 0;
      if (length > 0 && has_space_prefix(part, from, continues)) {
        done = encode_prefixed(encode, parts, workspace, part, ids);
      }
      const auto* const bytes = reinterpret_cast<const uint8_t*>(part.data());
      const size_t part_readable = is_source ? readable - from : part.size();
      const auto encode_segment = [&](size_t begin, size_t end) {
        if (space_prefix_.place == SpacePrefix::Place::byte_level &&
            !(continues && begin + from == 0)) {
          encode_byte_level(encode, parts, workspace, part.substr(begin, end - begin), ids);
        } else {
          encode(parts, workspace, bytes + begin, end - begin, part_readable - begin, ids);
        }
      };
      SpecialMatch match;
      while (specials.normalized.find(bytes, part.size(), done, match)) {
        encode_segment(done, match.begin);
        ids.push_back(static_cast<Id>(specials.normalized_ids[match.index]));
        done = match.end;
      }
      encode_segment(done, part.size());
    };
    size_t begin = 0;
    SpecialMatch match;
    while (specials.matcher.find(text, length, begin, match)) {
      encode_part(begin, match.begin);
      ids.push_back(static_cast<Id>(specials.ids[match.index]));
      begin = match.end;
    }
    encode_part(begin, length);
    workspace.forget_long_text();
    write_ids(ids, affixes.append);
    offsets[i] = static_cast<int64_t>(ids.size());
  }
}

template <class Id>
void Encoder::encode_spans(Workspace& workspace, const DocumentSpans& spans,
                           const int64_t* special_ids, IdBuffer<Id>& ids, int64_t* offsets) const {
  const EncoderParts parts{rules_, whole_, scanner_, merge_batch_, drops_white_space_};
  const SegmentEncoder<Id> encode = segment_encoder<Id>();
  for (size_t i = 0; i < spans.n; ++i) {
    const size_t begin = static_cast<size_t>(spans.starts[i]);
    const size_t length = static_cast<size_t>(spans.ends[i]) - begin;
    if (special_ids[i] >= 0) {
      ids.push_back(static_cast<Id>(special_ids[i]));
    } else {
      encode(parts, workspace, spans.data + begin, length, spans.size - begin, ids);
    }
    offsets[i] = static_cast<int64_t>(ids.size());
  }
}

template void Encoder::encode_documents(Workspace&, const DocumentSpans&, const SpecialTokens&,
                                        const Affixes&, bool, IdBuffer<uint16_t>&, int64_t*) const;
template void Encoder::encode_documents(Workspace&, const DocumentSpans&, const SpecialTokens&,
                                        const Affixes&, bool, IdBuffer<uint32_t>&, int64_t*) const;
template void Encoder::encode_spans(Workspace&, const DocumentSpans&, const int64_t*,
                                    IdBuffer<uint32_t>&, int64_t*) const;

}  // namespace bpe
