#include "pattern_automaton.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "utf8.hpp"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace bpe {
namespace {

constexpr size_t kMostStates = 4096;
constexpr size_t kMostCells = size_t{1} << 22;
constexpr size_t kMostVisits = size_t{1} << 27;  // of places in the program, in all
constexpr size_t kNone = SIZE_MAX;
constexpr size_t kFar = 128;  // bytes that may be read in vain at each place

// Of the places that a search for a match reads, those by which it is compared with others.
bool is_compared(size_t before, size_t place) { return before / 64 != place / 64; }
uint64_t overrun_key(size_t place, uint32_t state) { return place * kMostStates + state; }

// Rows of the loop's table are numbered by offsets into it; the lower bits are for flags.
constexpr uint32_t kRowSize = 128;
constexpr uint32_t kCut = 1;     // a piece ends before the character, another begins
constexpr uint32_t kRecord = 2;  // a match may have ended there, or begins where it may fail
constexpr uint32_t kLeave = 4;   // the loop can't decide
constexpr uint32_t kSkip = 8;    // a gap, in which a run of bytes may be skipped

// Makes an automaton of a program.
class Determinizer {
 public:
  Determinizer(const PatternCode& code, const SetMatrix& sets, size_t scouts, bool any_match)
      : code_(code),
        sets_(sets),
        symbols_(sets.columns << scouts),
        any_match_(any_match),
        visited_(code.size(), 0) {
    find_signatures();
    find_dependent_places();
  }

  void run() {
    numbers_.emplace(std::vector<uint32_t>(), Automaton::kDead);
    lists_.emplace_back();
    const std::vector<uint32_t> begin = {0};
    for (uint32_t signature = 0; signature < representative_.size(); ++signature) {
      starts.push_back(number_of(begin, signature));
    }
    table.assign(symbols_, 0);
    for (size_t state = 1; state < lists_.size(); ++state) {
      for (size_t symbol = 0; symbol < symbols_; ++symbol) table.push_back(step(state, symbol));
    }
  }

  std::vector<uint32_t> table;
  std::vector<uint32_t> starts;
  std::vector<uint8_t> signature_of_column;
  size_t symbols() const { return symbols_; }

 private:
  using Op = PatternInstruction::Op;

  // Columns that no condition on the character before tells apart have one signature.
  void find_signatures() {
    std::map<std::vector<bool>, uint8_t> numbers;
    for (size_t column = 0; column < sets_.columns; ++column) {
      std::vector<bool> signature;
      for (const PatternInstruction& instruction : code_) {
        if (instruction.op == Op::previous) {
          signature.push_back(sets_.contains(instruction.first, column));
        }
      }
      const auto [found, is_new] =
          numbers.emplace(std::move(signature), static_cast<uint8_t>(numbers.size()));
      if (is_new) representative_.push_back(column);
      signature_of_column.push_back(found->second);
    }
  }

  // Places from which such a condition is reached without reading a character.
  void find_dependent_places() {
    depends_.assign(code_.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t at = code_.size(); at-- > 0;) {
        if (depends_[at]) continue;
        const PatternInstruction& instruction = code_[at];
        bool depends = instruction.op == Op::previous;
        if (instruction.op == Op::jump) depends = depends_[static_cast<size_t>(instruction.first)];
        if (instruction.op == Op::split) {
          depends = depends_[static_cast<size_t>(instruction.first)] ||
                    depends_[static_cast<size_t>(instruction.second)];
        }
        if (instruction.op == Op::next || instruction.op == Op::scout) depends = depends_[at + 1];
        if (depends) changed = depends_[at] = true;
      }
    }
  }

  uint32_t number_of(std::vector<uint32_t> list, uint32_t signature) {
    if (list.empty()) return Automaton::kDead;
    // Where matches begin, all states must know the character before: one begins after each.
    const bool depends = depends_[0] || std::any_of(list.begin(), list.end(),
                                                    [&](uint32_t at) { return depends_[at]; });
    list.push_back(depends ? signature : 0);
    const auto [found, is_new] =
        numbers_.emplace(std::move(list), static_cast<uint32_t>(lists_.size()));
    if (is_new) {
      if (lists_.size() == kMostStates || lists_.size() * symbols_ > kMostCells) {
        throw std::length_error("more than " + std::to_string(lists_.size()) + " states");
      }
      lists_.push_back(&found->first);
    }
    return found->second;
  }

  uint32_t step(size_t state, size_t symbol) {
    const size_t column = symbol % sets_.columns;
    const size_t found = symbol / sets_.columns;
    const std::vector<uint32_t>& list = *lists_[state];
    const size_t before = representative_[list.back()];
    ++round_;
    bool matched = false;
    std::vector<uint32_t> next;
    std::vector<uint32_t> todo;
    for (size_t i = 0; i + 1 < list.size(); ++i) {
      todo.push_back(list[i]);
      while (!todo.empty()) {
        const uint32_t at = todo.back();
        todo.pop_back();
        if (visited_[at] == round_) continue;
        visited_[at] = round_;
        if (++visits_ > kMostVisits) throw std::length_error("too many ways to match");
        const PatternInstruction& instruction = code_[at];
        switch (instruction.op) {
          case Op::character:
            if (sets_.contains(instruction.first, column) && column + 1 < sets_.columns) {
              next.push_back(at + 1);
            }
            break;
          case Op::split:
            todo.push_back(static_cast<uint32_t>(instruction.second));
            todo.push_back(static_cast<uint32_t>(instruction.first));
            break;
          case Op::jump:
            todo.push_back(static_cast<uint32_t>(instruction.first));
            break;
          case Op::match:
            matched = true;
            if (!any_match_) {
              todo.clear();
              i = list.size();
            }
            break;
          case Op::next:
            if (sets_.contains(instruction.first, column)) todo.push_back(at + 1);
            break;
          case Op::previous:
            if (sets_.contains(instruction.first, before)) todo.push_back(at + 1);
            break;
          case Op::scout:
            if (static_cast<int32_t>(found >> instruction.first & 1) == instruction.second) {
              todo.push_back(at + 1);
            }
            break;
        }
      }
    }
    if (any_match_) std::sort(next.begin(), next.end());
    const uint32_t number = number_of(std::move(next), signature_of_column[column]);
    return number << 1 | (matched ? 1 : 0);
  }

  const PatternCode& code_;
  const SetMatrix& sets_;
  size_t symbols_;
  bool any_match_;
  std::vector<uint32_t> visited_;
  uint32_t round_ = 0;
  size_t visits_ = 0;
  std::vector<size_t> representative_;  // a column of each signature
  std::vector<bool> depends_;
  // Lists of places that follow a character, in order; the last entry is the signature.
  std::map<std::vector<uint32_t>, uint32_t> numbers_;
  std::vector<const std::vector<uint32_t>*> lists_;
};

}  // namespace

CharacterClasses::CharacterClasses(const std::vector<uint32_t>& starts,
                                   const std::vector<uint8_t>& classes)
    : starts_(starts) {
  if (starts.empty() || starts[0] != 0 || classes.size() != starts.size() ||
      !std::is_sorted(starts.begin(), starts.end()) || starts.back() >= kCodePoints) {
    throw std::invalid_argument("ranges of classes must ascend from 0");
  }
  std::map<std::array<uint8_t, kBlock>, uint16_t> numbers;
  size_t range = 0;
  for (uint32_t first = 0; first < kCodePoints; first += kBlock) {
    std::array<uint8_t, kBlock> block;
    for (uint32_t i = 0; i < kBlock; ++i) {
      while (range + 1 < starts.size() && starts[range + 1] <= first + i) ++range;
      block[i] = classes[range];
    }
    const auto [found, is_new] = numbers.emplace(block, static_cast<uint16_t>(numbers.size()));
    if (is_new) blocks_.insert(blocks_.end(), block.begin(), block.end());
    numbers_.push_back(found->second);
  }
  size_ = size_t{*std::max_element(classes.begin(), classes.end())} + 1;
}

Automaton::Automaton(const PatternCode& code, const SetMatrix& sets, size_t scouts,
                     bool any_match) {
  const auto is_place = [&](int32_t at) {
    return at >= 0 && static_cast<size_t>(at) < code.size();
  };
  const auto num_sets = static_cast<int32_t>(sets.cells.size() / sets.columns);
  if (code.empty() || code.back().op != PatternInstruction::match) {
    throw std::invalid_argument("a program must end with a match");
  }
  for (const PatternInstruction& instruction : code) {
    const bool jumps =
        instruction.op == PatternInstruction::split || instruction.op == PatternInstruction::jump;
    const bool reads = instruction.op == PatternInstruction::character ||
                       instruction.op == PatternInstruction::next ||
                       instruction.op == PatternInstruction::previous;
    if (instruction.op < 0 || instruction.op > PatternInstruction::scout ||
        (jumps && (!is_place(instruction.first) || !is_place(instruction.second))) ||
        (reads && (instruction.first < 0 || instruction.first >= num_sets)) ||
        (instruction.op == PatternInstruction::scout &&
         (instruction.first < 0 || static_cast<size_t>(instruction.first) >= scouts))) {
      throw std::invalid_argument("an instruction of the program is out of range");
    }
  }
  Determinizer determinizer(code, sets, scouts, any_match);
  determinizer.run();
  symbols_ = determinizer.symbols();
  table_ = std::move(determinizer.table);
  starts_ = std::move(determinizer.starts);
  signature_of_column_ = std::move(determinizer.signature_of_column);
}

PatternStep::PatternStep(CharacterClasses classes, SetMatrix sets, const PatternCode& code,
                         const std::vector<PatternScout>& scouts, bool of_bytes)
    : classes_(std::move(classes)),
      of_bytes_(of_bytes),
      edge_(classes_.size()),
      automaton_(code, sets, scouts.size(), false) {
  for (const PatternScout& scout : scouts) {
    scouts_.push_back({scout.ahead, Automaton(scout.code, sets, 0, true)});
  }
  find_failing();
  find_cuts();
  if (scouts_.empty()) build_rows();
}

void PatternStep::find_failing() {
  const size_t states = automaton_.states();
  // A state may fail if some text leads from it to the dead state without another match.
  may_fail_.assign(states, false);
  for (bool changed = true; changed;) {
    changed = false;
    for (uint32_t state = 1; state < states; ++state) {
      if (may_fail_[state]) continue;
      for (size_t symbol = 0; symbol < automaton_.symbols(); ++symbol) {
        const Automaton::Entry entry = automaton_.entry(state, symbol);
        if (entry.matched || (entry.next != Automaton::kDead && !may_fail_[entry.next])) continue;
        changed = may_fail_[state] = true;
        break;
      }
    }
  }
  matches_everything_ = true;
  for (size_t before = 0; before <= edge_; ++before) {
    for (size_t symbol = 0; symbol < automaton_.symbols(); ++symbol) {
      if (symbol % (edge_ + 1) == edge_) continue;
      const uint32_t next = automaton_.entry(automaton_.start_after(before), symbol).next;
      if (next == Automaton::kDead || may_fail_[next]) matches_everything_ = false;
    }
  }
}

void PatternStep::build_rows() {
  const size_t states = automaton_.states();
  const size_t columns = edge_ + 1;
  const auto start_after = [&](size_t column) { return automaton_.start_after(column); };
  std::vector<bool> is_start(states, false);
  for (size_t column = 0; column < columns; ++column) is_start[start_after(column)] = true;
  // The last character that was read, of a state in which that matters.
  std::vector<size_t> before_state(states, edge_);
  for (uint32_t state = 0; state < states; ++state) {
    for (size_t column = 0; column < edge_; ++column) {
      before_state[automaton_.entry(state, column).next] = column;
    }
  }
  for (size_t column = 0; column < columns; ++column) before_state[start_after(column)] = column;
  const auto row_of = [](size_t number) { return static_cast<uint32_t>(number) * kRowSize; };
  const auto gap_after = [&](size_t column) {
    return row_of(states + automaton_.signature(column));
  };
  const auto entry_of_state = [&](uint32_t state, size_t column) {
    const Automaton::Entry entry = automaton_.entry(state, column);
    if (entry.next != Automaton::kDead) {
      return row_of(entry.next) | (entry.matched && may_fail_[entry.next] ? kRecord : 0);
    }
    if (!entry.matched || is_start[state]) return kLeave;
    const uint32_t next = automaton_.entry(start_after(before_state[state]), column).next;
    if (next == Automaton::kDead) return gap_after(column) | kCut | kSkip;
    return row_of(next) | kCut | (may_fail_[next] ? kRecord : 0);
  };
  const auto entry_of_gap = [&](size_t signature, size_t column) {
    const Automaton::Entry entry = automaton_.entry(automaton_.start_with(signature), column);
    if (entry.matched) return kLeave;
    if (entry.next == Automaton::kDead) return gap_after(column);
    return may_fail_[entry.next] ? kLeave : row_of(entry.next) | kCut;
  };
  for (size_t row = 0; row < states + automaton_.signatures(); ++row) {
    for (size_t column = 0; column < columns; ++column) {
      class_rows_.push_back(row < states ? entry_of_state(static_cast<uint32_t>(row), column)
                                         : entry_of_gap(row - states, column));
    }
    for (uint32_t byte = 0; byte < kRowSize; ++byte) {
      const uint32_t entry =
          class_rows_[row * columns + classes_.of_ascii(static_cast<uint8_t>(byte))];
      ascii_rows_.push_back(row >= states && entry == row_of(row) ? entry | kSkip : entry);
    }
    if (row >= states) add_gap_stops(row_of(row));
  }
}

void PatternStep::add_gap_stops(uint32_t row) {
  GapStops stops = {{0xFF, 0xFF}, {0, 0}};  // what is not ASCII stops anyway
  size_t ranges = 0;
  bool was_stop = false;
  for (uint32_t byte = 0; byte < kRowSize; ++byte) {
    const bool is_stop = ascii_rows_[row | byte] != (row | kSkip);
    if (is_stop && !was_stop && ranges++ < 2) {
      stops.first[ranges - 1] = static_cast<uint8_t>(byte);
      stops.span[ranges - 1] = 0;
    } else if (is_stop && ranges <= 2) {
      ++stops.span[ranges - 1];
    }
    was_stop = is_stop;
  }
  if (ranges > 2) stops = {{0, 0xFF}, {0x7F, 0}};  // every byte stops
  gap_stops_.push_back(stops);
}

// The end of a run of bytes that leave the row of a gap as it is.
size_t PatternStep::skip_gap(const uint8_t* text, size_t size, size_t at, uint32_t row) const {
#if defined(__x86_64__)
  const GapStops& stops = gap_stops_[row / kRowSize - automaton_.states()];
  const auto all = [](uint8_t byte) { return _mm_set1_epi8(static_cast<char>(byte)); };
  for (; size - at >= 16; at += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + at));
    __m128i is_stop = bytes;  // by its highest bit
    for (size_t i = 0; i < 2; ++i) {
      const __m128i distance = _mm_sub_epi8(bytes, all(stops.first[i]));
      is_stop = _mm_or_si128(is_stop,
                             _mm_cmpeq_epi8(_mm_min_epu8(distance, all(stops.span[i])), distance));
    }
    const int mask = _mm_movemask_epi8(is_stop);
    if (mask != 0) return at + static_cast<size_t>(__builtin_ctz(static_cast<unsigned>(mask)));
  }
#endif
  while (at < size && text[at] < 0x80 && ascii_rows_[row | text[at]] == (row | kSkip)) ++at;
  return at;
}

// What the scouts find between the two, in the whole text and where it ends or begins there. False
// if what they find elsewhere, or there, depends on more than the two.
bool PatternStep::find_between(size_t previous, size_t next, FoundBetween& found) const {
  found = {};
  for (size_t i = 0; i < scouts_.size(); ++i) {
    const Automaton& automaton = scouts_[i].automaton;
    // A scout that looks ahead reads the text backwards.
    const size_t first = scouts_[i].ahead ? next : previous;
    const size_t second = scouts_[i].ahead ? previous : next;
    const uint32_t start = automaton.start_after(edge_);
    const Automaton::Entry fresh = automaton.entry(start, second);
    std::set<uint32_t> reached;
    for (uint32_t state = 1; state < automaton.states(); ++state) {
      reached.insert(automaton.entry(state, first).next);
    }
    bool in_whole = false;
    bool at_edge = false;
    bool is_first = true;
    for (uint32_t state : reached) {
      const Automaton::Entry read = automaton.entry(state, second);
      const Automaton::Entry ended = automaton.entry(state, edge_);
      if (read.next != fresh.next) return false;
      if (!is_first && (read.matched != in_whole || ended.matched != at_edge)) return false;
      in_whole = read.matched;
      at_edge = ended.matched;
      is_first = false;
    }
    // After the first character at an edge, and before the second at the other.
    const bool first_at_edge = at_edge;
    const bool second_at_edge = fresh.matched;
    found.in_whole |= static_cast<size_t>(in_whole) << i;
    found.at_end |= static_cast<size_t>(scouts_[i].ahead ? second_at_edge : first_at_edge) << i;
    found.at_start |= static_cast<size_t>(scouts_[i].ahead ? first_at_edge : second_at_edge) << i;
  }
  return true;
}

void PatternStep::find_cuts() {
  restarts_.assign(edge_ * edge_, 0);
  cuts_.assign(edge_ * edge_, 0);
  const size_t columns = edge_ + 1;
  const uint32_t states = static_cast<uint32_t>(automaton_.states());
  const auto start_after = [&](size_t column) { return automaton_.start_after(column); };
  for (size_t previous = 0; previous < edge_; ++previous) {
    std::set<uint32_t> reached;
    bool is_matched = true;  // no character of this class is in a gap
    for (size_t symbol = previous; symbol < automaton_.symbols(); symbol += columns) {
      for (uint32_t state = 1; state < states; ++state) {
        reached.insert(automaton_.entry(state, symbol).next);
      }
      for (size_t before = 0; before <= edge_; ++before) {
        is_matched &= automaton_.entry(start_after(before), symbol).next != Automaton::kDead;
      }
    }
    reached.erase(Automaton::kDead);
    for (size_t next = 0; next < edge_; ++next) {
      FoundBetween found;
      if (!find_between(previous, next, found)) continue;
      const size_t symbol = next + columns * found.in_whole;
      const Automaton::Entry begun = automaton_.entry(start_after(previous), symbol);
      bool restarts =
          begun == automaton_.entry(start_after(edge_), next + columns * found.at_start);
      bool ends = is_matched;
      for (uint32_t state : reached) {
        const Automaton::Entry entry = automaton_.entry(state, symbol);
        const Automaton::Entry ended = automaton_.entry(state, edge_ + columns * found.at_end);
        restarts &= entry.next == Automaton::kDead && entry.matched == ended.matched;
        ends &= entry.matched;
      }
      // In a gap, an empty match would be a cut in the whole, but not at an edge.
      restarts &= !begun.matched;
      const bool begins = begun.next != Automaton::kDead && !may_fail_[begun.next];
      restarts_[previous * edge_ + next] = restarts;
      cuts_[previous * edge_ + next] = restarts && (ends || begins);
    }
  }
}

std::array<uint8_t, 2> PatternStep::classes_of(uint32_t code_point) const {
  if (!of_bytes_) return {classes_.of(code_point), classes_.of(code_point)};
  uint8_t bytes[4];
  const size_t size = encode_utf8(code_point, bytes);
  return {classes_.of(bytes[0]), classes_.of(bytes[size - 1])};
}

bool PatternStep::restarts_between(uint32_t previous, uint32_t next) const {
  return restarts_[classes_of(previous)[1] * edge_ + classes_of(next)[0]] != 0;
}

bool PatternStep::cuts_between(uint32_t previous, uint32_t next) const {
  return cuts_[classes_of(previous)[1] * edge_ + classes_of(next)[0]] != 0;
}

size_t PatternStep::column_before(const uint8_t* text, size_t size, size_t pos) const {
  if (pos == 0) return edge_;
  if (of_bytes_) return classes_.of(text[pos - 1]);
  size_t begin = pos - 1;
  while (begin > 0 && pos - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
  const DecodedCharacter character = decode(text + begin, size - begin);
  return classes_.of(character.size == pos - begin ? character.code_point : kInvalidCodePoint);
}

// The end of the match that begins at `pos`, or kNone.
size_t PatternStep::match_end(const uint8_t* text, size_t size, size_t pos, const uint8_t* found,
                              Overruns& overruns) const {
  size_t end = kNone;
  // Reads the match; returns where it ends to go on, or where reach(at, state) is true.
  const auto read = [&](const auto& reach) {
    uint32_t state = automaton_.start_after(column_before(text, size, pos));
    for (size_t at = pos;;) {
      const DecodedCharacter character =
          at < size ? decode(text + at, size - at) : DecodedCharacter{0, 0};
      const size_t column = at < size ? classes_.of(character.code_point) : edge_;
      const size_t symbol = column + (found != nullptr ? found[at] * (edge_ + 1) : 0);
      const Automaton::Entry entry = automaton_.entry(state, symbol);
      if (entry.matched) end = at;
      if (entry.next == Automaton::kDead) return at;
      state = entry.next;
      const size_t before = at;
      at += character.size;
      if (is_compared(before, at) && reach(at, state)) return at;
    }
  };
  const size_t stop = read([&](size_t at, uint32_t state) {
    return !overruns.hopeless.empty() && overruns.hopeless.contains(overrun_key(at, state));
  });
  const size_t last = end == kNone ? pos : end;
  if (stop - last >= kFar) {
    read([&](size_t at, uint32_t state) {
      if (at > last) overruns.hopeless.insert(overrun_key(at, state));
      return at >= stop;
    });
  }
  return end;
}

size_t PatternStep::scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                         size_t capacity, const uint8_t* found, Overruns& overruns) const {
  if (capacity == 0) return 0;
  return has_scouts() ? scan_matches(text, size, pos, size, ends, capacity, found, overruns)
                      : scan_overruns(text, size, pos, ends, capacity, overruns);
}

// Text that a match has read in vain is read with what is known of that.
size_t PatternStep::scan_overruns(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                                  size_t capacity, Overruns& overruns) const {
  size_t count = 0;
  const auto go_on_behind = [&](size_t found) {
    count += found;
    if (count != 0) pos = ends[count - 1];
    return count < capacity && pos < size;
  };
  for (;;) {
    if (pos < overruns.read_to &&
        !go_on_behind(scan_matches(text, size, pos, overruns.read_to, ends + count,
                                   capacity - count, nullptr, overruns))) {
      return count;
    }
    if (!go_on_behind(scan_rows(text, size, pos, ends + count, capacity - count, overruns)) ||
        pos >= overruns.read_to) {
      return count;
    }
  }
}

// A match begins at `pos`, or a gap. `last` is the last place after it where a match may end. Stops
// where a match has read too far in vain.
size_t PatternStep::scan_rows(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                              size_t capacity, Overruns& overruns) const {
  const uint32_t* const ascii_rows = ascii_rows_.data();
  const uint32_t* const class_rows = class_rows_.data();
  const size_t columns = edge_ + 1;
  const uint32_t first_gap = static_cast<uint32_t>(automaton_.states()) * kRowSize;
  const auto start_row = [&](size_t at) {
    return automaton_.start_after(column_before(text, size, at)) * kRowSize;
  };
  const auto gap_row = [&](uint32_t code_point) {
    return first_gap + automaton_.signature(classes_.of(code_point)) * kRowSize;
  };
  size_t count = 0;
  size_t at = pos;
  size_t last = pos;
  uint32_t row = start_row(pos);
  for (;;) {
    uint32_t entry = 0;
    uint32_t length = 1;
    while (at < size) {
      const uint8_t byte = text[at];
      if (byte < 0x80) [[likely]] {
        entry = ascii_rows[row | byte];
        length = 1;
      } else {
        const DecodedCharacter character = decode(text + at, size - at);
        entry = class_rows[row / kRowSize * columns + classes_.of(character.code_point)];
        length = character.size;
      }
      if ((entry & kLeave) != 0) [[unlikely]]
        break;
      ends[count] = at;
      count += entry & kCut;
      last = (entry & kRecord) != 0 ? at : last;
      if (count == capacity) [[unlikely]]
        return count;
      row = entry & ~(kRowSize - 1);
      at += length;
      if ((entry & kSkip) != 0) at = skip_gap(text, size, at, row);
    }
    if (at >= size) {
      if (at == pos && pos == size) return count;
      const bool is_gap = row >= first_gap;
      if (is_gap || automaton_.entry(row / kRowSize, edge_).matched) {
        ends[count++] = size;
        return count;
      }
    } else if (row >= first_gap) {
      // A match may begin in a gap, if it does not fail.
      const size_t end = match_end(text, size, at, nullptr, overruns);
      if (end != kNone) {
        ends[count++] = at;
        if (count == capacity) return count;
      }
      if (end == kNone || end == at) {
        row = gap_row(decode(text + at, size - at).code_point);
        at += length;
      } else {
        row = start_row(at);
        last = at;
      }
      continue;
    }
    // The match fails here; what it was before counts.
    const size_t begin = count != 0 ? ends[count - 1] : pos;
    if (at - std::max(last, begin) >= kFar) {
      overruns.read_to = at;
      return count;
    }
    if (last > begin) {
      ends[count++] = last;
      if (count == capacity || last == size) return count;
      at = last;
      row = start_row(at);
    } else {
      const DecodedCharacter character = decode(text + begin, size - begin);
      row = gap_row(character.code_point);
      at = begin + character.size;
    }
  }
}

// The same for the pieces that begin before `until`, match by match.
size_t PatternStep::scan_matches(const uint8_t* text, size_t size, size_t pos, size_t until,
                                 size_t* ends, size_t capacity, const uint8_t* found,
                                 Overruns& overruns) const {
  const size_t columns = edge_ + 1;
  size_t count = 0;
  while (pos < until && count < capacity) {
    size_t at = pos;  // of the next match, if that is not empty at once
    size_t end = kNone;
    for (size_t before = column_before(text, size, pos); at < size;) {
      const DecodedCharacter character = decode(text + at, size - at);
      const size_t column = classes_.of(character.code_point);
      const size_t symbol = column + (found != nullptr ? found[at] * columns : 0);
      const Automaton::Entry first = automaton_.entry(automaton_.start_after(before), symbol);
      if (first.matched || first.next != Automaton::kDead) {
        end = match_end(text, size, at, found, overruns);
        if (end != kNone && end != pos) break;
      }
      before = column;
      at += character.size;
    }
    pos = ends[count++] = at > pos ? at : end;
  }
  return count;
}

void PatternStep::send_scouts(const uint8_t* text, size_t size, std::vector<uint8_t>& found) const {
  found.assign(size + 1, 0);
  for (size_t i = 0; i < scouts_.size(); ++i) {
    const Automaton& automaton = scouts_[i].automaton;
    const uint8_t bit = static_cast<uint8_t>(1 << i);
    uint32_t state = automaton.start_after(edge_);
    const auto read = [&](size_t place, size_t column) {
      const Automaton::Entry entry = automaton.entry(state, column);
      if (entry.matched) found[place] |= bit;
      state = entry.next;
    };
    if (!scouts_[i].ahead) {
      for (size_t at = 0; at < size;) {
        const DecodedCharacter character = decode(text + at, size - at);
        read(at, classes_.of(character.code_point));
        at += character.size;
      }
      read(size, edge_);
      continue;
    }
    for (size_t end = size; end > 0;) {
      size_t begin = end - 1;
      if (text[begin] < 0x80) {
        read(end, classes_.of_ascii(text[begin]));
        end = begin;
        continue;
      }
      while (!of_bytes_ && begin > 0 && end - begin < 4 && (text[begin] & 0xC0) == 0x80) --begin;
      const DecodedCharacter character = decode(text + begin, end - begin);
      const bool is_whole = character.size == end - begin;
      read(end, classes_.of(is_whole ? character.code_point : kInvalidCodePoint));
      end = is_whole ? begin : end - 1;
    }
    read(0, edge_);
  }
}

namespace {

// Where a thread is in the segment that it splits by a chain: the chunk of each step.
struct Progress {
  struct Level {
    size_t begin = 0;  // of the chunk
    size_t end = 0;
    size_t pos = 0;  // where the last piece that was handed down ends
    size_t count = 0;
    size_t next = 0;
    std::array<size_t, 128> ends;  // found and not handed down, in the chunk
    std::vector<uint8_t> found;    // by the scouts
    Overruns overruns;
  };

  const void* owner = nullptr;
  const uint8_t* text = nullptr;
  size_t size = 0;
  size_t pos = 0;
  std::vector<Level> levels;
};

thread_local Progress progress_of_thread;

using Steps = std::vector<std::shared_ptr<const PatternStep>>;

void enter_chunk(const Steps& steps, Progress& progress, size_t k, size_t begin, size_t end) {
  Progress::Level& level = progress.levels[k];
  level.begin = level.pos = begin;
  level.end = end;
  level.count = level.next = 0;
  level.overruns.clear();
  if (steps[k]->has_scouts()) {
    steps[k]->send_scouts(progress.text + begin, end - begin, level.found);
  }
}

// The end of the next piece of step k; kNone if there is none.
size_t next_end(const Steps& steps, Progress& progress, size_t k) {
  Progress::Level& level = progress.levels[k];
  while (level.pos == level.end) {
    if (k == 0) return kNone;
    const size_t begin = level.end;
    const size_t end = next_end(steps, progress, k - 1);
    if (end == kNone) return kNone;
    enter_chunk(steps, progress, k, begin, end);
  }
  if (level.next == level.count) {
    level.count = steps[k]->scan(progress.text + level.begin, level.end - level.begin,
                                 level.pos - level.begin, level.ends.data(), level.ends.size(),
                                 level.found.data(), level.overruns);
    level.next = 0;
  }
  level.pos = level.begin + level.ends[level.next++];
  return level.pos;
}

}  // namespace

PatternSplitter::PatternSplitter(std::vector<std::shared_ptr<const PatternStep>> steps)
    : steps_(std::move(steps)), has_cuts_(false) {
  if (steps_.empty()) throw std::invalid_argument("a chain must have a step");
  has_cuts_ = find_any_cut();
}

size_t PatternSplitter::scan(const uint8_t* text, size_t size, size_t pos, size_t* ends,
                             size_t capacity) const {
  Progress& progress = progress_of_thread;
  // Its pieces need not be kept: they are found in the text itself.
  const bool is_single = steps_.size() == 1 && !steps_[0]->has_scouts();
  const bool goes_on = pos != 0 && progress.owner == this && progress.text == text &&
                       progress.size == size &&
                       (is_single ? progress.pos == pos : progress.pos <= pos);
  if (!goes_on) {
    progress.owner = this;
    progress.text = text;
    progress.size = size;
    progress.pos = 0;
    progress.levels.resize(steps_.size());
    for (Progress::Level& level : progress.levels) {
      level.begin = level.end = level.pos = level.count = level.next = 0;
    }
    enter_chunk(steps_, progress, 0, 0, size);
  }
  size_t count = 0;
  Progress::Level& last = progress.levels.back();
  if (is_single) {
    count = steps_[0]->scan(text, size, pos, ends, capacity, nullptr, last.overruns);
    progress.pos = count != 0 ? ends[count - 1] : pos;
  }
  while (!is_single && count < capacity && progress.pos < size) {
    progress.pos = next_end(steps_, progress, steps_.size() - 1);
    if (progress.pos > pos) ends[count++] = progress.pos;
    // Those that were found with it.
    const size_t more = std::min(last.count - last.next, capacity - count);
    if (more == 0 || progress.pos < pos) continue;
    for (size_t i = 0; i < more; ++i) ends[count + i] = last.begin + last.ends[last.next + i];
    last.next += more;
    count += more;
    progress.pos = last.pos = ends[count - 1];
  }
  if (progress.pos == size) {
    progress.owner = nullptr;
    // The bits of a long segment take as much memory as its text.
    for (Progress::Level& level : progress.levels) {
      level.overruns.clear();
      if (level.found.capacity() > (size_t{1} << 20)) std::vector<uint8_t>().swap(level.found);
    }
  }
  return count;
}

bool PatternSplitter::may_cut(uint32_t previous, uint32_t next) const {
  for (const auto& step : steps_) {
    if (step->cuts_between(previous, next)) return true;
    if (!step->restarts_between(previous, next)) return false;
  }
  return false;
}

// Whether there is such a pair: characters that are in the same classes are alike.
bool PatternSplitter::find_any_cut() const {
  std::map<std::string, uint32_t> representatives;
  for (const auto& ranges : steps_) {
    for (uint32_t code_point : ranges->classes().starts()) {
      std::string classes;
      for (const auto& step : steps_) {
        for (uint8_t part : step->classes_of(code_point))
          classes.push_back(static_cast<char>(part));
      }
      representatives.emplace(std::move(classes), code_point);
    }
  }
  for (const auto& [left_classes, left] : representatives) {
    for (const auto& [right_classes, right] : representatives) {
      if (may_cut(left, right)) return true;
    }
  }
  return false;
}

}  // namespace bpe
