// Everything in the native code that threads share, used by several at once, with the results of
// one. `make sanitize-threads` runs it under the thread sanitizer.
//
//     threads ROUNDS

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "byte_splitter.hpp"
#include "character_map.hpp"
#include "count_runs.hpp"
#include "documents.hpp"
#include "encode_parallel.hpp"
#include "encoder.hpp"
#include "json_fields.hpp"
#include "longest_match.hpp"
#include "merge_learner.hpp"
#include "pattern_automaton.hpp"
#include "pretoken_tables.hpp"
#include "superword_runs.hpp"
#include "token_use.hpp"
#include "transcode.hpp"
#include "vocabulary_splitter.hpp"
#include "words.hpp"

using namespace bpe;

namespace {

constexpr size_t kThreads = 4;
constexpr uint8_t kMissingByte = 0x07;

void check(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// Runs the same work in several threads at once.
void together(const std::function<void(size_t)>& work) {
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
}

struct Texts {
  std::string bytes;
  std::vector<int64_t> bounds = {0};

  size_t size() const { return bounds.size() - 1; }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(bytes.data()); }
  DocumentSpans spans() const {
    return {data(), bytes.size(), bounds.data(), bounds.data() + 1, size()};
  }
};

Texts make_texts(size_t n, uint64_t seed) {
  static const std::vector<std::string> words = {
      " the", " of",    "Word", "'s", " 2024", "\n\n", "  ",
      "é",    " naïve", "漢字", "😀", "!?",    "<s>",  " internationalization",
      "\xC3", "a",      "b",    "ab", "\u0301"};
  std::mt19937_64 random(seed);
  Texts texts;
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = random() % 60; k > 0; --k) texts.bytes += words[random() % words.size()];
    for (size_t k = random() % 9; k > 0; --k) texts.bytes += static_cast<char>('a' + random() % 26);
    texts.bounds.push_back(static_cast<int64_t>(texts.bytes.size()));
  }
  return texts;
}

MergeRules make_rules() {
  std::array<int64_t, 256> byte_ids;
  for (size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = static_cast<int64_t>(byte);
  byte_ids[kMissingByte] = -1;
  std::vector<MergeRule> rules;
  uint32_t next = 256;
  for (uint32_t left = 'a'; left <= 'z'; ++left) {
    for (uint32_t right = 'a'; right <= 'z'; ++right) rules.push_back({left, right, next++});
  }
  for (uint32_t i = 0; i < 300; ++i) rules.push_back({256 + i, 256 + 2 * i, next++});
  return MergeRules(byte_ids, rules, -1);
}

template <class Id>
struct Encoded {
  IdBuffer<Id> ids;
  std::vector<int64_t> offsets;

  bool operator==(const Encoded& other) const {
    return offsets == other.offsets &&
           std::equal(ids.data(), ids.data() + ids.size(), other.ids.data(),
                      other.ids.data() + other.ids.size());
  }
};

template <class Id>
Encoded<Id> encode(const Encoder& encoder, WorkspacePool& pool, const SpecialTokens& specials,
                   const DocumentSpans& documents, size_t threads) {
  Encoded<Id> encoded;
  encoded.offsets.resize(documents.n);
  const Affixes affixes{{1}, {2}};
  encode_in_threads(
      [&](const DocumentSpans& part, Workspace& workspace, IdBuffer<Id>& ids, int64_t* offsets) {
        encoder.encode_documents(workspace, part, specials, affixes, false, ids, offsets);
      },
      pool, documents, encoder.growth(), 2, threads, encoded.ids, encoded.offsets.data());
  return encoded;
}

// One encoder and its caches, by threads that have threads themselves.
void share_encoder(uint64_t seed) {
  const Texts texts = make_texts(3000, seed);
  SpecialTokens specials{SpecialMatcher({"<s>"}), {5000}, SpecialMatcher(), {}};
  for (const bool portable : {false, true}) {
    const Pattern pattern = portable ? Pattern::o200k : Pattern::gpt2;
    const Encoder encoder(make_rules(),
                          portable ? portable_scanner_for(pattern) : scanner_for(pattern),
                          Normalizer(NormalizationForm::nfc), portable);
    WorkspacePool pool(1 << 14);
    const auto expected = encode<uint32_t>(encoder, pool, specials, texts.spans(), 1);
    const auto narrow = encode<uint16_t>(encoder, pool, specials, texts.spans(), 1);
    together([&](size_t i) {
      const size_t threads = 1 + i % 3;
      check(encode<uint32_t>(encoder, pool, specials, texts.spans(), threads) == expected,
            "ids of several threads");
      check(encode<uint16_t>(encoder, pool, specials, texts.spans(), threads) == narrow,
            "ids of 16 bits of several threads");
    });

    std::vector<int64_t> rows = {0};
    std::vector<int32_t> groups;
    std::vector<int64_t> counts;
    for (size_t i = 0; i < texts.size(); ++i) {
      groups.push_back(static_cast<int32_t>(i % 2));
      counts.push_back(static_cast<int64_t>(i) + 1);
      rows.push_back(static_cast<int64_t>(groups.size()));
    }
    const CountedSpans counted{texts.spans(), rows.data(), groups.data(), counts.data()};
    const TokenUse use = count_token_use(encoder, pool, counted, {0, 2}, 6000, 1);
    together([&](size_t i) {
      const TokenUse found = count_token_use(encoder, pool, counted, {0, 2}, 6000, 1 + i);
      check(found.occurrences == use.occurrences && found.alone == use.alone,
            "use of tokens by several threads");
    });
  }
}

// A failure in one thread ends the others, and is that of the first document.
void share_failure(uint64_t seed) {
  Texts texts = make_texts(4000, seed);
  texts.bytes[texts.bytes.size() / 2] = static_cast<char>(kMissingByte);
  const Encoder encoder(make_rules(), scanner_for(Pattern::cl100k), Normalizer(), false);
  WorkspacePool pool(1 << 12);
  const SpecialTokens specials{};
  together([&](size_t i) {
    try {
      encode<uint32_t>(encoder, pool, specials, texts.spans(), 1 + i);
      check(false, "a byte without an id is an error");
    } catch (const UnknownByte& unknown) {
      check(unknown.byte == kMissingByte, "the byte without an id");
    }
  });
}

// \w+| and the same behind a look-around: characters are letters or not.
std::shared_ptr<const PatternSplitter> make_splitter(bool with_scout) {
  const CharacterClasses classes({0, 'a', 'z' + 1, 0x80}, {0, 1, 0, 1});
  const SetMatrix sets{{0, 1, 0, 1, 1, 0}, 3};
  PatternCode code = {{PatternInstruction::character, 0, 0},
                      {PatternInstruction::split, 0, 2},
                      {PatternInstruction::match, 0, 0}};
  std::vector<PatternScout> scouts;
  if (with_scout) {
    code = {{PatternInstruction::character, 0, 0},
            {PatternInstruction::split, 0, 2},
            {PatternInstruction::scout, 0, 1},
            {PatternInstruction::match, 0, 0}};
    scouts.push_back({true,
                      {{PatternInstruction::split, 1, 3},
                       {PatternInstruction::character, 1, 0},
                       {PatternInstruction::jump, 0, 0},
                       {PatternInstruction::character, 1, 0},
                       {PatternInstruction::character, 1, 0},
                       {PatternInstruction::match, 0, 0}}});
  }
  return std::make_shared<const PatternSplitter>(std::vector<std::shared_ptr<const PatternStep>>{
      std::make_shared<const PatternStep>(classes, sets, code, scouts, false)});
}

std::vector<size_t> cut(const Scanner& scanner, const Texts& texts) {
  std::vector<size_t> all;
  std::array<size_t, 50> ends;
  for (size_t i = 0; i < texts.size(); ++i) {
    const uint8_t* const text = texts.data() + texts.bounds[i];
    const auto size = static_cast<size_t>(texts.bounds[i + 1] - texts.bounds[i]);
    for (size_t pos = 0; pos < size;) {
      const size_t n = scanner(text, size, pos, ends.data(), ends.size());
      all.insert(all.end(), ends.begin(), ends.begin() + static_cast<std::ptrdiff_t>(n));
      pos = all.back();
    }
  }
  return all;
}

// Splitters, matchers, normalizers: they are constant, but some find their tables when first used.
void share_constants(uint64_t seed) {
  const Texts texts = make_texts(300, seed);
  std::vector<Scanner> scanners = {Scanner(make_splitter(false)), Scanner(make_splitter(true))};
  for (const Pattern pattern : {Pattern::gpt2, Pattern::cl100k, Pattern::o200k, Pattern::qwen2,
                                Pattern::deepseek_v3, Pattern::whitespace_words}) {
    scanners.push_back(scanner_for(pattern));
  }
  scanners.emplace_back(
      std::make_shared<const ByteSplitter>(std::vector<uint64_t>(ByteSplitter::kWords, 0x5555)));
  const std::string tokens = "abéthe";
  const std::vector<int64_t> offsets = {0, 2, 4, 7};
  const auto* const token_bytes = reinterpret_cast<const uint8_t*>(tokens.data());
  scanners.emplace_back(std::make_shared<const VocabularySplitter>(
      std::vector<uint32_t>{'a', 'b', 0xE9, 't', 'h', 'e'},
      VocabularySplitter::Tokens{token_bytes, offsets.data(), 3}, true,
      UnknownCharacters::characters));
  const SpecialMatcher specials({"<s>", "ab"}, {kTakesSpaceAfter, kSingleWord}, {{'a', 'z' + 1}});
  const JsonFields fields({{"a"}, {"b", "c"}});
  const std::string line = R"({"a": "text", "b": {"c": 12}})";
  const std::vector<int64_t> ids = {7, 8, 9};
  const LongestMatcher matcher(token_bytes, offsets.data(), ids.data(), 3, WordEndMeaning::gap);
  const SuperwordRuns runs(scanners[2], scanners[2], token_bytes, offsets.data(), 3, 2);

  std::vector<std::vector<size_t>> expected;
  for (const Scanner& scanner : scanners) expected.push_back(cut(scanner, texts));
  together([&](size_t) {
    for (size_t i = 0; i < scanners.size(); ++i) {
      check(cut(scanners[i], texts) == expected[i], "pre-tokens of several threads");
    }
    for (const NormalizationForm form : {NormalizationForm::nfc, NormalizationForm::nfkc}) {
      std::string normalized;
      Normalizer(form, true).normalize(texts.data(), texts.bytes.size(), normalized);
      check(!normalized.empty(), "a text is normalized");
    }
    for (const WordRule rule : {WordRule::whitespace, WordRule::bert}) {
      ByteBuffer marked;
      mark_words(texts.data(), texts.bytes.size(), rule, specials, marked);
      check(marked.size() > 0, "words are marked");
    }
    const int64_t start = 0;
    const auto end = static_cast<int64_t>(line.size());
    const JsonSpans spans =
        fields.find(reinterpret_cast<const uint8_t*>(line.data()), &start, &end, 1);
    check(spans.kinds[0] == static_cast<uint8_t>(JsonKind::kText), "a field is found");
    std::vector<uint16_t> units(texts.bytes.begin(), texts.bytes.end());
    std::vector<uint8_t> utf8(units.size() * kMostUtf8Bytes<uint16_t> + kUtf8Slack);
    write_utf8(units.data(), units.size(), utf8.data());
    safe_cut(texts.data(), texts.bytes.size(), true, texts.bytes.size() / 2, specials,
             Normalizer());
    std::vector<int64_t> found;
    std::vector<int64_t> ends(texts.size());
    const DocumentSpans documents = texts.spans();
    matcher.left_to_right(texts.data(), documents.starts, documents.ends, texts.size(), {}, found,
                          ends.data());
    runs.for_each(texts.data(), texts.bytes.size(), [](size_t, size_t) {});
  });
}

// Tables and learners belong to one thread each, also while others use their own.
void count_and_learn(uint64_t seed) {
  const Texts texts = make_texts(400, seed);
  const SplitRules rules{scanner_for(Pattern::gpt2), Normalizer(), SpecialMatcher({"<s>"}), 0,
                         nullptr};
  const auto count = [&] {
    PretokenTables tables(false, true);
    std::vector<LongPretoken> too_long;
    tables.add_documents(texts.spans(), nullptr, false, 0, rules, 0, too_long);
    return tables;
  };
  const PretokenTables shared = count();
  const std::vector<std::string> packed = pack_sections(shared.tables().front(), 2);
  const std::vector<int64_t> counts(texts.size(), 3);
  together([&](size_t i) {
    PretokenTables own = count();
    check(pack_sections(own.tables().front(), 2) == packed, "counts of several threads");
    own.table(0).add_table(shared.tables().front());
    check(own.total() == 2 * shared.total(), "a table is added that others read");
    MergeLearner learner(texts.data(), texts.bounds.data(), counts.data(), texts.size(), {});
    learner.learn(256 + 20 + i, SIZE_MAX);
    check(learner.merges().size() == 20 + i, "merges of several threads");
  });
}

}  // namespace

int main(int argc, char** argv) {
  const uint64_t rounds = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 1;
  for (uint64_t round = 0; round < rounds; ++round) {
    share_constants(round);
    share_encoder(round);
    share_failure(round);
    count_and_learn(round);
  }
  std::printf("%llu rounds of %zu threads: equal\n", static_cast<unsigned long long>(rounds),
              kThreads);
}
