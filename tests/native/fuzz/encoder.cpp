// Encoders equal merging of each pre-token pair by pair. The input: options, a pattern, special
// tokens, merges as pairs of earlier tokens, then documents with FF between them.
// tests/bpe_core/test_fuzz_corpus.py reads the same form.
#include "encoder.hpp"

#include <map>
#include <optional>

#include "encode_parallel.hpp"
#include "fuzz.hpp"
#include "token_use.hpp"

using namespace bpe;
using fuzz::check;

namespace {

constexpr Pattern kPatterns[] = {
    Pattern::none,  Pattern::gpt2,  Pattern::cl100k,     Pattern::cl100k_tiktoken,
    Pattern::o200k, Pattern::qwen2, Pattern::deepseek_v3};

struct Tokenizer {
  uint8_t options = 0;
  std::array<int64_t, 256> byte_ids;
  std::vector<MergeRule> rules;
  std::map<uint32_t, std::string> bytes_of;
  int64_t unknown_id = -1;
  bool join_unknown = false;
  std::vector<std::string> whole;  // tokens for ignore_merges
  std::vector<uint32_t> whole_ids;
  std::vector<std::string> specials;
  Pattern pattern;
  Normalizer normalizer;
  SpacePrefix space_prefix;
  bool drops_white_space = false;
};

Tokenizer read_tokenizer(fuzz::Input& input) {
  Tokenizer tokenizer;
  const uint8_t options = tokenizer.options = input.byte();
  tokenizer.pattern = kPatterns[input.below(std::size(kPatterns))];
  if ((options & 128) != 0) {
    const uint8_t more = input.byte();
    tokenizer.space_prefix = {static_cast<SpacePrefix::Place>(more % 5), (more & 8) != 0};
    tokenizer.drops_white_space = (more & 16) != 0;
    // Other places are for what is split as if nothing stood before it.
    if (tokenizer.space_prefix.place != SpacePrefix::Place::byte_level) {
      tokenizer.pattern = Pattern::none;
    }
  }
  const uint32_t first_id = (options & 1) != 0 ? 70'000 : 0;
  for (uint32_t byte = 0; byte < 256; ++byte) tokenizer.byte_ids[byte] = first_id + byte;
  uint32_t next_id = first_id + 256;
  if ((options & 2) != 0) {  // some bytes are unknown
    tokenizer.unknown_id = next_id++;
    tokenizer.join_unknown = (options & 4) != 0;
    for (uint32_t byte = 0x70; byte < 0x78; ++byte) tokenizer.byte_ids[byte] = -1;
  }
  tokenizer.normalizer =
      Normalizer((options & 8) != 0 ? NormalizationForm::nfc : NormalizationForm::none);
  for (size_t left = input.below(4); left > 0; --left) {
    const std::string special(input.take(1 + input.below(6)));
    if (special.empty() || std::ranges::count(tokenizer.specials, special) != 0) continue;
    tokenizer.specials.push_back(special);
  }
  std::vector<uint32_t> ids;
  std::vector<std::string> tokens;
  std::map<std::string, uint32_t> id_of;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    if (tokenizer.byte_ids[byte] < 0) continue;
    ids.push_back(first_id + byte);
    tokens.emplace_back(1, static_cast<char>(byte));
    tokenizer.bytes_of[ids.back()] = tokens.back();
  }
  for (size_t left = input.byte(); left > 0; --left) {
    const auto pick = [&](uint32_t number) {
      // The newest tokens are near, so that merges build upon merges.
      return number < 128 ? number % tokens.size() : tokens.size() - 1 - (number - 128) % 64;
    };
    const size_t a = pick(input.byte());
    const size_t b = pick(input.byte());
    const std::string made = tokens[a] + tokens[b];
    if (made.size() > 200) continue;
    const auto [at, is_new] = id_of.emplace(made, next_id);
    tokenizer.rules.push_back({ids[a], ids[b], at->second});
    if (!is_new) continue;
    ids.push_back(next_id);
    tokens.push_back(made);
    tokenizer.bytes_of[next_id++] = made;
  }
  for (size_t left = (options & 16) != 0 ? input.below(8) : 0; left > 0; --left) {
    const std::string whole(input.take(1 + input.below(40)));
    if (whole.empty() || std::ranges::count(tokenizer.whole, whole) != 0) continue;
    tokenizer.whole.push_back(whole);
    tokenizer.whole_ids.push_back(next_id++);
  }
  return tokenizer;
}

using Ids = std::vector<uint32_t>;

Ids merge(const Tokenizer& tokenizer, const std::string& pretoken) {
  for (size_t i = 0; i < tokenizer.whole.size(); ++i) {
    if (tokenizer.whole[i] == pretoken) return {tokenizer.whole_ids[i]};
  }
  Ids ids;
  for (const char byte : pretoken) {
    const int64_t id = tokenizer.byte_ids[static_cast<uint8_t>(byte)];
    ids.push_back(static_cast<uint32_t>(id < 0 ? tokenizer.unknown_id : id));
  }
  for (;;) {
    size_t best = tokenizer.rules.size();
    size_t place = 0;
    for (size_t i = 0; i + 1 < ids.size(); ++i) {
      for (size_t rank = 0; rank < best; ++rank) {
        const MergeRule& rule = tokenizer.rules[rank];
        if (rule.left == ids[i] && rule.right == ids[i + 1]) {
          best = rank;
          place = i;
        }
      }
    }
    if (best == tokenizer.rules.size()) break;
    ids[place] = tokenizer.rules[best].result;
    ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(place) + 1);
  }
  if (tokenizer.join_unknown && ids[0] == tokenizer.unknown_id) ids.resize(1);
  return ids;
}

// Calls visit(text, from, -1) for text between special tokens and visit("", from, i) for token i.
template <class Visit>
void split_special(const Tokenizer& tokenizer, std::string_view text, const Visit& visit) {
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    int found = -1;
    size_t longest = 0;
    for (size_t i = 0; i < tokenizer.specials.size(); ++i) {
      const std::string& special = tokenizer.specials[i];
      if (special.size() > longest && text.substr(at).starts_with(special)) {
        found = static_cast<int>(i);
        longest = special.size();
      }
    }
    if (found < 0) {
      ++at;
      continue;
    }
    visit(text.substr(begin, at - begin), begin, -1);
    visit("", at, found);
    begin = at += longest;
  }
  visit(text.substr(begin), begin, -1);
}

constexpr uint32_t kFirstSpecial = 60'000;

// Puts a space before a segment that begins at `from` of a document, where the tokenizer does.
void prefix_space(const Tokenizer& tokenizer, size_t from, bool is_empty, std::string& segment) {
  using enum SpacePrefix::Place;
  const SpacePrefix& prefix = tokenizer.space_prefix;
  const bool has_space = segment.starts_with(' ');
  if (prefix.place == byte_level) {
    if (!segment.empty() && !has_space) segment.insert(0, 1, ' ');
    return;
  }
  const bool is_place = prefix.place == every_segment ||
                        (from == 0 && (prefix.place == first_segment || prefix.place == document));
  if (!is_place || is_empty || (segment.empty() && prefix.place != document)) return;
  if (prefix.before_space || !(has_space || segment.starts_with("\u2581"))) {
    segment.insert(0, 1, ' ');
  }
}

Ids encode(const Tokenizer& tokenizer, std::string_view document) {
  Ids ids;
  const Scanner scanner = portable_scanner_for(tokenizer.pattern);
  split_special(tokenizer, document, [&](std::string_view text, size_t from, int special) {
    if (special >= 0) {
      ids.push_back(kFirstSpecial + static_cast<uint32_t>(special));
      return;
    }
    std::string normalized;
    tokenizer.normalizer.normalize(reinterpret_cast<const uint8_t*>(text.data()), text.size(),
                                   normalized);
    prefix_space(tokenizer, from, document.empty(), normalized);
    for (const std::string& pretoken : fuzz::pretokens(scanner, normalized)) {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(pretoken.data());
      if (tokenizer.drops_white_space && begins_with_white_space(bytes, pretoken.size())) continue;
      for (const uint32_t id : merge(tokenizer, pretoken)) ids.push_back(id);
    }
  });
  return ids;
}

template <class Id>
void compare(const Encoder& encoder, WorkspacePool& pool, const SpecialTokens& specials,
             const fuzz::Columns& documents, const std::vector<Ids>& expected, size_t threads) {
  const size_t n = expected.size();
  const DocumentSpans spans{documents.bytes.data(), documents.bytes.size(),
                            documents.offsets.data(), documents.offsets.data() + 1, n};
  IdBuffer<Id> ids;
  std::vector<int64_t> offsets(n + 1, 0);
  const Affixes affixes{{1, 2}, {3}};
  const auto encode = [&](const DocumentSpans& part, Workspace& workspace, IdBuffer<Id>& out,
                          int64_t* ends) {
    encoder.encode_documents(workspace, part, specials, affixes, false, out, ends);
  };
  encode_in_threads(encode, pool, spans, encoder.growth(), 3, threads, ids, offsets.data() + 1);
  for (size_t i = 0; i < n; ++i) {
    Ids found(ids.data() + offsets[i], ids.data() + offsets[i + 1]);
    Ids wanted = {1, 2};
    wanted.insert(wanted.end(), expected[i].begin(), expected[i].end());
    wanted.push_back(3);
    check(found == wanted, "an encoder equals merging pair by pair");
  }
}

// Use of tokens, counted at once, equals that of each pre-token.
void compare_use(const Encoder& encoder, WorkspacePool& pool, const Tokenizer& tokenizer,
                 const std::vector<std::string>& pretokens) {
  const fuzz::Columns keys(pretokens);
  std::vector<int64_t> rows = {0};
  std::vector<int32_t> groups;
  std::vector<int64_t> counts;
  const size_t num_tokens = encoder.largest_id() + size_t{1};
  TokenUse expected{std::vector<int64_t>(num_tokens * 2), std::vector<int64_t>(num_tokens * 2)};
  for (size_t i = 0; i < pretokens.size(); ++i) {
    const Ids ids = merge(tokenizer, pretokens[i]);
    for (int32_t group = 0; group < 3; ++group) {
      if ((i + static_cast<size_t>(group)) % 2 == 0) continue;
      const auto count = static_cast<int64_t>(i) + 1;
      groups.push_back(group);
      counts.push_back(count);
      if (group == 0) continue;  // outside of the range
      const auto column = static_cast<size_t>(group) - 1;
      for (const uint32_t id : ids) expected.occurrences[id * 2 + column] += count;
      if (ids.size() == 1) expected.alone[ids[0] * 2 + column] += count;
    }
    rows.push_back(static_cast<int64_t>(groups.size()));
  }
  const DocumentSpans spans{keys.bytes.data(), keys.bytes.size(), keys.offsets.data(),
                            keys.offsets.data() + 1, pretokens.size()};
  const TokenUse use = count_token_use(
      encoder, pool, {spans, rows.data(), groups.data(), counts.data()}, {1, 2}, num_tokens, 1);
  check(use.occurrences == expected.occurrences, "occurrences of tokens");
  check(use.alone == expected.alone, "pre-tokens of one token");
}

}  // namespace

FUZZ_TARGET(data, size) {
  if (size > 1500) return 0;
  fuzz::Input input(data, size);
  const Tokenizer tokenizer = read_tokenizer(input);
  const std::vector<std::string> documents = fuzz::split(input.rest(), '\xFF');
  std::vector<Ids> expected;
  std::vector<std::string> pretokens;
  for (const std::string& document : documents) {
    expected.push_back(encode(tokenizer, document));
    for (std::string& pretoken :
         fuzz::pretokens(portable_scanner_for(tokenizer.pattern), document)) {
      pretokens.push_back(std::move(pretoken));
    }
  }
  SpecialTokens specials{SpecialMatcher(tokenizer.specials), {}, SpecialMatcher(), {}};
  for (uint32_t i = 0; i < tokenizer.specials.size(); ++i) {
    specials.ids.push_back(kFirstSpecial + i);
  }
  const fuzz::Columns columns(documents);
  const fuzz::Columns whole(tokenizer.whole);
  uint32_t largest = 0;
  for (const auto& [id, bytes] : tokenizer.bytes_of) largest = std::max(largest, id);
  const bool portable = (tokenizer.options & 32) != 0;
  const Scanner scanner =
      portable ? portable_scanner_for(tokenizer.pattern) : scanner_for(tokenizer.pattern);
  Encoder encoder(
      MergeRules(tokenizer.byte_ids, tokenizer.rules, tokenizer.unknown_id, tokenizer.join_unknown),
      scanner, tokenizer.normalizer, portable);
  encoder.set_whole_tokens({whole.bytes.data(), whole.offsets.data(), tokenizer.whole_ids.data(),
                            tokenizer.whole.size()});
  encoder.set_space_prefix(tokenizer.space_prefix);
  if (tokenizer.drops_white_space) encoder.drop_white_space();
  WorkspacePool pool((tokenizer.options & 64) != 0 ? 1 << 15 : 8);
  // The second pass finds in the cache what the first one has put there.
  for (int pass = 0; pass < 2; ++pass) {
    compare<uint32_t>(encoder, pool, specials, columns, expected, 1);
    if (largest < 65'000) compare<uint16_t>(encoder, pool, specials, columns, expected, 1);
  }
  const bool is_plain = tokenizer.whole.empty() && !tokenizer.join_unknown;
  if (is_plain && !tokenizer.drops_white_space && largest < 1000) {
    compare_use(encoder, pool, tokenizer, pretokens);
  }
  return 0;
}
