// Unicode normalization (forms C and KC of Unicode 16.0) and typographic quotes.
//
// Text is searched for the first character that may change. The text before it is copied unchanged;
// then the characters from the boundary before it to the boundary after it are decomposed, ordered
// and composed as defined by Unicode Standard Annex 15. A boundary is a character that neither
// changes nor combines with the text before it, so the result is that for the whole text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "character_map.hpp"

namespace bpe {

enum class NormalizationForm { none, nfc, nfkc };

class Normalizer {
 public:
  // quotes: afterwards, typographic quotes become ' and " (kQuotes).
  explicit Normalizer(NormalizationForm form = NormalizationForm::none, bool quotes = false);

  // By a table instead of a form.
  explicit Normalizer(std::shared_ptr<const CharacterMap> map) : Normalizer() {
    map_ = std::move(map);
  }

  // True if text may change at all.
  bool is_active() const { return form_ != NormalizationForm::none || quotes_ || map_ != nullptr; }

  // True if spaces at the beginning of a text are left out.
  bool removes_spaces() const { return map_ != nullptr && map_->removes_spaces(); }

  // The maximum number of bytes that a byte of text becomes.
  size_t growth() const;

  // Appends the normalized text. Bytes that are not UTF-8 are unchanged and act as boundaries.
  void normalize(const uint8_t* text, size_t size, std::string& out) const;

  // The normalized text: the text itself if nothing in it may change, otherwise in `buffer`.
  std::string_view normalized(std::string_view text, std::string& buffer) const;

  // True if the character is a boundary and not a quote: it is unchanged whatever precedes it.
  bool is_fixed(uint32_t code_point) const;

 private:
  // text[0, settled) is unchanged, `settled` is a boundary, and the character at `changes` may
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
  uint8_t stable_;    // of other characters that may be unchanged
  std::shared_ptr<const CharacterMap> map_;
};

}  // namespace bpe
