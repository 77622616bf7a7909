// Documents: separators, however the data are cut into buffers; one look at each; cuts of long
// ones. The input: separators and special tokens, then the data.
#include "documents.hpp"

#include "fuzz.hpp"
#include "utf8.hpp"
#include "xxh3.hpp"

using namespace bpe;
using fuzz::check;

namespace {

struct Documents {
  std::vector<std::string> found;
  size_t empty = 0;
  bool operator==(const Documents&) const = default;
};

// The documents of all data, with the rest behind the last separator if it is not empty.
Documents split_simply(std::string_view data, const std::vector<std::string>& separators) {
  Documents documents;
  size_t begin = 0;
  for (size_t at = 0; at < data.size();) {
    size_t longest = 0;
    for (const std::string& separator : separators) {
      if (data.substr(at).starts_with(separator)) longest = std::max(longest, separator.size());
    }
    if (longest == 0) {
      ++at;
      continue;
    }
    if (at == begin) ++documents.empty;
    if (at > begin) documents.found.emplace_back(data.substr(begin, at - begin));
    begin = at += longest;
  }
  if (begin < data.size()) documents.found.emplace_back(data.substr(begin));
  return documents;
}

// The same from buffers of `step` bytes more each, of which what is done is dropped.
Documents split_in_buffers(std::string_view data, const Separators& separators, size_t step,
                           size_t max_documents) {
  Documents documents;
  std::string left;
  size_t from = 0;
  for (size_t at = 0;;) {
    const bool at_end = at + step >= data.size();
    left += data.substr(at, step);
    at = std::min(at + step, data.size());
    for (bool stopped = true; stopped;) {
      const fuzz::Bytes buffer(left);
      const DocumentSplit split = split_documents(buffer.data(), buffer.size(), separators, 0, from,
                                                  {SIZE_MAX, SIZE_MAX, max_documents}, at_end);
      documents.empty += static_cast<size_t>(split.empty);
      for (size_t i = 0; i < split.starts.size(); ++i) {
        documents.found.push_back(
            left.substr(static_cast<size_t>(split.starts[i]),
                        static_cast<size_t>(split.ends[i] - split.starts[i])));
      }
      check(split.resume >= split.rest, "the search goes on in the next document");
      left.erase(0, split.rest);
      from = split.resume - split.rest;
      stopped = split.stopped;
    }
    if (at_end) break;
  }
  if (!left.empty()) documents.found.push_back(left);
  return documents;
}

void compare_scan(const Documents& documents) {
  const fuzz::Columns columns(documents.found);
  const size_t n = documents.found.size();
  std::vector<int64_t> valid(n);
  std::vector<uint64_t> hashes(2 * n);
  scan_documents(columns.bytes.data(), columns.bytes.size(), columns.offsets.data(),
                 columns.offsets.data() + 1, n, valid.data(), hashes.data());
  for (size_t i = 0; i < n; ++i) {
    const fuzz::Bytes document(documents.found[i]);
    size_t prefix = 0;
    size_t characters = 0;
    while (prefix < document.size()) {
      const DecodedCharacter next = decode_utf8(document.data() + prefix, document.size() - prefix);
      if (next.code_point == kInvalidCodePoint) break;
      prefix += next.size;
      ++characters;
    }
    check(static_cast<size_t>(valid[i]) == prefix, "the valid prefix of a document");
    check(count_characters(document.data(), prefix) == characters, "characters of a document");
    const Hash128 hash = xxh3_128(document.data(), document.size());
    check(hashes[2 * i] == hash.high && hashes[2 * i + 1] == hash.low, "the hash of a document");
  }
}

constexpr Pattern kPatterns[] = {Pattern::o200k,       Pattern::gpt2,  Pattern::cl100k,
                                 Pattern::deepseek_v3, Pattern::qwen2, Pattern::whitespace_words};

struct DocumentRules {
  Pattern pattern;
  SpecialMatcher specials;
  Normalizer normalizer;

  // Pre-tokens, and marks with the numbers of special tokens.
  std::vector<std::string> parts(std::string_view text) const {
    std::vector<std::string> parts;
    const Scanner scanner = portable_scanner_for(pattern);
    const fuzz::Bytes copy(text);
    const auto add = [&](size_t begin, size_t end) {
      std::string buffer;
      const std::string_view segment =
          normalizer.normalized(copy.view().substr(begin, end - begin), buffer);
      for (std::string& pretoken : fuzz::pretokens(scanner, segment)) {
        parts.push_back(std::move(pretoken));
      }
    };
    size_t begin = 0;
    SpecialMatch match;
    while (specials.find(copy.data(), copy.size(), begin, match)) {
      add(begin, match.begin);
      parts.push_back("\xFF" + std::to_string(match.index));
      begin = match.end;
    }
    add(begin, copy.size());
    return parts;
  }
};

// A cut depends on the text up to what it looks at, and both sides have the pre-tokens of the
// whole.
void compare_cuts(std::string_view text, const DocumentRules& splitting, size_t limit) {
  const fuzz::Bytes bytes(text);
  CutRule rule;
  rule.before_white_space = splitting.pattern == Pattern::whitespace_words;
  const auto find = [&](const fuzz::Bytes& part, bool at_end) {
    return safe_cut(part.data(), part.size(), at_end, limit, splitting.specials,
                    splitting.normalizer, rule);
  };
  const int64_t cut = find(bytes, true);
  const size_t needed = limit + cut_lookahead(splitting.specials);
  for (size_t size = needed; size < text.size(); size += 1 + size / 8) {
    const int64_t early = find(fuzz::Bytes(text.substr(0, size)), false);
    check(early == kNoCut || early == cut, "a cut depends on the text up to it");
  }
  if (cut == kNoCut) return;
  const auto at = static_cast<size_t>(cut);
  check(at > 0 && at < text.size(), "a cut is inside the text");
  std::vector<std::string> both = splitting.parts(text.substr(0, at));
  for (std::string& part : splitting.parts(text.substr(at))) both.push_back(std::move(part));
  check(both == splitting.parts(text), "both sides of a cut have the pre-tokens of the text");
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  const uint8_t first = input.byte();
  const uint8_t second = input.byte();
  const size_t step = 1 + first % 24;
  const size_t limit = 1 + second % 64;
  std::vector<std::string> separators;
  std::vector<std::string> specials;
  for (size_t left = 1 + input.below(3); left > 0; --left) {
    const std::string separator(input.take(1 + input.below(4)));
    if (!separator.empty()) separators.push_back(separator);
  }
  for (size_t left = input.below(3); left > 0; --left) {
    const std::string special(input.take(1 + input.below(6)));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(special.data());
    const bool is_text = utf8_valid_prefix(bytes, special.size()) == special.size();
    if (special.empty() || !is_text || std::ranges::count(specials, special) != 0) continue;
    specials.push_back(special);
  }
  const std::string_view text = input.rest();
  static constexpr uint8_t kFlags[] = {0, kTakesSpaceAfter, kTakesSpaceBefore, kSingleWord};
  const std::vector<uint8_t> flags(specials.size(), kFlags[second / 64]);
  for (const NormalizationForm form : {NormalizationForm::none, NormalizationForm::nfc}) {
    const DocumentRules splitting{kPatterns[first / 24 % std::size(kPatterns)],
                                  SpecialMatcher(specials, flags, {{'a', 'z' + 1}}),
                                  Normalizer(form)};
    compare_cuts(text, splitting, limit);
  }
  if (separators.empty() || separator_problem(separators) != nullptr) return 0;
  const Documents expected = split_simply(text, separators);
  const Separators native(separators);
  check(split_in_buffers(text, native, text.size() + 1, SIZE_MAX) == expected,
        "documents equal those of a simple search");
  check(split_in_buffers(text, native, step, 1 + step % 3) == expected,
        "buffers change no documents");
  compare_scan(expected);
  return 0;
}
