// Learning merges.
#include <cstdint>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "merge_learner.hpp"
#include "parity_learner.hpp"

namespace bpe {
namespace {

MergeLearnerOptions learner_options(const std::string& tie_break, int64_t min_frequency,
                                    size_t max_token_bytes,
                                    std::vector<std::string> forbidden_tokens, bool always_new,
                                    bool forbid_whitespace_tokens, size_t max_initial_symbols = 0) {
  MergeLearnerOptions options;
  if (tie_break == "lexicographic") {
    options.tie_break = TieBreak::lexicographic;
  } else if (tie_break == "first_id") {
    options.tie_break = TieBreak::first_id;
  } else if (tie_break == "huggingface") {
    options.tie_break = TieBreak::huggingface;
  } else if (tie_break == "stand_ins") {
    options.tie_break = TieBreak::stand_ins;
  } else if (tie_break == "first_seen") {
    options.tie_break = TieBreak::first_seen;
  } else {
    throw std::invalid_argument("no tie-break is called " + tie_break);
  }
  options.min_frequency = min_frequency;
  options.max_token_bytes = max_token_bytes;
  options.forbidden_tokens = std::move(forbidden_tokens);
  options.always_new = always_new;
  options.forbid_whitespace_tokens = forbid_whitespace_tokens;
  options.max_initial_symbols = max_initial_symbols;
  return options;
}

// A learner that threads may share; a call waits for that of another thread.
class PyMergeLearner {
 public:
  explicit PyMergeLearner(MergeLearner learner) : learner_(std::move(learner)) {}

  // Returns what `call` makes of the learner.
  template <class Call>
  auto with(const Call& call) {
    const Exclusive exclusive(mutex_);
    return call(learner_);
  }

 private:
  std::mutex mutex_;
  MergeLearner learner_;
};

std::unique_ptr<PyMergeLearner> make_merge_learner(
    const py::buffer& buffer, const Int64Array& offsets, const Int64Array& counts,
    const std::string& tie_break, int64_t min_frequency, size_t max_token_bytes,
    std::vector<std::string> forbidden_tokens, bool always_new, bool forbid_whitespace_tokens) {
  MergeLearnerOptions options =
      learner_options(tie_break, min_frequency, max_token_bytes, std::move(forbidden_tokens),
                      always_new, forbid_whitespace_tokens);
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, counts.size());
  const size_t n = static_cast<size_t>(counts.size());
  py::gil_scoped_release release;
  return std::make_unique<PyMergeLearner>(
      MergeLearner(keys.data(), offsets.data(), counts.data(), n, std::move(options)));
}

std::unique_ptr<PyMergeLearner> merge_learner_from_symbols(
    const std::vector<std::string>& symbols, const py::array_t<uint32_t, py::array::c_style>& words,
    const Int64Array& offsets, const Int64Array& counts, const std::string& tie_break,
    int64_t min_frequency, size_t max_token_bytes, std::vector<std::string> forbidden_tokens,
    bool always_new, bool forbid_whitespace_tokens, size_t max_initial_symbols) {
  MergeLearnerOptions options =
      learner_options(tie_break, min_frequency, max_token_bytes, std::move(forbidden_tokens),
                      always_new, forbid_whitespace_tokens, max_initial_symbols);
  const size_t n = static_cast<size_t>(counts.size());
  if (offsets.ndim() != 1 || offsets.size() != counts.size() + 1 || offsets.at(0) != 0 ||
      offsets.at(counts.size()) != words.size()) {
    throw std::invalid_argument(
        "offsets must have one entry more than there are counts, from 0 to the number of symbols "
        "in words");
  }
  py::gil_scoped_release release;
  return std::make_unique<PyMergeLearner>(MergeLearner::from_symbols(
      symbols, words.data(), offsets.data(), counts.data(), n, std::move(options)));
}

std::unique_ptr<PyMergeLearner> merge_learner_with_parity(
    const py::buffer& buffer, const Int64Array& offsets, const Int64Array& begins,
    const py::array_t<int32_t, py::array::c_style>& groups, const Int64Array& counts,
    size_t num_groups, const std::string& tie_break, int64_t min_frequency, size_t max_token_bytes,
    std::vector<std::string> forbidden_tokens, bool forbid_whitespace_tokens,
    std::vector<double> ratios, size_t global_merges, size_t window_size, double alpha) {
  MergeLearnerOptions options =
      learner_options(tie_break, min_frequency, max_token_bytes, std::move(forbidden_tokens), false,
                      forbid_whitespace_tokens);
  const ParityOptions parity{num_groups, std::move(ratios), global_merges, window_size, alpha};
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, offsets.size() - 1);
  const py::ssize_t n = offsets.size() - 1;
  bool are_ascending = begins.ndim() == 1 && begins.size() == n + 1 && begins.at(0) == 0 &&
                       begins.at(n) == counts.size() && groups.size() == counts.size();
  for (py::ssize_t i = 0; i < n && are_ascending; ++i) {
    are_ascending = begins.at(i) <= begins.at(i + 1);
  }
  if (!are_ascending) {
    throw std::invalid_argument(
        "begins must have one entry for each offset, ascending from 0 to the number of counts, and "
        "groups one for each count");
  }
  const GroupedWords words{keys.data(),   offsets.data(), begins.data(),
                           groups.data(), counts.data(),  static_cast<size_t>(n)};
  py::gil_scoped_release release;
  return std::make_unique<PyMergeLearner>(make_parity_learner(words, parity, std::move(options)));
}

const char* stop_reason_name(StopReason reason) {
  switch (reason) {
    case StopReason::vocab_size_reached:
      return "vocab_size_reached";
    case StopReason::below_min_frequency:
      return "below_min_frequency";
    case StopReason::no_pairs_left:
      return "no_pairs_left";
  }
  return "";
}

std::vector<LearnedMerge> merges_of(PyMergeLearner& learner) {
  return learner.with([](const MergeLearner& inner) { return inner.merges(); });
}

py::tuple merge_columns(PyMergeLearner& learner) {
  std::vector<uint32_t> left, right, result;
  std::vector<int64_t> count;
  for (const LearnedMerge& merge : merges_of(learner)) {
    left.push_back(merge.left);
    right.push_back(merge.right);
    result.push_back(merge.result);
    count.push_back(merge.count);
  }
  return py::make_tuple(to_array(std::move(left)), to_array(std::move(right)),
                        to_array(std::move(result)), to_array(std::move(count)));
}

py::array_t<int64_t> applied_counts(PyMergeLearner& learner) {
  std::vector<int64_t> applied;
  for (const LearnedMerge& merge : merges_of(learner)) applied.push_back(merge.applied);
  return to_array(std::move(applied));
}

py::tuple symbol_columns(PyMergeLearner& wrapped) {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> offsets = {0};
  wrapped.with([&](const MergeLearner& learner) {
    if (learner.symbol_bytes() > INT32_MAX)
      throw std::overflow_error("the symbols have more than 2^31 - 1 bytes");
    bytes.reserve(learner.symbol_bytes());
    for (uint32_t i = 0; i < learner.num_symbols(); ++i) {
      const std::string symbol = learner.symbol(i);
      bytes.insert(bytes.end(), symbol.begin(), symbol.end());
      offsets.push_back(static_cast<int32_t>(bytes.size()));
    }
  });
  return py::make_tuple(to_array(std::move(bytes)), to_array(std::move(offsets)));
}

// A property of the learner.
template <auto get>
auto read(PyMergeLearner& learner) {
  return learner.with([](const MergeLearner& inner) { return (inner.*get)(); });
}

}  // namespace

void bind_learning(py::module_& m) {
  py::class_<PyMergeLearner>(m, "MergeLearner")
      .def(py::init(&make_merge_learner), "keys"_a, "offsets"_a, "counts"_a, "tie_break"_a,
           "min_frequency"_a = 1, "max_token_bytes"_a = 0,
           "forbidden_tokens"_a = std::vector<std::string>{}, "always_new"_a = false,
           "forbid_whitespace_tokens"_a = false)
      .def_static("from_symbols", &merge_learner_from_symbols, "symbols"_a, "words"_a, "offsets"_a,
                  "counts"_a, "tie_break"_a, "min_frequency"_a = 1, "max_token_bytes"_a = 0,
                  "forbidden_tokens"_a = std::vector<std::string>{}, "always_new"_a = false,
                  "forbid_whitespace_tokens"_a = false, "max_initial_symbols"_a = 0)
      .def_static("with_parity", &merge_learner_with_parity, "keys"_a, "offsets"_a, "begins"_a,
                  "groups"_a, "counts"_a, "num_groups"_a, "tie_break"_a, "min_frequency"_a = 1,
                  "max_token_bytes"_a = 0, "forbidden_tokens"_a = std::vector<std::string>{},
                  "forbid_whitespace_tokens"_a = false, "ratios"_a = std::vector<double>{},
                  "global_merges"_a = 0, "window_size"_a = 0, "alpha"_a = 2.0)
      .def(
          "learn",
          [](PyMergeLearner& learner, size_t symbols, size_t max_steps) {
            return learner.with(
                [&](MergeLearner& inner) { return inner.learn(symbols, max_steps); });
          },
          "symbols"_a, "max_steps"_a)
      .def("merges", &merge_columns)
      .def("applied_counts", &applied_counts)
      .def(
          "symbol",
          [](PyMergeLearner& learner, uint32_t symbol) {
            return py::bytes(
                learner.with([&](const MergeLearner& inner) { return inner.symbol(symbol); }));
          },
          "symbol"_a)
      .def("symbols", &symbol_columns)
      .def_property_readonly("num_symbols", &read<&MergeLearner::num_symbols>)
      .def_property_readonly("symbol_bytes", &read<&MergeLearner::symbol_bytes>)
      .def_property_readonly("memory_bytes", &read<&MergeLearner::memory_bytes>)
      .def_property_readonly("stop_reason", [](PyMergeLearner& learner) {
        return stop_reason_name(read<&MergeLearner::stop_reason>(learner));
      });
}

}  // namespace bpe
