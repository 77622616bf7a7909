// Unicode normalization (forms C and KC of Unicode 16.0) and typographic quotes.
//
// Text is looked through for the first character that may change. What stands before it is copied
// as it is; then the characters from the boundary before it to the boundary after it are
// decomposed, ordered and composed as Unicode Standard Annex 15 says. A boundary is a character
// that neither changes nor takes part in what is before it, so the result is that of the whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bpe {

enum class NormalizationForm { none, nfc, nfkc };

class Normalizer {
 public:
  // quotes: after that, typographic quotes become ' and " (kQuotes).
  explicit Normalizer(NormalizationForm form = NormalizationForm::none, bool quotes = false);

  // Whether text may change at all.
  bool is_active() const { return form_ != NormalizationForm::none || quotes_; }

  // How many bytes a byte of text becomes at most.
  size_t growth() const;

  // Appends the normalized text. Bytes that are not UTF-8 stay as they are, as boundaries.
  void normalize(const uint8_t* text, size_t size, std::string& out) const;

  // The normalized text: the text itself if nothing in it may change, else in `buffer`.
  std::string_view normalized(std::string_view text, std::string& buffer) const;

  // Whether the character is a boundary and no quote: it stays as it is whatever stands before it.
  bool is_fixed(uint32_t code_point) const;

 private:
  // text[0, settled) stays as it is, `settled` is a boundary, and the character at `changes` may
  // change; both are the size if none may.
  struct Stretch {
    size_t settled;
    size_t changes;
  };

  Stretch find_change(const uint8_t* text, size_t size, size_t from) const;
  void normalize_from(Stretch found, const uint8_t* text, size_t size, std::string& out) const;
  size_t next_boundary(const uint8_t* text, size_t size, size_t from) const;
  void normalize_stretch(const uint8_t* text, size_t size, std::vector<uint32_t>& scratch,
                         std::string& out) const;
  void decompose(uint32_t code_point, std::vector<uint32_t>& out) const;

  NormalizationForm form_;
  bool quotes_;
  uint8_t boundary_;  // the flag of boundaries in this form
  uint8_t stable_;    // of other characters that may stay
};

}  // namespace bpe
