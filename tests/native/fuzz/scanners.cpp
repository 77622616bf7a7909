// Scanners with vector instructions equal the portable ones. The input is the text.
#include "fuzz.hpp"
#include "scanner_blocks.hpp"
#include "words.hpp"

using namespace bpe;
using fuzz::check;

namespace {

void compare(const Scanner& scanner, const fuzz::Bytes& text, const fuzz::Ends& expected,
             const char* promise) {
  check(fuzz::cut(scanner, text.data(), text.size()) == expected, promise);
  check(fuzz::cut(scanner, text.data(), text.size(), 1 + text.size() % 7) == expected,
        "the number of ends of a call changes nothing");
}

}  // namespace

FUZZ_TARGET(data, size) {
  const fuzz::Bytes text(fuzz::view(data, size));
  for (const Pattern pattern :
       {Pattern::gpt2, Pattern::cl100k, Pattern::cl100k_tiktoken, Pattern::o200k, Pattern::qwen2,
        Pattern::deepseek_v3, Pattern::none, Pattern::whitespace_words, Pattern::marked_words}) {
    const fuzz::Ends expected =
        fuzz::cut(portable_scanner_for(pattern), text.data(), text.size(), 64);
    compare(portable_scanner_for(pattern), text, expected, "a portable scanner equals itself");
    compare(scanner_for(pattern), text, expected, "the scanner of this processor");
    if (!cpu_has_avx2()) continue;
    for (const bool extracts_fast : {false, true}) {
      const Scanner::Scan scan = avx2_scan_for(pattern, Splitting::as_published, extracts_fast);
      if (scan != nullptr) compare(Scanner(scan), text, expected, "scanners of AVX2");
    }
  }
  for (const Pattern pattern :
       {Pattern::gpt2, Pattern::cl100k, Pattern::cl100k_tiktoken, Pattern::o200k}) {
    for (const PatternRules rules :
         {PatternRules{.max_digits = 2}, PatternRules{.contractions = false, .max_digits = 1},
          PatternRules{.contractions = false},
          PatternRules{.split_categories = true, .contractions = false, .max_digits = 1},
          PatternRules{.split_categories = true}}) {
      const Scanner portable = portable_scanner_for(pattern, rules);
      const fuzz::Ends expected = fuzz::cut(portable, text.data(), text.size());
      compare(scanner_for(pattern, rules), text, expected, "scanners with rules");
    }
  }
  return 0;
}
