// Split patterns that were compiled at run time.
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "pattern_automaton.hpp"

namespace bpe {
namespace {

using CodeArray = py::array_t<int32_t, py::array::c_style | py::array::forcecast>;

PatternCode code_from_array(const CodeArray& array) {
  if (array.ndim() != 2 || array.shape(1) != 3) {
    throw std::invalid_argument("a program must have three columns");
  }
  PatternCode code;
  for (py::ssize_t i = 0; i < array.shape(0); ++i) {
    code.push_back({array.at(i, 0), array.at(i, 1), array.at(i, 2)});
  }
  return code;
}

// starts and classes: see CharacterClasses; sets: uint8[sets, classes + 1], see SetMatrix;
// of_bytes: see PatternStep.
std::shared_ptr<PatternStep> make_step(
    const CodeArray& code, const std::vector<std::pair<bool, CodeArray>>& scouts,
    const py::array_t<uint8_t, py::array::c_style | py::array::forcecast>& sets,
    const std::vector<uint32_t>& starts, const std::vector<uint8_t>& classes, bool of_bytes) {
  if (sets.ndim() != 2) throw std::invalid_argument("sets must have two dimensions");
  SetMatrix matrix{{sets.data(), sets.data() + sets.size()}, static_cast<size_t>(sets.shape(1))};
  const PatternCode main_code = code_from_array(code);
  std::vector<PatternScout> all_scouts;
  for (const auto& [ahead, scout] : scouts) all_scouts.push_back({ahead, code_from_array(scout)});
  py::gil_scoped_release release;
  CharacterClasses character_classes(starts, classes);
  if (matrix.columns != character_classes.size() + 1) {
    throw std::invalid_argument("sets must have a column for each class and one for the edge");
  }
  return std::make_shared<PatternStep>(std::move(character_classes), std::move(matrix), main_code,
                                       all_scouts, of_bytes);
}

// uint32[states, symbols]: twice the next state, which is 0 where nothing can match any more, plus
// 1 where a match ends before the symbol.
py::array_t<uint32_t> table_of(const Automaton& automaton) {
  py::array_t<uint32_t> table({automaton.states(), automaton.symbols()});
  auto cells = table.mutable_unchecked<2>();
  for (uint32_t state = 0; state < automaton.states(); ++state) {
    for (size_t symbol = 0; symbol < automaton.symbols(); ++symbol) {
      const Automaton::Entry entry = automaton.entry(state, symbol);
      cells(state, symbol) = entry.next << 1 | (entry.matched ? 1 : 0);
    }
  }
  return table;
}

// The states in which a match begins after each class, and at the edge.
std::vector<uint32_t> starts_of(const PatternStep& step, const Automaton& automaton) {
  std::vector<uint32_t> starts;
  for (size_t column = 0; column <= step.classes().size(); ++column) {
    starts.push_back(automaton.start_after(column));
  }
  return starts;
}

// For each scout whether it looks ahead, its table and its starts.
py::list scouts_of(const PatternStep& step) {
  py::list scouts;
  for (const PatternStep::DirectedScout& scout : step.scouts()) {
    scouts.append(
        py::make_tuple(scout.ahead, table_of(scout.automaton), starts_of(step, scout.automaton)));
  }
  return scouts;
}

}  // namespace

void bind_patterns(py::module_& m) {
  py::class_<PatternStep, std::shared_ptr<PatternStep>>(m, "PatternStep")
      .def(py::init(&make_step), "code"_a, "scouts"_a, "sets"_a, "starts"_a, "classes"_a,
           "of_bytes"_a)
      .def_property_readonly("states", &PatternStep::states)
      .def_property_readonly("table",
                             [](const PatternStep& step) { return table_of(step.automaton()); })
      .def_property_readonly(
          "starts", [](const PatternStep& step) { return starts_of(step, step.automaton()); })
      .def_property_readonly("scouts", &scouts_of)
      .def_property_readonly("matches_everything", &PatternStep::matches_everything);
  py::class_<PatternSplitter, Splitter, std::shared_ptr<PatternSplitter>>(m, "PatternSplitter")
      .def(py::init([](const std::vector<std::shared_ptr<PatternStep>>& steps) {
             py::gil_scoped_release release;
             return std::make_shared<PatternSplitter>(
                 std::vector<std::shared_ptr<const PatternStep>>(steps.begin(), steps.end()));
           }),
           "steps"_a)
      .def("may_cut", &PatternSplitter::may_cut, "previous"_a, "next"_a);
}

}  // namespace bpe
