// Splitters that are made at run time.
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "arguments.hpp"
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

}  // namespace

void bind_splitting(py::module_& m) {
  py::class_<VocabularySplitter, Splitter, std::shared_ptr<VocabularySplitter>>(
      m, "VocabularySplitter")
      .def(py::init(&make_vocabulary_splitter), "characters"_a, "tokens"_a, "offsets"_a,
           "split_before_space"_a, "unknown"_a);
}

}  // namespace bpe
