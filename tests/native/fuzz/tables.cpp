// Tables that grow: counts of many pre-tokens, and the cache of their ids. The input: options, then
// runs of numbers, of which words are made.
#include <map>

#include "count_runs.hpp"
#include "encode_parallel.hpp"
#include "encoder.hpp"
#include "fuzz.hpp"
#include "ordered_pretokens.hpp"
#include "pretoken_table.hpp"

using namespace bpe;
using fuzz::check;

namespace {

constexpr size_t kMostBytes = 200'000;

struct Words {
  std::vector<std::string> texts;
  std::vector<int64_t> counts;
};

// Runs of words: their first number, the step to the next, how many, and their length.
Words read_words(fuzz::Input& input) {
  Words words;
  for (size_t bytes = 0; !input.empty() && bytes < kMostBytes;) {
    uint32_t number = input.word();
    const uint32_t step = input.byte();
    const size_t n = size_t{1} << input.below(13);
    const uint8_t shape = input.byte();
    const uint8_t weight = input.byte();
    // Mostly of up to 15 bytes, which tables keep in place.
    const size_t least = (shape & 3) != 3 ? shape >> 4 : size_t{shape} + 1;
    for (size_t i = 0; i < n && bytes < kMostBytes; ++i, number += step) {
      std::string word = " ";
      for (uint32_t left = number * 2654435761u; left != 0; left /= 26) {
        word += static_cast<char>('a' + left % 26);
      }
      while (word.size() < least) word += word;
      word.resize(std::max<size_t>(least, 2 + (shape >> 2 & 3)), 'x');
      bytes += word.size();
      words.texts.push_back(std::move(word));
      words.counts.push_back((int64_t{1} << weight % 63) + weight);
    }
  }
  return words;
}

std::map<std::string, int64_t> unpack(const std::vector<std::string>& sections) {
  std::vector<bool> begun(sections.size());
  CountMerger merger(sections.size(), [&](size_t source, std::string& chunk) {
    chunk = begun[source] ? "" : sections[source];
    begun[source] = true;
  });
  std::map<std::string, int64_t> counts;
  const CountColumns rows = merger.read({SIZE_MAX, SIZE_MAX, SIZE_MAX});
  for (size_t i = 0; i < rows.counts.size(); ++i) {
    counts[std::string(rows.keys.begin() + rows.offsets[i],
                       rows.keys.begin() + rows.offsets[i + 1])] = rows.counts[i];
  }
  return counts;
}

void compare_counts(const Words& words, bool portable) {
  PretokenTable table(portable);
  PretokenTable other(portable);
  std::map<std::string, int64_t> expected;
  bool fits = true;
  try {
    for (size_t i = 0; i < words.texts.size(); ++i) {
      const fuzz::Bytes key(words.texts[i]);
      int64_t& sum = expected[words.texts[i]];
      fits = !__builtin_add_overflow(sum, words.counts[i], &sum);
      if (!fits && i % 2 != 0) break;  // found only when both are added up
      (i % 2 == 0 ? table : other).add(key.data(), key.size(), words.counts[i]);
      if (!fits) break;
    }
    table.add_table(other);
  } catch (const std::overflow_error&) {
    // Also the sum of two tables that both fit.
    return;
  }
  if (!fits) return;
  check(table.size() == expected.size(), "the number of keys");
  check(unpack(pack_sections(table, 3)) == expected, "counts of a table equal those of a map");
}

void compare_order(const Words& words) {
  OrderedPretokens ordered;
  std::map<std::string, size_t> numbers;
  std::vector<std::string> keys;
  std::vector<int64_t> counts;
  for (const std::string& text : words.texts) {
    const fuzz::Bytes key(text);
    ordered.add(key.data(), key.size());
    const auto [at, is_new] = numbers.emplace(text, keys.size());
    if (is_new) {
      keys.push_back(text);
      counts.push_back(0);
    }
    ++counts[at->second];
  }
  const fuzz::Columns columns(keys);
  check(ordered.counts() == counts, "counts in order");
  check(fuzz::view(ordered.keys().data(), ordered.keys().size()) == columns.bytes.view(),
        "keys in order");
}

template <class Id>
void compare_cache(const Words& words, uint32_t first_id, size_t entries, bool portable) {
  std::array<int64_t, 256> byte_ids;
  for (size_t byte = 0; byte < 256; ++byte) byte_ids[byte] = static_cast<int64_t>(first_id + byte);
  const uint32_t space = first_id + ' ';
  const std::vector<MergeRule> rules = {{first_id + 'a', first_id + 'b', first_id + 256},
                                        {space, first_id + 'c', first_id + 257}};
  const Encoder encoder(MergeRules(byte_ids, rules, -1),
                        portable ? portable_scanner_for(Pattern::gpt2) : scanner_for(Pattern::gpt2),
                        Normalizer(), portable);
  WorkspacePool pool(entries);
  const fuzz::Columns columns(words.texts);
  const DocumentSpans documents{columns.bytes.data(), columns.bytes.size(), columns.offsets.data(),
                                columns.offsets.data() + 1, words.texts.size()};
  std::vector<uint32_t> expected;
  for (const std::string& text : words.texts) {
    for (size_t i = 0; i < text.size(); ++i) {
      const std::string_view pair = std::string_view(text).substr(i, 2);
      if (pair == "ab" || pair == " c") {
        expected.push_back(first_id + (pair == "ab" ? 256 : 257));
        ++i;
      } else {
        expected.push_back(first_id + static_cast<uint8_t>(text[i]));
      }
    }
  }
  for (int pass = 0; pass < 2; ++pass) {
    IdBuffer<Id> ids;
    std::vector<int64_t> offsets(documents.n);
    WorkspacePool::Lease lease(pool);
    encoder.encode_documents(lease.get(), documents, SpecialTokens{}, Affixes{}, false, ids,
                             offsets.data());
    check(std::equal(ids.data(), ids.data() + ids.size(), expected.begin(), expected.end()),
          "ids from the cache equal merged ones");
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  if (size > 200) return 0;
  fuzz::Input input(data, size);
  const uint8_t options = input.byte();
  const bool portable = (options & 1) != 0;
  const size_t entries = size_t{4} << (options >> 4);
  const Words words = read_words(input);
  if (words.texts.empty()) return 0;
  switch (options >> 1 & 7) {
    case 0:
      compare_counts(words, portable);
      break;
    case 1:
      compare_order(words);
      break;
    case 2:
    case 3:
      compare_cache<uint16_t>(words, 0, entries, portable);
      break;
    case 4:
    case 5:
      compare_cache<uint32_t>(words, 70'000, entries, portable);
      break;
    default:
      // Some ids need more than 24 bits.
      compare_cache<uint32_t>(words, (1 << 24) - 0x70, entries, portable);
  }
  return 0;
}
