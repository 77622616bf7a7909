// Splitters that are made at run time.
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "arguments.hpp"
#include "byte_splitter.hpp"
#include "vocabulary_splitter.hpp"

namespace bpe {
namespace {

UnknownCharacters unknown_characters_from_name(const std::string& name) {
  if (name == "bytes") return UnknownCharacters::bytes;
  if (name == "characters") return UnknownCharacters::characters;
  if (name == "runs") return UnknownCharacters::runs;
  throw std::invalid_argument("unknown characters do not become " + name);
}

std::shared_ptr<VocabularySplitter> make_vocabulary_splitter(
    const py::array_t<uint32_t, py::array::c_style>& characters, const py::buffer& tokens,
    const Int64Array& offsets, bool split_before_space, const std::string& unknown) {
  const BytesView data(tokens);
  const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
  check_key_offsets(data, offsets, n);
  for (py::ssize_t i = 0; i < characters.size(); ++i) {
    if (characters.data()[i] >= kCodePoints) throw std::invalid_argument("not a code point");
  }
  return std::make_shared<VocabularySplitter>(
      std::vector<uint32_t>(characters.data(), characters.data() + characters.size()),
      VocabularySplitter::Tokens{data.data(), offsets.data(), static_cast<size_t>(n)},
      split_before_space, unknown_characters_from_name(unknown));
}

template <class Word>
py::bytes to_bytes(const std::vector<Word>& words) {
  return py::bytes(reinterpret_cast<const char*>(words.data()), words.size() * sizeof(Word));
}

template <class Word>
std::vector<Word> from_bytes(const py::handle& bytes) {
  const std::string_view data = bytes.cast<std::string_view>();
  std::vector<Word> words(data.size() / sizeof(Word));
  if (!words.empty()) std::memcpy(words.data(), data.data(), words.size() * sizeof(Word));
  return words;
}

py::tuple state_of(const VocabularySplitter& splitter) {
  const VocabularySplitter::State state = splitter.state();
  return py::make_tuple(static_cast<int>(state.unknown), state.split_before_space,
                        to_bytes(state.known), to_bytes(state.parted), to_bytes(state.filter));
}

std::shared_ptr<VocabularySplitter> from_state(const py::tuple& state) {
  return std::make_shared<VocabularySplitter>(
      VocabularySplitter::State{static_cast<UnknownCharacters>(state[0].cast<int>()),
                                state[1].cast<bool>(), from_bytes<uint64_t>(state[2]),
                                from_bytes<uint8_t>(state[3]), from_bytes<uint64_t>(state[4])});
}

}  // namespace

void bind_splitting(py::module_& m) {
  py::class_<VocabularySplitter, Splitter, std::shared_ptr<VocabularySplitter>>(
      m, "VocabularySplitter")
      .def(py::init(&make_vocabulary_splitter), "characters"_a, "tokens"_a, "offsets"_a,
           "split_before_space"_a, "unknown"_a)
      .def(py::pickle(&state_of, &from_state));
  py::class_<ByteSplitter, Splitter, std::shared_ptr<ByteSplitter>>(m, "ByteSplitter")
      .def(py::init([](const py::array_t<uint64_t, py::array::c_style>& joined) {
             return std::make_shared<ByteSplitter>(
                 std::vector<uint64_t>(joined.data(), joined.data() + joined.size()));
           }),
           "joined"_a)
      .def(py::pickle([](const ByteSplitter& splitter) { return to_bytes(splitter.joined()); },
                      [](const py::bytes& state) {
                        return std::make_shared<ByteSplitter>(from_bytes<uint64_t>(state));
                      }));
}

}  // namespace bpe
