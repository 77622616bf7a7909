// Scanners that cut text into pre-tokens as the published split patterns do.
#pragma once

#include <cstddef>
#include <cstdint>

namespace bpe {

// llama3 is cl100k; qwen2 is cl100k with digits one by one. cl100k_tiktoken is the form into which
// tiktoken rewrote cl100k: it takes white space that ends the text as one pre-token even where it
// has line breaks. none takes the whole text as one pre-token.
enum class Pattern { gpt2, cl100k, cl100k_tiktoken, o200k, qwen2, none };

// Writes the ends of the next pre-tokens of text[pos, size) into ends (ascending, each greater than
// pos, at most capacity of them) and returns their number, which is 0 only at pos == size or
// capacity == 0. text[0, size) is one segment: a document, or what stands between two special
// tokens. pos must be 0 or an end given before. Bytes that are not UTF-8 count as characters that
// are neither letters nor numbers nor white space. All calls for a segment together take time
// linear in its size.
using Scanner = size_t (*)(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                           size_t capacity);

// The fastest scanner for the pattern on this CPU.
Scanner scanner_for(Pattern pattern);

// The scanner that uses no instructions beyond the baseline: the yardstick of the others.
Scanner portable_scanner_for(Pattern pattern);

}  // namespace bpe
