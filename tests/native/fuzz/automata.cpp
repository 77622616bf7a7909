// Automata of random patterns equal a backtracking engine. The input: a length and the pattern, as
// bytes from which a small syntax tree is made, then the text over few classes of characters.
#include "naive_pattern.hpp"

using namespace bpe;

namespace {

// Classes: a, b, space, line break, other ASCII, beyond ASCII.
const auto kClasses = std::make_shared<const CharacterClasses>(
    std::vector<uint32_t>{0, 0x0A, 0x0B, 0x20, 0x21, 0x61, 0x62, 0x63, 0x80},
    std::vector<uint8_t>{4, 3, 4, 2, 4, 0, 1, 4, 5});
constexpr uint8_t kNumClasses = 6;
constexpr int kMostDepth = 4;
constexpr size_t kMostCode = 60;

class Assembler {
 public:
  explicit Assembler(fuzz::PatternParts& parts, fuzz::Input& input)
      : parts_(parts), input_(input), code_(&parts.code) {}

  void assemble() {
    add(0);
    emit(PatternInstruction::match);
  }

 private:
  size_t emit(int32_t op, int32_t first = 0, int32_t second = 0) {
    code_->push_back({op, first, second});
    return code_->size() - 1;
  }
  int32_t here() const { return static_cast<int32_t>(code_->size()); }

  // A set of classes, by its bits; the last is the edge.
  int32_t set_of(uint8_t bits) {
    for (size_t column = 0; column <= kNumClasses; ++column) {
      parts_.sets.cells.push_back(bits >> column & 1);
    }
    return static_cast<int32_t>(parts_.sets.cells.size() / (kNumClasses + 1) - 1);
  }
  void character(uint8_t bits) { emit(PatternInstruction::character, set_of(bits & 0x3F)); }

  // Returns whether what was added may match nothing.
  bool add(int depth) {
    const uint8_t kind = input_.byte();
    if (depth == kMostDepth || code_->size() > kMostCode || input_.empty()) {
      character(kind);
      return false;
    }
    switch (kind % 10) {
      case 0:
      case 1:
        character(input_.byte());
        return false;
      case 2: {
        const bool left = add(depth + 1);
        return add(depth + 1) && left;
      }
      case 3: {
        const size_t split = emit(PatternInstruction::split);
        (*code_)[split].first = here();
        const bool left = add(depth + 1);
        const size_t jump = emit(PatternInstruction::jump);
        (*code_)[split].second = here();
        const bool right = add(depth + 1);
        (*code_)[jump].first = here();
        return left || right;
      }
      case 4:
      case 5:
        return add_loop(depth, kind % 10 == 5);
      case 6:
        return add_optional(depth, (kind & 64) != 0);
      case 7: {  // a possessive loop
        const uint8_t bits = input_.byte() & 0x3F;
        const size_t split = emit(PatternInstruction::split);
        character(bits);
        emit(PatternInstruction::jump, static_cast<int32_t>(split));
        (*code_)[split].first = static_cast<int32_t>(split) + 1;
        (*code_)[split].second = here();
        emit(PatternInstruction::next, set_of(static_cast<uint8_t>(~bits)));
        return true;
      }
      case 8:
        emit((kind & 64) != 0 ? PatternInstruction::next : PatternInstruction::previous,
             set_of(input_.byte()));
        return true;
      default:
        return add_scout(depth, kind);
    }
  }

  // A loop over what is not nothing.
  bool add_loop(int depth, bool lazy) {
    const size_t split = emit(PatternInstruction::split);
    if (add(depth + 1)) character(0x3F);
    emit(PatternInstruction::jump, static_cast<int32_t>(split));
    link(split, lazy);
    return true;
  }
  bool add_optional(int depth, bool lazy) {
    const size_t split = emit(PatternInstruction::split);
    add(depth + 1);
    link(split, lazy);
    return true;
  }
  void link(size_t split, bool lazy) {
    const int32_t body = static_cast<int32_t>(split) + 1;
    (*code_)[split].first = lazy ? here() : body;
    (*code_)[split].second = lazy ? body : here();
  }

  bool add_scout(int depth, uint8_t kind) {
    if (code_ != &parts_.code || parts_.scouts.size() == 3) {
      character(kind);
      return false;
    }
    PatternScout scout{(kind & 64) != 0, {}};
    code_ = &scout.code;
    const size_t split = emit(PatternInstruction::split);
    character(0x3F);
    emit(PatternInstruction::jump, static_cast<int32_t>(split));
    link(split, false);
    add(depth + 1);
    emit(PatternInstruction::match);
    code_ = &parts_.code;
    parts_.scouts.push_back(std::move(scout));
    emit(PatternInstruction::scout, static_cast<int32_t>(parts_.scouts.size() - 1),
         (kind & 128) != 0 ? 1 : 0);
    return true;
  }

  fuzz::PatternParts& parts_;
  fuzz::Input& input_;
  PatternCode* code_;
};

}  // namespace

FUZZ_TARGET(data, size) {
  fuzz::Input input(data, size);
  const size_t num_steps = 1 + input.below(2);
  std::vector<fuzz::PatternParts> chain(num_steps);
  std::vector<std::shared_ptr<const PatternStep>> steps;
  for (fuzz::PatternParts& parts : chain) {
    const std::string_view pattern = input.text();
    fuzz::Input syntax(reinterpret_cast<const uint8_t*>(pattern.data()), pattern.size());
    parts.of_bytes = syntax.flag();
    parts.classes = kClasses;
    parts.sets.columns = kNumClasses + 1;
    Assembler(parts, syntax).assemble();
    try {
      steps.push_back(parts.step());
    } catch (const std::length_error&) {
      return 0;
    }
  }
  const auto splitter = std::make_shared<const PatternSplitter>(std::move(steps));
  fuzz::compare_splitter(splitter, chain, input.rest().substr(0, 400));
  return 0;
}
