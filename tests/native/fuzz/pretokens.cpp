// Counting in tables equals counting in a map, packed and merged again, with and without groups.
// The input: options, then documents with FF between them.
#include <map>

#include "count_runs.hpp"
#include "fuzz.hpp"
#include "ordered_pretokens.hpp"
#include "pretoken_tables.hpp"

using namespace bpe;
using fuzz::check;
using fuzz::Counted;

namespace {

using Counts = std::map<std::string, Counted>;

constexpr Pattern kPatterns[] = {Pattern::gpt2, Pattern::cl100k, Pattern::o200k,
                                 Pattern::deepseek_v3, Pattern::none};

// The counts of a group, or of all groups for -1.
Counts merged_counts(const std::vector<std::string>& sections, RunLayout layout, int group) {
  CountMerger merger(
      sections.size(),
      [&, begun = std::vector<bool>(sections.size())](size_t source, std::string& chunk) mutable {
        chunk = begun[source] ? "" : sections[source];
        begun[source] = true;
      },
      layout);
  Counts counts;
  for (;;) {
    const CountColumns rows = merger.read({7, 1 << 16, 1 << 16});
    if (rows.offsets.size() == 1) return counts;
    for (size_t i = 0; i + 1 < rows.offsets.size(); ++i) {
      const std::string key(rows.keys.begin() + rows.offsets[i],
                            rows.keys.begin() + rows.offsets[i + 1]);
      if (group < 0) {
        counts[key] = {rows.counts[i], layout.documents ? rows.documents[i] : 0};
        continue;
      }
      for (int64_t k = rows.group_offsets[i]; k < rows.group_offsets[i + 1]; ++k) {
        if (merger.names()[static_cast<size_t>(rows.groups[k])] != std::to_string(group)) continue;
        counts[key] = {rows.group_counts[k], layout.documents ? rows.group_documents[k] : 0};
      }
    }
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  const uint8_t options = input.byte();
  const Pattern pattern = kPatterns[input.below(std::size(kPatterns))];
  const bool counts_documents = (options & 1) != 0;
  const size_t num_groups = 1 + (options >> 1 & 3);
  const size_t longest = (options & 8) != 0 ? 1 + input.below(20) : 0;
  const std::vector<std::string> documents = fuzz::split(input.rest(), '\xFF');
  const fuzz::Columns columns(documents);
  const DocumentSpans spans{columns.bytes.data(), columns.bytes.size(), columns.offsets.data(),
                            columns.offsets.data() + 1, documents.size()};

  std::vector<Counts> expected(num_groups);
  Counts of_all;
  size_t num_too_long = 0;
  std::vector<int32_t> groups;
  std::vector<std::string> in_order;
  for (size_t i = 0; i < documents.size(); ++i) {
    const size_t group = i % num_groups;
    groups.push_back(static_cast<int32_t>(group));
    std::map<std::string, bool> seen;
    for (const std::string& pretoken :
         fuzz::pretokens(portable_scanner_for(pattern), documents[i])) {
      if (std::ranges::count(in_order, pretoken) == 0) in_order.push_back(pretoken);
      if (longest != 0 && pretoken.size() > longest) {
        ++num_too_long;
        continue;
      }
      const bool is_new = seen.emplace(pretoken, true).second;
      for (Counts* const counts : {&expected[group], &of_all}) {
        Counted& counted = (*counts)[pretoken];
        ++counted.count;
        if (counts_documents && is_new) ++counted.documents;
      }
    }
  }

  for (const bool portable : {false, true}) {
    const Scanner scanner = portable ? portable_scanner_for(pattern) : scanner_for(pattern);
    PretokenTables tables(portable, counts_documents);
    std::vector<LongPretoken> too_long;
    const SplitRules rules{scanner, Normalizer(), SpecialMatcher(), longest, nullptr};
    for (size_t next = 0; next < spans.n;) {
      // With a limit that is always exceeded, each call takes one document.
      next = tables.add_documents(spans, groups.data(), false, next, rules, options >> 7, too_long);
    }
    check(too_long.size() == num_too_long, "pre-tokens that are too long are listed");
    std::vector<std::string> names;
    for (size_t i = 0; i < num_groups; ++i) names.push_back(std::to_string(i));
    const RunLayout layout{true, counts_documents};
    std::vector<std::string> sections = pack_grouped_sections(tables.tables(), names, 3);
    for (size_t i = 0; i < num_groups; ++i) {
      check(merged_counts(sections, layout, static_cast<int>(i)) == expected[i],
            "counts of a group equal those of a map");
    }
    check(merged_counts(sections, layout, -1) == of_all, "sums of the groups");
    PretokenTable all(portable, counts_documents);
    for (const PretokenTable& table : tables.tables()) all.add_table(table);
    check(merged_counts(pack_sections(all, 2), {false, counts_documents}, -1) == of_all,
          "tables that are added up equal a map");
    OrderedPretokens ordered;
    for (const std::string& document : documents) {
      const fuzz::Bytes bytes(document);
      ordered.add_document(bytes.data(), bytes.size(), scanner, Normalizer(), SpecialMatcher());
    }
    const fuzz::Columns wanted(in_order);
    check(std::ranges::equal(
              ordered.keys(),
              std::vector<uint8_t>(wanted.bytes.data(), wanted.bytes.data() + wanted.bytes.size())),
          "pre-tokens in the order of their first occurrence");
  }
  return 0;
}
