#include "scanner.hpp"

#include <stdexcept>

#include "scanner_blocks.hpp"
#include "scanner_portable.hpp"

namespace bpe {

Scanner portable_scanner_for(Pattern pattern) {
  switch (pattern) {
    case Pattern::gpt2:
      return scan_portable<Pattern::gpt2>;
    case Pattern::cl100k:
      return scan_portable<Pattern::cl100k>;
    case Pattern::cl100k_tiktoken:
      return scan_portable<Pattern::cl100k_tiktoken>;
    case Pattern::o200k:
      return scan_portable<Pattern::o200k>;
    case Pattern::qwen2:
      return scan_portable<Pattern::qwen2>;
    case Pattern::none:
      return scan_portable<Pattern::none>;
  }
  throw std::invalid_argument("scanner_for: not a pattern");
}

Scanner scanner_for(Pattern pattern) {
  if (cpu_has_avx2()) {
    const Scanner scanner = avx2_scanner_for(pattern, cpu_extracts_fast());
    if (scanner != nullptr) return scanner;
  }
  return portable_scanner_for(pattern);
}

}  // namespace bpe
