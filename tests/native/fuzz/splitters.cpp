// Splitters of vocabularies, and of any states: they cut only between characters that stand apart,
// and everywhere the same. The input: options, the state or tokens, then the text.
#include "byte_splitter.hpp"
#include "fuzz.hpp"
#include "superword_runs.hpp"
#include "vocabulary_splitter.hpp"

using namespace bpe;
using fuzz::check;

namespace {

// Where a text may be cut, the parts have its pre-tokens.
void compare_cuts(const Splitter& splitter, const Scanner& scanner, std::string_view text) {
  const fuzz::Bytes bytes(text);
  const fuzz::Ends ends = fuzz::cut(scanner, bytes.data(), bytes.size());
  check(fuzz::cut(scanner, bytes.data(), bytes.size(), 1 + text.size() % 5) == ends,
        "the number of ends of a call changes nothing");
  if (!text.empty()) check(ends.back() == text.size(), "pre-tokens cover the text");
  uint32_t previous = kInvalidCodePoint;
  for (size_t at = 0, tried = 0; at < bytes.size() && tried < 5;) {
    const DecodedCharacter next = decode_utf8(bytes.data() + at, bytes.size() - at);
    if (previous != kInvalidCodePoint && next.code_point != kInvalidCodePoint &&
        splitter.may_cut(previous, next.code_point)) {
      ++tried;
      check(std::ranges::binary_search(ends, at), "a pre-token ends where text may be cut");
      const fuzz::Bytes left(text.substr(0, at));
      const fuzz::Bytes right(text.substr(at));
      fuzz::Ends parts = fuzz::cut(scanner, left.data(), left.size());
      for (const size_t end : fuzz::cut(scanner, right.data(), right.size())) {
        parts.push_back(at + end);
      }
      check(parts == ends, "both sides of a cut have the pre-tokens of the text");
    }
    previous = next.code_point;
    at += next.size;
  }
}

void split_bytes(fuzz::Input& input) {
  std::vector<uint64_t> joined(ByteSplitter::kWords - (input.byte() == 0xFF ? 1 : 0));
  const bool negated = input.flag();
  if (negated) std::ranges::fill(joined, ~uint64_t{0});
  for (size_t left = input.byte(); left > 0; --left) {
    const size_t pair = input.word();
    joined[pair / 64 % joined.size()] ^= uint64_t{1} << pair % 64;
  }
  try {
    const auto splitter = std::make_shared<const ByteSplitter>(joined);
    compare_cuts(*splitter, Scanner(splitter), input.rest());
  } catch (const std::invalid_argument&) {
    check(joined.size() != ByteSplitter::kWords, "a splitter of all pairs is made");
  }
}

void split_by_vocabulary(fuzz::Input& input) {
  const auto unknown = static_cast<UnknownCharacters>(input.below(3));
  const bool before_space = input.flag();
  std::vector<std::string> tokens;
  std::vector<uint32_t> characters;
  for (size_t left = input.below(24); left > 0; --left) {
    tokens.emplace_back(input.take(1 + input.below(8)));
    const auto* const bytes = reinterpret_cast<const uint8_t*>(tokens.back().data());
    if (utf8_valid_prefix(bytes, tokens.back().size()) != tokens.back().size()) {
      tokens.pop_back();
      continue;
    }
    for (size_t at = 0; at < tokens.back().size();) {
      const DecodedCharacter next = decode_utf8(bytes + at, tokens.back().size() - at);
      characters.push_back(next.code_point == kSpaceSign ? ' ' : next.code_point);
      at += next.size;
    }
  }
  const fuzz::Columns columns(tokens);
  const auto splitter = std::make_shared<const VocabularySplitter>(
      characters,
      VocabularySplitter::Tokens{columns.bytes.data(), columns.offsets.data(), tokens.size()},
      before_space, unknown);
  const std::string_view text = input.rest();
  compare_cuts(*splitter, Scanner(splitter), text);
  const auto again = std::make_shared<const VocabularySplitter>(splitter->state());
  const fuzz::Bytes bytes(text);
  check(fuzz::cut(Scanner(again), bytes.data(), bytes.size()) ==
            fuzz::cut(Scanner(splitter), bytes.data(), bytes.size()),
        "a splitter equals that of its state");
}

// A state of any bytes, as a pickle may have.
void split_by_any_state(fuzz::Input& input) {
  VocabularySplitter::State state{};
  state.unknown = static_cast<UnknownCharacters>(input.below(3));
  state.split_before_space = input.flag();
  const auto fill = [&](auto& words, size_t size) {
    words.assign(size, 0);
    for (auto& word : words) {
      word = static_cast<std::decay_t<decltype(word)>>(input.word() * 0x9E3779B97F4A7C15u);
    }
  };
  fill(state.known, input.byte());
  fill(state.parted, input.flag() ? 0x80 * 0x80 : input.byte());
  fill(state.filter, input.flag() ? size_t{64} << input.below(4) : input.byte());
  for (uint8_t& parted : state.parted) parted = static_cast<uint8_t>(parted >> input.below(8));
  try {
    const auto splitter = std::make_shared<const VocabularySplitter>(std::move(state));
    const fuzz::Bytes text(input.rest());
    std::vector<size_t> ends(64);
    for (size_t pos = 0; pos < text.size();) {
      const size_t n = splitter->scan(text.data(), text.size(), pos, ends.data(), ends.size());
      check(n > 0 && n <= ends.size(), "a splitter finds an end");
      pos = ends[n - 1];
    }
  } catch (const std::invalid_argument&) {
  }
}

// Runs of words that are tokens, found in one pass, equal those of each chunk.
void find_runs(fuzz::Input& input) {
  std::vector<std::string> tokens;
  for (size_t left = input.below(12); left > 0; --left) {
    tokens.emplace_back(input.take(1 + input.below(20)));
  }
  const size_t most_words = 2 + input.below(3);
  const fuzz::Columns columns(tokens);
  const Scanner words = portable_scanner_for(Pattern::gpt2);
  const Scanner chunks = portable_scanner_for(Pattern::none);
  const SuperwordRuns runs(words, chunks, columns.bytes.data(), columns.offsets.data(),
                           tokens.size(), most_words);
  const fuzz::Bytes text(input.rest());
  std::vector<std::pair<size_t, size_t>> found;
  runs.for_each(text.data(), text.size(),
                [&](size_t begin, size_t end) { found.emplace_back(begin, end); });
  std::vector<std::pair<size_t, size_t>> expected;
  size_t begin = 0;
  size_t num_words = 0;
  size_t at = 0;
  const auto finish = [&] {
    if (num_words > 1) expected.emplace_back(begin, at);
    num_words = 0;
    begin = at;
  };
  const fuzz::Ends ends = fuzz::cut(words, text.data(), text.size());
  for (const size_t end : ends) {
    const std::string word(text.view().substr(at, end - at));
    const bool is_token = std::ranges::count(tokens, word) != 0;
    if (!is_token || num_words == most_words) finish();
    if (is_token && num_words++ == 0) begin = at;
    at = end;
  }
  finish();
  check(found == expected, "runs of words");
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  switch (input.byte() % 4) {
    case 0:
      split_bytes(input);
      break;
    case 1:
      split_by_vocabulary(input);
      break;
    case 2:
      split_by_any_state(input);
      break;
    default:
      find_runs(input);
  }
  return 0;
}
