// Text: validation, transcoding, normalization, tables of characters, words. The input: options,
// then the text, or a table of characters and the text.
#include <map>

#include "character_map.hpp"
#include "fuzz.hpp"
#include "normalization_tables.hpp"
#include "normalizer.hpp"
#include "transcode.hpp"
#include "utf8.hpp"
#include "words.hpp"

using namespace bpe;
using fuzz::check;

namespace {

std::vector<DecodedCharacter> decode(std::string_view text) {
  const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
  std::vector<DecodedCharacter> characters;
  for (size_t at = 0; at < text.size(); at += characters.back().size) {
    characters.push_back(decode_utf8(bytes + at, text.size() - at));
  }
  return characters;
}

void append(std::string& text, uint32_t code_point) {
  uint8_t bytes[4];
  text.append(reinterpret_cast<char*>(bytes), encode_utf8(code_point, bytes));
}

void check_prefix(const fuzz::Bytes& text) {
  size_t prefix = 0;
  for (const DecodedCharacter& character : decode(text.view())) {
    if (character.code_point == kInvalidCodePoint) break;
    prefix += character.size;
  }
  check(utf8_valid_prefix(text.data(), text.size()) == prefix, "the valid prefix of a text");
}

template <class Unit>
void check_transcoding(std::string_view bytes) {
  std::vector<Unit> units(bytes.size() / sizeof(Unit));
  if (!units.empty()) std::memcpy(units.data(), bytes.data(), units.size() * sizeof(Unit));
  if constexpr (sizeof(Unit) == 4) {
    for (Unit& unit : units) unit %= 0x110000;
  }
  std::string expected;
  for (size_t i = 0; i < units.size(); ++i) {
    const uint32_t unit = units[i];
    const uint32_t next = i + 1 < units.size() ? units[i + 1] : 0;
    if (unit >= 0xD800 && unit < 0xDC00 && next >= 0xDC00 && next < 0xE000) {
      append(expected, 0x10000 + ((unit - 0xD800) << 10 | (next - 0xDC00)));
      ++i;
    } else {
      append(expected, unit >= 0xD800 && unit < 0xE000 ? 0xFFFD : unit);
    }
  }
  std::vector<uint8_t> out(units.size() * kMostUtf8Bytes<Unit> + kUtf8Slack);
  const uint8_t* const end = write_utf8(units.data(), units.size(), out.data());
  check(fuzz::view(out.data(), static_cast<size_t>(end - out.data())) == expected,
        "text in UTF-8 equals its characters one by one");
}

// Unicode Standard Annex 15, without boundaries.
class SimpleNormalizer {
 public:
  SimpleNormalizer(NormalizationForm form, bool quotes) : form_(form), quotes_(quotes) {}

  std::string normalize(std::string_view text) {
    size_t at = 0;
    for (const DecodedCharacter& character : decode(text)) {
      if (character.code_point == kInvalidCodePoint) {
        finish();
        out_ += text[at];
      } else {
        decompose(character.code_point);
      }
      at += character.size;
    }
    finish();
    return out_;
  }

 private:
  static uint32_t class_of(uint32_t code_point) {
    return normalization_record(code_point).combining_class;
  }

  void decompose(uint32_t code_point) {
    if (form_ == NormalizationForm::none) {
      characters_.push_back(code_point);
      return;
    }
    if (code_point >= 0xAC00 && code_point < 0xAC00 + 11172) {
      const uint32_t index = code_point - 0xAC00;
      characters_.push_back(0x1100 + index / 588);
      characters_.push_back(0x1161 + index % 588 / 28);
      if (index % 28 != 0) characters_.push_back(0x11A7 + index % 28);
      return;
    }
    const NormalizationRecord& record = normalization_record(code_point);
    const bool is_nfc = form_ == NormalizationForm::nfc;
    const size_t length = is_nfc ? record.canonical_length : record.compatible_length;
    const uint32_t* const parts = kDecompositions + (is_nfc ? record.canonical : record.compatible);
    if (length == 0) characters_.push_back(code_point);
    characters_.insert(characters_.end(), parts, parts + length);
  }

  static uint32_t compose(uint32_t first, uint32_t second) {
    if (first >= 0x1100 && first < 0x1113 && second >= 0x1161 && second < 0x1176) {
      return 0xAC00 + ((first - 0x1100) * 21 + (second - 0x1161)) * 28;
    }
    const bool is_syllable =
        first >= 0xAC00 && first < 0xAC00 + 11172 && (first - 0xAC00) % 28 == 0;
    if (is_syllable && second > 0x11A7 && second < 0x11C3) return first + second - 0x11A7;
    static const auto composites = [] {
      std::map<std::pair<uint32_t, uint32_t>, uint32_t> map;
      for (size_t i = 0; i < kNumComposites; ++i) {
        map[{kComposites[i].first, kComposites[i].second}] = kComposites[i].composite;
      }
      return map;
    }();
    const auto found = composites.find({first, second});
    return found == composites.end() ? 0 : found->second;
  }

  void finish() {
    if (form_ != NormalizationForm::none) {
      for (size_t i = 1; i < characters_.size(); ++i) {
        for (size_t k = i; k > 0 && class_of(characters_[k]) != 0 &&
                           class_of(characters_[k - 1]) > class_of(characters_[k]);
             --k) {
          std::swap(characters_[k], characters_[k - 1]);
        }
      }
      for (size_t i = 0; i < characters_.size(); ++i) {
        if (class_of(characters_[i]) != 0) continue;
        uint32_t last = 0;
        for (size_t k = i + 1; k < characters_.size();) {
          const uint32_t of_next = class_of(characters_[k]);
          const bool is_blocked = k > i + 1 && last >= of_next;
          const uint32_t made = is_blocked ? 0 : compose(characters_[i], characters_[k]);
          if (made != 0) {
            characters_[i] = made;
            characters_.erase(characters_.begin() + static_cast<std::ptrdiff_t>(k));
            continue;
          }
          if (of_next == 0) break;
          last = of_next;
          ++k;
        }
      }
    }
    for (uint32_t code_point : characters_) {
      for (size_t i = 0; quotes_ && i < kNumQuotes; ++i) {
        if (kQuotes[i].quote == code_point) {
          code_point = kQuotes[i].ascii;
          break;
        }
      }
      append(out_, code_point);
    }
    characters_.clear();
  }

  NormalizationForm form_;
  bool quotes_;
  std::vector<uint32_t> characters_;
  std::string out_;
};

void check_normalization(const fuzz::Bytes& text) {
  for (const NormalizationForm form :
       {NormalizationForm::none, NormalizationForm::nfc, NormalizationForm::nfkc}) {
    for (const bool quotes : {false, true}) {
      const Normalizer normalizer(form, quotes);
      std::string normalized;
      normalizer.normalize(text.data(), text.size(), normalized);
      check(normalized == SimpleNormalizer(form, quotes).normalize(text.view()),
            "normalization equals that of the whole text at once");
      check(normalized.size() <= text.size() * normalizer.growth(), "the growth of a text");
      std::string buffer;
      check(normalizer.normalized(text.view(), buffer) == normalized, "text that may be unchanged");
    }
  }
}

void check_character_map(fuzz::Input& input) {
  const bool remove_spaces = input.flag();
  const std::string_view given = input.text();
  // The size of the trie stands before it; from here on it is right more often.
  std::string table(4, '\0');
  table[0] = static_cast<char>(input.byte() & ~3);
  table += given;
  if (input.flag()) table += '\0';
  const fuzz::Bytes text(input.rest());
  const fuzz::Bytes exact(table);
  try {
    const CharacterMap map(exact.view(), remove_spaces);
    std::string out;
    map.apply(text.data(), text.size(), out);
    check(out.size() <= text.size() * map.growth(), "the growth of a text by a table");
  } catch (const std::invalid_argument&) {
  }
}

void check_words(const fuzz::Bytes& text) {
  const SpecialMatcher specials({"<s>", "é"});
  const bool is_valid = utf8_valid_prefix(text.data(), text.size()) == text.size();
  for (const WordRule rule : {WordRule::whitespace, WordRule::bert, WordRule::whole}) {
    ByteBuffer marked;
    mark_words(text.data(), text.size(), rule, specials, marked);
    // Bytes of other text may look like marks.
    if (!is_valid) continue;
    size_t length = 0;
    for (size_t at = 0; at < marked.size(); ++at) {
      if (marked.data()[at] == kWordEnd) {
        check(length > 0, "no word is empty");
        length = 0;
      } else if (marked.data()[at] == kSpecialMark) {
        check(length == 0, "a word ends before a special token");
        at += kSpecialMarkBytes - 1;
      } else {
        ++length;
      }
    }
    check(length == 0, "every word ends");
  }
}

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  if (input.flag()) {
    check_character_map(input);
    return 0;
  }
  const std::string_view rest = input.rest();
  const fuzz::Bytes text(rest.substr(0, 1000));
  check_prefix(text);
  check_transcoding<uint8_t>(rest);
  check_transcoding<uint16_t>(rest);
  check_transcoding<uint32_t>(rest);
  check_normalization(text);
  check_words(text);
  return 0;
}
