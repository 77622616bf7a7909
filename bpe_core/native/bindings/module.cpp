// The extension bpe_core._native. All parts are compiled as one file, since including pybind11
// takes as long to compile as all of the parts' own code.
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

#include "arguments.hpp"
#include "counting.cpp"
#include "documents.cpp"
#include "encoding.cpp"
#include "learning.cpp"
#include "merge_rules.hpp"
#include "patterns.cpp"
#include "splitting.cpp"
#include "text.cpp"
#include "tokenizer_files.cpp"

namespace bpe {
namespace {

void raise_from_errors(const char* class_name, const std::string& message) {
  const py::object type = py::module_::import("bpe_core.errors").attr(class_name);
  PyErr_SetString(type.ptr(), message.c_str());
}

void translate_exception(std::exception_ptr pointer) {
  try {
    if (pointer) std::rethrow_exception(pointer);
  } catch (const UnknownByte& unknown) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "0x%02X", unknown.byte);
    raise_from_errors("UnknownTokenError", "byte " + std::string(hex) +
                                               " of the text has no id in this vocabulary; add a "
                                               "token for it or give unknown_id");
  } catch (const std::overflow_error& error) {
    raise_from_errors("CountOverflowError", error.what());
  }
}

}  // namespace
}  // namespace bpe

PYBIND11_MODULE(_native, m) {
  m.doc() = "The native core of bpe_core; see the modules that use it.";
  py::register_exception_translator(&bpe::translate_exception);
  bpe::bind_text(m);
  bpe::bind_patterns(m);
  bpe::bind_splitting(m);
  bpe::bind_documents(m);
  bpe::bind_counting(m);
  bpe::bind_learning(m);
  bpe::bind_encoding(m);
  bpe::bind_tokenizer_files(m);
}
