// Split patterns as automata over classes of characters.
//
// A program (bpe_core/split_patterns/program.py) becomes a deterministic automaton whose matches
// are those of a backtracking engine: its states are ordered lists of places in the program, and a
// match drops the places of lower priority behind it. Conditions on the next character are decided
// when it is read, so a match is known one character late: an entry of the table is the next state,
// and whether a match ends before the character.
//
// Long look-around is found out beforehand, by an automaton for each that reads the whole segment
// (look-ahead backwards): a bit for each place, which the main automaton reads with the character.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_set>
#include <vector>

#include "splitter.hpp"
#include "utf8.hpp"

namespace bpe {

struct PatternInstruction {
  enum Op : int32_t { character, split, jump, match, next, previous, scout };
  int32_t op;
  int32_t first;
  int32_t second;
};
using PatternCode = std::vector<PatternInstruction>;

// The class of each character.
class CharacterClasses {
 public:
  // Range i has class classes[i] and ends where the next begins; the first begins at 0.
  CharacterClasses(const std::vector<uint32_t>& starts, const std::vector<uint8_t>& classes);

  size_t size() const { return size_; }
  const std::vector<uint32_t>& starts() const { return starts_; }
  uint8_t of_ascii(uint8_t byte) const { return blocks_[byte]; }
  // A byte that is not UTF-8 is like an unassigned character.
  uint8_t of(uint32_t code_point) const {
    if (code_point >= kCodePoints) code_point = kCodePoints - 1;
    return blocks_[numbers_[code_point / kBlock] * kBlock + code_point % kBlock];
  }

 private:
  static constexpr uint32_t kCodePoints = 0x110000;
  static constexpr size_t kBlock = 128;

  size_t size_ = 0;
  std::vector<uint32_t> starts_;
  std::vector<uint16_t> numbers_;
  std::vector<uint8_t> blocks_;  // that of ASCII is the first
};

// For each set of a program and each class, whether the class is in the set; the last column says
// so of the edge of the text.
struct SetMatrix {
  std::vector<uint8_t> cells;
  size_t columns;
  bool contains(int32_t set, size_t column) const {
    return cells[static_cast<size_t>(set) * columns + column] != 0;
  }
};

// States and symbols. A symbol is a class or the edge, times what the scouts found.
class Automaton {
 public:
  static constexpr uint32_t kDead = 0;

  struct Entry {
    uint32_t next;
    bool matched;  // a match ends before the symbol
    bool operator==(const Entry&) const = default;
  };

  // With any_match, for scouts: all matches count, whatever their priority. std::length_error for
  // more states than are reasonable.
  Automaton(const PatternCode& code, const SetMatrix& sets, size_t scouts, bool any_match);

  Entry entry(uint32_t state, size_t symbol) const {
    const uint32_t packed = table_[state * symbols_ + symbol];
    return {packed >> 1, (packed & 1) != 0};
  }
  // The state in which a match begins after a character of this class (or after the edge).
  uint32_t start_after(size_t column) const { return starts_[signature_of_column_[column]]; }
  // The number of that state among the states in which matches begin.
  uint8_t signature(size_t column) const { return signature_of_column_[column]; }
  size_t signatures() const { return starts_.size(); }
  uint32_t start_with(size_t signature) const { return starts_[signature]; }
  size_t states() const { return table_.size() / symbols_; }
  size_t symbols() const { return symbols_; }

 private:
  size_t symbols_;
  std::vector<uint32_t> table_;
  std::vector<uint32_t> starts_;              // by signature
  std::vector<uint8_t> signature_of_column_;  // by what conditions on the character before ask
};

struct PatternScout {
  bool ahead;
  PatternCode code;
};

// Facts of a text in which a match was sought far ahead in vain. Without them, a+b would read text
// such as aaaa to its end from each position.
struct Overruns {
  size_t read_to = 0;                     // by a search that went too far
  std::unordered_set<uint64_t> hopeless;  // places and states in which no match ends any more

  void clear() {
    read_to = 0;
    if (!hopeless.empty()) hopeless = {};
  }
};

// One pattern: its classes and automata, and what follows from them.
class PatternStep {
 public:
  struct DirectedScout {
    bool ahead;
    Automaton automaton;
  };

  // of_bytes: the characters of the classes, and of the pattern, are bytes.
  PatternStep(CharacterClasses classes, SetMatrix sets, const PatternCode& code,
              const std::vector<PatternScout>& scouts, bool of_bytes);

  // As Splitter::scan, for a chunk, at whose beginning `overruns` is clear. With scouts, `found` is
  // what `send_scouts` wrote.
  size_t scan(const uint8_t* text, size_t size, size_t pos, size_t* ends, size_t capacity,
              const uint8_t* found, Overruns& overruns) const;

  bool has_scouts() const { return !scouts_.empty(); }
  // Writes for each place 0 … size what the scouts find there.
  void send_scouts(const uint8_t* text, size_t size, std::vector<uint8_t>& found) const;

  // Returns true if matches cover every text without gaps.
  bool matches_everything() const { return matches_everything_; }
  // Returns true if, wherever the two are adjacent, no match contains both and none depends on text
  // beyond: text may be split there for this step.
  bool restarts_between(uint32_t previous, uint32_t next) const;
  // The same, and one piece ends there.
  bool cuts_between(uint32_t previous, uint32_t next) const;

  size_t states() const { return automaton_.states(); }
  const Automaton& automaton() const { return automaton_; }
  const std::vector<DirectedScout>& scouts() const { return scouts_; }
  const CharacterClasses& classes() const { return classes_; }
  // The classes of a character's first and last parts, which are the character or its bytes.
  std::array<uint8_t, 2> classes_of(uint32_t code_point) const;

 private:
  // Findings of the scouts at a position, as bits: in the complete text, or at an edge of a part.
  struct FoundBetween {
    size_t in_whole = 0;
    size_t at_end = 0;    // of the part before
    size_t at_start = 0;  // of the part behind
  };

  void find_failing();
  void find_cuts();
  bool find_between(size_t previous, size_t next, FoundBetween& found) const;
  void build_rows();
  void add_gap_stops(uint32_t row);
  DecodedCharacter decode(const uint8_t* text, size_t size) const {
    return of_bytes_ ? DecodedCharacter{*text, 1} : decode_utf8(text, size);
  }
  size_t column_before(const uint8_t* text, size_t size, size_t pos) const;
  size_t match_end(const uint8_t* text, size_t size, size_t pos, const uint8_t* found,
                   Overruns& overruns) const;
  size_t scan_overruns(const uint8_t* text, size_t size, size_t pos, size_t* ends, size_t capacity,
                       Overruns& overruns) const;
  size_t scan_rows(const uint8_t* text, size_t size, size_t pos, size_t* ends, size_t capacity,
                   Overruns& overruns) const;
  size_t scan_matches(const uint8_t* text, size_t size, size_t pos, size_t until, size_t* ends,
                      size_t capacity, const uint8_t* found, Overruns& overruns) const;

  CharacterClasses classes_;
  bool of_bytes_;
  size_t edge_;  // the column of the edge
  Automaton automaton_;
  std::vector<DirectedScout> scouts_;
  std::vector<bool> may_fail_;  // by state: text can follow that ends the match before this place
  bool matches_everything_ = false;

  // Bytes that end a run in a gap: those of these ranges, and all that are not ASCII.
  struct GapStops {
    std::array<uint8_t, 2> first;
    std::array<uint8_t, 2> span;
  };

  size_t skip_gap(const uint8_t* text, size_t size, size_t at, uint32_t row) const;

  // The table of the loop: rows are the states and, for each signature, the gap after such a
  // character. An entry is the next row and what to do before the character; see scan_rows.
  std::vector<uint32_t> ascii_rows_;
  std::vector<uint32_t> class_rows_;
  std::vector<GapStops> gap_stops_;  // by signature
  std::vector<uint8_t> restarts_;    // by pairs of classes
  std::vector<uint8_t> cuts_;
};

// A chain of patterns: each splits the pieces of the one before.
class PatternSplitter : public Splitter {
 public:
  explicit PatternSplitter(std::vector<std::shared_ptr<const PatternStep>> steps);

  size_t scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
              size_t capacity) const override;
  bool may_cut(uint32_t previous, uint32_t next) const override;
  bool has_cuts() const override { return has_cuts_; }

 private:
  bool find_any_cut() const;

  std::vector<std::shared_ptr<const PatternStep>> steps_;
  bool has_cuts_;
};

}  // namespace bpe
