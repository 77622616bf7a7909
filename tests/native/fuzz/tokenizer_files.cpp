// Files of tokenizers. The first byte of the input chooses: any bytes as a tokenizer.json, or
// tokens and merges that are written and read again.
#include <map>
#include <set>

#include "fuzz.hpp"
#include "merge_texts.hpp"
#include "rank_joins.hpp"
#include "token_files.hpp"
#include "utf8.hpp"

using namespace bpe;
using fuzz::check;

namespace {

void read_any_bytes(std::string_view text) {
  const fuzz::Bytes json(text);
  const std::optional<FoundMerges> found = find_merges(json.data(), json.size());
  const std::optional<TokenizerOutline> outline = outline_of(json.data(), json.size());
  if (found) {
    check(found->begin < found->end && found->end <= json.size(), "the merges lie in the file");
    check(json.data()[found->begin] == '[' && json.data()[found->end - 1] == ']', "an array");
  }
  if (!outline) return;
  check(outline->vocab_begin < outline->vocab_end && outline->vocab_end <= json.size() &&
            outline->merges_end <= json.size() && outline->merges_begin <= outline->merges_end,
        "the outline lies in the file");
  if (found) {
    check(found->begin == outline->merges_begin && found->end == outline->merges_end,
          "both readers find the same merges");
  }
}

std::string decode_base64(std::string_view text) {
  std::string decoded;
  uint32_t bits = 0;
  int have = 0;
  for (const char letter : text) {
    if (letter == '=') break;
    const size_t value = std::string_view(
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                             "0123456789+/")
                             .find(letter);
    check(value < 64, "a letter of base64");
    bits = bits << 6 | static_cast<uint32_t>(value);
    have += 6;
    if (have >= 8) {
      have -= 8;
      decoded.push_back(static_cast<char>(bits >> have & 0xFF));
    }
  }
  return decoded;
}

// Joins the bytes of a token, lowest rank first, until two parts are left.
std::pair<int64_t, int64_t> last_join(const std::map<std::string, int64_t>& ranks,
                                      const std::string& token) {
  std::vector<std::string> parts;
  for (const char byte : token) parts.emplace_back(1, byte);
  while (parts.size() > 2) {
    size_t best = SIZE_MAX;
    int64_t least = INT64_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto rank = ranks.find(parts[i] + parts[i + 1]);
      if (rank != ranks.end() && rank->second < least) {
        least = rank->second;
        best = i;
      }
    }
    if (best == SIZE_MAX) return {-1, -1};
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  if (parts.size() < 2) return {-1, -1};
  const auto left = ranks.find(parts[0]);
  const auto right = ranks.find(parts[1]);
  if (left == ranks.end() || right == ranks.end()) return {-1, -1};
  return {left->second, right->second};
}

void write_and_read(fuzz::Input& input) {
  std::vector<std::string> tokens;
  for (size_t left = input.below(40); left > 0; --left) {
    std::string token(input.take(1 + input.below(input.flag() ? 3 : 24)));
    if (!token.empty()) tokens.push_back(std::move(token));
  }
  const fuzz::Columns columns(tokens);
  const KeySpans keys{columns.bytes.data(), columns.offsets.data(), tokens.size()};
  const std::set<std::string> distinct(tokens.begin(), tokens.end());
  check(has_equal_keys(keys) == (distinct.size() < tokens.size()), "equal keys are found");

  std::map<std::string, int64_t> ranks;
  for (size_t i = 0; i < tokens.size(); ++i) ranks.emplace(tokens[i], i);
  const LastJoins joins = last_joins(keys.bytes, keys.offsets, keys.n);
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto [left, right] = last_join(ranks, tokens[i]);
    check(joins.left[i] == left && joins.right[i] == right, "the last join of a token");
  }
  if (distinct.size() < tokens.size()) return;

  std::vector<int64_t> ids;
  for (size_t i = 0; i < tokens.size(); ++i) ids.push_back(static_cast<int64_t>(3 * i + 1));
  const std::string lines = rank_lines(keys, ids.data());
  const std::vector<std::string> split_lines = fuzz::split(lines, '\n');
  check(split_lines.size() == tokens.size() + 1, "a line for each token");
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t space = split_lines[i].find(' ');
    check(decode_base64(split_lines[i].substr(0, space)) == tokens[i], "base64 of a token");
    check(split_lines[i].substr(space + 1) == std::to_string(ids[i]), "the id of a token");
  }

  // Merges of tokens: those whose joined bytes are a token, as rows left, right, result.
  std::vector<int64_t> left, right, expected;
  for (size_t i = 0; i < tokens.size(); ++i) {
    for (size_t k = 0; k < tokens.size(); ++k) {
      const auto made = ranks.find(tokens[i] + tokens[k]);
      if (made == ranks.end()) continue;
      left.push_back(static_cast<int64_t>(i));
      right.push_back(static_cast<int64_t>(k));
      for (const int64_t index : {left.back(), right.back(), made->second}) {
        expected.push_back(ids[static_cast<size_t>(index)]);
      }
    }
  }
  const TokenTexts texts = stand_ins_of(keys);
  const fuzz::Bytes text(texts.text);
  check(utf8_valid_prefix(text.data(), text.size()) == text.size(), "stand-ins are UTF-8");
  const KeySpans text_keys{text.data(), texts.offsets.data(), tokens.size()};
  std::vector<int64_t> rows;
  for (size_t i = 0; i < tokens.size(); ++i) rows.push_back(static_cast<int64_t>(i));
  const MergeSides sides{left.data(), right.data(), left.size()};
  const std::string json = R"({"model":{"vocab":)" +
                           vocabulary_json(text_keys, ids.data(), rows.data(), rows.size()) +
                           R"(,"merges":)" + merges_json(text_keys, sides) + "}}";
  const fuzz::Bytes file(json);
  const std::optional<FoundMerges> found = find_merges(file.data(), file.size());
  check(found && found->merges.size() == left.size(), "written merges are read");
  const auto read = found->merges.rows(keys, ids.data(), true);
  check(read && *read == expected, "written merges are read as they are");
  if (!tokens.empty()) {
    const std::optional<TokenizerOutline> outline = outline_of(file.data(), file.size());
    check(outline && outline->largest_id == ids.back(), "the largest id of a vocabulary");
  }
  const std::string merges = merge_lines(text_keys, sides);
  check(std::ranges::count(merges, '\n') == static_cast<std::ptrdiff_t>(left.size()),
        "a line for each merge");
}

// Merges of any texts, looked up among tokens.
void look_up(fuzz::Input& input) {
  std::vector<std::string> tokens;
  for (size_t left = 1 + input.below(12); left > 0; --left) {
    tokens.emplace_back(input.take(1 + input.below(20)));
  }
  const fuzz::Columns columns(tokens);
  std::vector<int64_t> ids(tokens.size(), 7);
  const KeySpans keys{columns.bytes.data(), columns.offsets.data(), tokens.size()};
  const bool stand_ins = input.flag();
  const fuzz::Bytes json(R"({"model":{"merges":)" + std::string(input.rest()));
  const std::optional<FoundMerges> found = find_merges(json.data(), json.size());
  if (!found) return;
  const auto rows = found->merges.rows(keys, ids.data(), stand_ins);
  if (rows) check(rows->size() % 3 == 0 && rows->size() <= 3 * found->merges.size(), "rows");
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 4) {
    case 0:
    case 1:
      read_any_bytes(input.rest());
      break;
    case 2:
      write_and_read(input);
      break;
    default:
      look_up(input);
  }
  return 0;
}
