// Compares the functions that use vector instructions with the portable ones, on random texts.
// tests/bpe_core/test_vector_kernels.py compiles and runs it, for ARM in an emulator.
//
//     vector_kernels TEXTS SEED

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "scanner.hpp"
#include "utf8.hpp"

namespace {

using Ends = std::vector<size_t>;

constexpr bpe::Pattern kPatterns[] = {
    bpe::Pattern::gpt2,  bpe::Pattern::cl100k, bpe::Pattern::cl100k_tiktoken,
    bpe::Pattern::o200k, bpe::Pattern::qwen2,  bpe::Pattern::deepseek_v3};
constexpr size_t kWithRules = 4;  // patterns that have rules: the first ones

// Pieces of text whose order decides where a pattern cuts.
const std::vector<std::string> kPieces = {" ",
                                          "  ",
                                          "\n",
                                          "\r\n",
                                          "\t",
                                          "a",
                                          "the",
                                          "The",
                                          "THE",
                                          "zebra",
                                          "0",
                                          "12",
                                          "2024",
                                          "'s",
                                          "'LL",
                                          "'re",
                                          "'",
                                          "!",
                                          "...",
                                          "/",
                                          "//",
                                          "_",
                                          "@",
                                          "é",
                                          "Ünï",
                                          "漢字",
                                          "ひ",
                                          "дом",
                                          "ДО",
                                          "\u0301",
                                          "😀",
                                          "\u00a0",
                                          "\u2003",
                                          "٣",
                                          "ſ",
                                          "'ſ",
                                          "ǅ",
                                          "\x80",
                                          "\xC3",
                                          "\xE2\x82",
                                          "\xF0\x9F",
                                          "\xFF",
                                          "\xED\xA0\x80",
                                          std::string(1, '\0')};

std::string random_text(std::mt19937_64& random) {
  std::string text;
  const size_t size = random() % 300;
  // Often ASCII alone: other text is left to the portable scanner in part.
  const size_t known = random() % 2 == 0 ? 23 : kPieces.size();
  while (text.size() < size) {
    if (random() % 8 == 0) {
      text.push_back(static_cast<char>(random() % (known == 23 ? 128 : 256)));
    } else {
      text += kPieces[random() % known];
    }
  }
  return text;
}

Ends cut(const bpe::Scanner& scanner, const std::string& text, size_t capacity) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  Ends ends;
  size_t pos = 0;
  std::vector<size_t> found(capacity);
  while (pos < text.size()) {
    const size_t n = scanner(bytes, text.size(), pos, found.data(), capacity);
    if (n == 0) break;
    ends.insert(ends.end(), found.begin(), found.begin() + static_cast<std::ptrdiff_t>(n));
    pos = ends.back();
  }
  return ends;
}

size_t valid_prefix(const std::string& text) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  size_t i = 0;
  while (i < text.size()) {
    const bpe::DecodedCharacter character = bpe::decode_utf8(bytes + i, text.size() - i);
    if (character.code_point == bpe::kInvalidCodePoint) break;
    i += character.size;
  }
  return i;
}

[[noreturn]] void fail(const char* what, size_t number, const std::string& text) {
  std::printf("%s %zu differs on:", what, number);
  for (const unsigned char byte : text) std::printf(" %02x", byte);
  std::printf("\n");
  std::exit(1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const size_t texts = std::strtoull(argv[1], nullptr, 10);
  std::mt19937_64 random(std::strtoull(argv[2], nullptr, 10));
  struct Pair {
    bpe::Scanner fastest;
    bpe::Scanner portable;
  };
  std::vector<Pair> scanners;
  for (const bpe::Pattern pattern : kPatterns) {
    scanners.push_back({bpe::scanner_for(pattern), bpe::portable_scanner_for(pattern)});
  }
  for (size_t i = 0; i < kWithRules; ++i) {
    for (const bpe::PatternRules rules :
         {bpe::PatternRules{.max_digits = 2}, bpe::PatternRules{.contractions = false},
          bpe::PatternRules{.split_categories = true, .contractions = false, .max_digits = 1}}) {
      scanners.push_back(
          {bpe::scanner_for(kPatterns[i], rules), bpe::portable_scanner_for(kPatterns[i], rules)});
    }
  }
  for (size_t i = 0; i < texts; ++i) {
    const std::string text = random_text(random);
    const size_t capacity = random() % 2 == 0 ? 256 : 1 + random() % 80;
    for (size_t j = 0; j < scanners.size(); ++j) {
      if (cut(scanners[j].fastest, text, capacity) != cut(scanners[j].portable, text, capacity)) {
        fail("scanner", j, text);
      }
    }
    // Repeated, so that most of it is checked in whole blocks.
    for (const std::string& checked : {text, text + text + "漢字" + text}) {
      const auto* const bytes = reinterpret_cast<const uint8_t*>(checked.data());
      if (bpe::utf8_valid_prefix(bytes, checked.size()) != valid_prefix(checked)) {
        fail("UTF-8 prefix", i, checked);
      }
    }
  }
  std::printf("%zu texts, %zu scanners: equal\n", texts, scanners.size());
}
