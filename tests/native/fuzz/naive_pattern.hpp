// Split patterns by backtracking: the oracle of the automata.
#pragma once

#include <set>

#include "fuzz.hpp"
#include "pattern_automaton.hpp"

namespace fuzz {

struct PatternParts {
  bpe::PatternCode code;
  std::vector<bpe::PatternScout> scouts;
  bpe::SetMatrix sets;
  std::shared_ptr<const bpe::CharacterClasses> classes;
  bool of_bytes = false;

  std::shared_ptr<const bpe::PatternStep> step() const {
    return std::make_shared<bpe::PatternStep>(*classes, sets, code, scouts, of_bytes);
  }
};

// One step of a chain on one chunk, in characters.
class NaiveStep {
 public:
  NaiveStep(const PatternParts& parts, std::string_view text) : parts_(parts) {
    const auto* const bytes = reinterpret_cast<const uint8_t*>(text.data());
    const bpe::CharacterClasses& classes = *parts.classes;
    edge_ = classes.size();
    for (size_t at = 0; at < text.size();) {
      const bpe::DecodedCharacter character = parts.of_bytes
                                                  ? bpe::DecodedCharacter{bytes[at], 1}
                                                  : bpe::decode_utf8(bytes + at, text.size() - at);
      begins_.push_back(at);
      columns_.push_back(classes.of(character.code_point));
      at += character.size;
    }
    begins_.push_back(text.size());
    for (const bpe::PatternScout& scout : parts.scouts) found_.push_back(scout_places(scout));
  }

  // Offsets at which the chunk is cut, its own edges included.
  std::set<size_t> cuts() {
    const size_t n = columns_.size();
    std::set<size_t> cuts = {0, begins_[n]};
    for (size_t at = 0, last = 0; at <= n;) {
      failed_.clear();
      const size_t end = match(0, at);
      if (end == kNone || (end == at && at == last)) {
        ++at;
        continue;
      }
      cuts.insert(begins_[at]);
      cuts.insert(begins_[end]);
      last = end;
      at = end == at ? at + 1 : end;
    }
    return cuts;
  }

 private:
  static constexpr size_t kNone = SIZE_MAX;

  size_t column(size_t at) const { return at < columns_.size() ? columns_[at] : edge_; }

  // The end of the match that a backtracking engine finds from this instruction on.
  size_t match(size_t pc, size_t at) {
    for (;;) {
      if (!failed_.emplace(pc, at).second) return kNone;
      const bpe::PatternInstruction& next = parts_.code[pc];
      switch (next.op) {
        case bpe::PatternInstruction::match:
          return at;
        case bpe::PatternInstruction::character:
          if (at == columns_.size() || !parts_.sets.contains(next.first, columns_[at])) {
            return kNone;
          }
          ++at;
          ++pc;
          break;
        case bpe::PatternInstruction::split: {
          const size_t end = match(static_cast<size_t>(next.first), at);
          if (end != kNone) return end;
          pc = static_cast<size_t>(next.second);
          break;
        }
        case bpe::PatternInstruction::jump:
          pc = static_cast<size_t>(next.first);
          break;
        case bpe::PatternInstruction::next:
          if (!parts_.sets.contains(next.first, column(at))) return kNone;
          ++pc;
          break;
        case bpe::PatternInstruction::previous:
          if (!parts_.sets.contains(next.first, at == 0 ? edge_ : columns_[at - 1])) return kNone;
          ++pc;
          break;
        default:
          if (found_[static_cast<size_t>(next.first)].contains(at) != (next.second != 0)) {
            return kNone;
          }
          ++pc;
      }
    }
  }

  // Places at which a match of the scout ends that begins at the edge from which it reads.
  std::set<size_t> scout_places(const bpe::PatternScout& scout) const {
    const size_t n = columns_.size();
    const auto place = [&](size_t read) { return scout.ahead ? n - read : read; };
    const auto column_of = [&](size_t read) {  // of the character that is read next
      return read == n ? edge_ : columns_[scout.ahead ? n - 1 - read : read];
    };
    std::set<size_t> places;
    std::set<std::pair<size_t, size_t>> seen;
    std::vector<std::pair<size_t, size_t>> todo = {{0, 0}};
    while (!todo.empty()) {
      const auto [pc, read] = todo.back();
      todo.pop_back();
      if (!seen.emplace(pc, read).second) continue;
      const bpe::PatternInstruction& next = scout.code[pc];
      switch (next.op) {
        case bpe::PatternInstruction::match:
          places.insert(place(read));
          break;
        case bpe::PatternInstruction::character:
          if (read < n && parts_.sets.contains(next.first, column_of(read))) {
            todo.emplace_back(pc + 1, read + 1);
          }
          break;
        case bpe::PatternInstruction::split:
          todo.emplace_back(next.second, read);
          [[fallthrough]];
        case bpe::PatternInstruction::jump:
          todo.emplace_back(next.first, read);
          break;
        case bpe::PatternInstruction::next:
          if (parts_.sets.contains(next.first, column_of(read))) todo.emplace_back(pc + 1, read);
          break;
        case bpe::PatternInstruction::previous:
          if (parts_.sets.contains(next.first, read == 0 ? edge_ : column_of(read - 1))) {
            todo.emplace_back(pc + 1, read);
          }
          break;
        default:
          check(false, "scouts have no scouts");
      }
    }
    return places;
  }

  const PatternParts& parts_;
  size_t edge_;
  std::vector<size_t> begins_;
  std::vector<size_t> columns_;  // of the characters: their classes
  std::vector<std::set<size_t>> found_;
  std::set<std::pair<size_t, size_t>> failed_;
};

inline Ends naive_ends(const std::vector<PatternParts>& chain, std::string_view text) {
  std::set<size_t> cuts = {0, text.size()};
  for (const PatternParts& parts : chain) {
    const std::vector<size_t> edges(cuts.begin(), cuts.end());
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      NaiveStep step(parts, text.substr(edges[i], edges[i + 1] - edges[i]));
      for (const size_t place : step.cuts()) cuts.insert(edges[i] + place);
    }
  }
  cuts.erase(0);
  return Ends(cuts.begin(), cuts.end());
}

// Compares all ways to split a text; `chain` made the splitter.
inline void compare_splitter(const std::shared_ptr<const bpe::PatternSplitter>& splitter,
                             const std::vector<PatternParts>& chain, std::string_view text) {
  const Bytes bytes(text);
  const bpe::Scanner scanner(splitter);
  const Ends ends = cut(scanner, bytes.data(), bytes.size());
  check(ends == naive_ends(chain, text), "a splitter equals a backtracking engine");
  check(cut(scanner, bytes.data(), bytes.size(), 1 + text.size() % 5) == ends,
        "the number of ends of a call changes nothing");
  // Where a text may be cut, both parts together have its pre-tokens.
  size_t tried = 0;
  uint32_t previous = bpe::kInvalidCodePoint;
  for (size_t at = 0; at < bytes.size() && tried < 4;) {
    const bpe::DecodedCharacter next = bpe::decode_utf8(bytes.data() + at, bytes.size() - at);
    if (previous < bpe::kInvalidCodePoint && next.code_point != bpe::kInvalidCodePoint &&
        splitter->may_cut(previous, next.code_point)) {
      ++tried;
      const Bytes left(text.substr(0, at));
      const Bytes right(text.substr(at));
      Ends parts = cut(scanner, left.data(), left.size());
      for (const size_t end : cut(scanner, right.data(), right.size())) parts.push_back(at + end);
      check(parts == ends, "both sides of a cut have the pre-tokens of the text");
    }
    previous = next.code_point;
    at += next.size;
  }
}

}  // namespace fuzz
