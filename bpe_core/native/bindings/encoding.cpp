// Encoding: merges, longest matches, and the joins that ranks mean.
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "arguments.hpp"
#include "encode_parallel.hpp"
#include "encoder.hpp"
#include "longest_match.hpp"
#include "rank_joins.hpp"
#include "texts.hpp"
#include "token_use.hpp"
#include "zeroed_array.hpp"

namespace bpe {
namespace {

std::vector<MergeRule> rules_from_columns(const py::array_t<uint32_t, py::array::c_style>& left,
                                          const py::array_t<uint32_t, py::array::c_style>& right,
                                          const py::array_t<uint32_t, py::array::c_style>& result) {
  const size_t n = static_cast<size_t>(left.size());
  if (static_cast<size_t>(right.size()) != n || static_cast<size_t>(result.size()) != n) {
    throw std::invalid_argument("left, right and result must be equally long");
  }
  std::vector<MergeRule> rules(n);
  for (size_t i = 0; i < n; ++i) {
    rules[i] = {left.data()[i], right.data()[i], result.data()[i]};
  }
  return rules;
}

// Memory that the allocator has at hand when it is released, since nobody else could use it. It is
// not written to, so it is addresses more than memory.
class Reserve {
 public:
  Reserve() {
    take();
    fence_ = std::malloc(kBlock);
  }
  Reserve(const Reserve&) = delete;
  Reserve& operator=(const Reserve&) = delete;
  ~Reserve() {
    release();
    std::free(fence_);
  }
  void take() {
    for (void*& block : blocks_) {
      if (block == nullptr) block = std::malloc(kBlock);
    }
  }
  void release() {
    for (void*& block : blocks_) std::free(std::exchange(block, nullptr));
  }

 private:
  static constexpr size_t kBlock = size_t{100} << 10;  // larger ones would be given to the system
  std::array<void*, 4> blocks_{};
  void* fence_;  // behind them: what is free at the very end would be given to the system too
};

// Python's ints of ids, made when they are first needed and shared by all lists.
class SharedInts {
 public:
  explicit SharedInts(uint32_t largest)
      : ints_(std::min(static_cast<size_t>(largest) + 1, kMostShared)) {}
  SharedInts(const SharedInts&) = delete;
  SharedInts& operator=(const SharedInts&) = delete;
  ~SharedInts() {
    for (size_t i = 0; i < ints_.size(); ++i) Py_XDECREF(ints_[i]);
  }

  py::list to_list(const uint32_t* ids, size_t n) {
    py::list result = py::reinterpret_steal<py::list>(PyList_New(static_cast<py::ssize_t>(n)));
    if (!result) throw py::error_already_set();
    for (size_t i = 0; i < n; ++i) {
      // The ints lie anywhere in memory, and each is written to.
      if (i + kAhead < n && ids[i + kAhead] < ints_.size()) {
        const std::atomic_ref<PyObject*> ahead(ints_[ids[i + kAhead]]);
        __builtin_prefetch(ahead.load(std::memory_order_relaxed), 1);
      }
      PyList_SET_ITEM(result.ptr(), static_cast<py::ssize_t>(i), to_int(ids[i]));
    }
    return result;
  }

 private:
  static constexpr size_t kMostShared = size_t{1} << 20;
  static constexpr size_t kAhead = 8;

  // A new reference.
  PyObject* to_int(uint32_t id) {
    if (id >= ints_.size()) return make_int(id);
    const std::atomic_ref<PyObject*> slot(ints_[id]);
    PyObject* shared = slot.load(std::memory_order_acquire);
    if (shared == nullptr) {
      PyObject* const made = make_int(id);
      if (slot.compare_exchange_strong(shared, made)) {
        shared = made;
      } else {
        Py_DECREF(made);  // another thread was faster
      }
    }
    return Py_NewRef(shared);
  }

  static PyObject* make_int(uint32_t id) {
    PyObject* const made = PyLong_FromUnsignedLong(id);
    if (made == nullptr) throw py::error_already_set();
    return made;
  }

  ZeroedArray<PyObject*> ints_;
};

class PyEncoder {
 public:
  PyEncoder(const Int64Array& byte_ids, std::vector<MergeRule> rules, int64_t unknown_id,
            const std::optional<PatternArgument>& pattern, size_t cache_entries, bool portable,
            const Normalizer* normalizer, bool join_unknown)
      : encoder_(MergeRules(checked_byte_ids(byte_ids), rules, unknown_id, join_unknown),
                 scanner_from_argument(pattern, portable), normalizer_or_none(normalizer),
                 portable),
        ints_(encoder_.largest_id()),
        native_(pattern.has_value()),
        workspaces_(cache_entries) {}

  // Returns whether this makes a difference.
  bool set_whole_tokens(const py::buffer& buffer, const Int64Array& offsets,
                        const py::array_t<uint32_t, py::array::c_style>& ids) {
    const BytesView keys(buffer);
    check_key_offsets(keys, offsets, ids.size());
    py::gil_scoped_release release;
    return encoder_.set_whole_tokens(
        {keys.data(), offsets.data(), ids.data(), static_cast<size_t>(ids.size())});
  }

  void drop_white_space() { encoder_.drop_white_space(); }

  void set_space_prefix(const std::string& place, bool before_space) {
    encoder_.set_space_prefix({space_prefix_place_from_name(place), before_space});
  }

  // (ids, offsets): uint16 or uint32 ids of all documents, int64 offsets of n + 1.
  py::tuple encode_documents(const py::buffer& buffer, const Int64Array& starts,
                             const Int64Array& ends, const SpecialSet& specials,
                             const std::vector<uint32_t>& prepend,
                             const std::vector<uint32_t>& append, int bits, int num_threads,
                             bool continues) {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    const Affixes affixes{prepend, append};
    if (bits == 16) {
      return encode_as<uint16_t>(documents, specials, affixes, num_threads, continues);
    }
    return encode_as<uint32_t>(documents, specials, affixes, num_threads, continues);
  }

  // The ids of each document as a list.
  py::list encode_lists(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends,
                        const SpecialSet& specials, int num_threads) {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    const BytesView data(buffer);
    const DocumentSpans documents = checked_spans(data, starts, ends);
    return lists_of(documents, specials, num_threads);
  }

  // encode_lists of the texts in a list or tuple, without a copy of them. None if one is neither
  // str nor bytes.
  py::object encode_text_lists(const py::object& texts, const SpecialSet& specials,
                               int num_threads) {
    return with_texts(texts, [&](const TextSpans& documents) -> py::object {
      return lists_of(documents, specials, num_threads);
    });
  }

  // encode_documents of the same, with uint32 ids.
  py::object encode_texts(const py::object& texts, const SpecialSet& specials, int num_threads) {
    return with_texts(texts, [&](const TextSpans& documents) -> py::object {
      return encode_as<uint32_t>(documents, specials, {}, num_threads, false);
    });
  }

  py::list encode_text(const py::object& text, const SpecialSet& specials) {
    return encode_one<py::list>(
        text, specials, false, SIZE_MAX,
        [this](const IdBuffer<uint32_t>& ids) { return ints_.to_list(ids.data(), ids.size()); });
  }

  // The ids as bytes, uint32 each. Takes little memory beyond that of the text and these.
  py::bytes encode_step(const py::object& text, const SpecialSet& specials, bool continues) {
    return encode_one<py::bytes>(text, specials, continues, Workspace::kStreamLines, to_bytes);
  }

  // During a stream the reserved memory is free for its text and Python's objects.
  void begin_stream() {
    const std::lock_guard lock(streams_mutex_);
    if (streams_++ == 0) reserve_.release();
  }
  void end_stream() {
    const std::lock_guard lock(streams_mutex_);
    if (--streams_ == 0) reserve_.take();
  }

  py::tuple encode_spans(const py::buffer& buffer, const Int64Array& starts, const Int64Array& ends,
                         const Int64Array& special_ids) {
    const BytesView data(buffer);
    const DocumentSpans spans = checked_spans(data, starts, ends);
    if (special_ids.size() != starts.size()) {
      throw std::invalid_argument("as many special ids as spans are needed");
    }
    IdBuffer<uint32_t> ids;
    std::vector<int64_t> offsets(spans.n + 1, 0);
    {
      py::gil_scoped_release release;
      WorkspacePool::Lease lease(workspaces_);
      encoder_.encode_spans(lease.get(), spans, special_ids.data(), ids, offsets.data() + 1);
    }
    return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
  }

  // (occurrences, alone), by token and group: see token_use.hpp.
  py::tuple count_token_use(const py::buffer& buffer, const Int64Array& offsets,
                            const Int64Array& rows,
                            const py::array_t<int32_t, py::array::c_style>& groups,
                            const Int64Array& counts, int32_t first_group, int32_t num_groups,
                            size_t num_tokens, int num_threads) {
    const BytesView keys(buffer);
    const py::ssize_t n = rows.size() - 1;
    check_key_offsets(keys, offsets, n);
    if (groups.size() != counts.size() || n < 0 || rows.at(0) != 0 || rows.at(n) != counts.size() ||
        !std::is_sorted(rows.data(), rows.data() + n + 1)) {
      throw std::invalid_argument(
          "rows must be ascending, from 0 to the number of groups and of counts");
    }
    if (num_groups < 1) throw std::invalid_argument("at least one group is needed");
    const DocumentSpans spans{keys.data(), keys.size(), offsets.data(), offsets.data() + 1,
                              static_cast<size_t>(n)};
    TokenUse use;
    {
      py::gil_scoped_release release;
      use = bpe::count_token_use(encoder_, workspaces_,
                                 {spans, rows.data(), groups.data(), counts.data()},
                                 {first_group, num_groups}, num_tokens, threads_of(num_threads));
    }
    return py::make_tuple(to_array(std::move(use.occurrences)), to_array(std::move(use.alone)));
  }

 private:
  template <class Result, class Convert>
  Result encode_one(const py::object& text, const SpecialSet& specials, bool continues,
                    size_t most_lines, const Convert& convert) {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    std::optional<BytesView> view;
    const uint8_t* bytes;
    py::ssize_t size;
    if (PyUnicode_Check(text.ptr())) {
      bytes = reinterpret_cast<const uint8_t*>(PyUnicode_AsUTF8AndSize(text.ptr(), &size));
      if (bytes == nullptr) throw py::error_already_set();
    } else {
      view.emplace(py::reinterpret_borrow<py::buffer>(text));
      bytes = view->data();
      size = static_cast<py::ssize_t>(view->size());
    }
    const int64_t start = 0;
    const int64_t end = size;
    const DocumentSpans documents{bytes, static_cast<size_t>(size), &start, &end, 1};
    WorkspacePool::Lease lease(workspaces_, most_lines);
    Workspace& workspace = lease.get();
    const auto encode_into = [&](IdBuffer<uint32_t>& ids) {
      int64_t offset;
      encoder_.encode_documents(workspace, documents, specials.tokens(), {}, continues, ids,
                                &offset);
    };
    if (documents.bytes_of(0) <= Workspace::kShortText) {
      workspace.short_ids.clear();
      encode_into(workspace.short_ids);
      return convert(workspace.short_ids);
    }
    IdBuffer<uint32_t> ids;
    {
      py::gil_scoped_release release;
      encode_into(ids);
    }
    return convert(ids);
  }

  static py::bytes to_bytes(const IdBuffer<uint32_t>& ids) {
    const auto size = static_cast<py::ssize_t>(ids.size() * sizeof(uint32_t));
    PyObject* const bytes =
        PyBytes_FromStringAndSize(reinterpret_cast<const char*>(ids.data()), size);
    if (bytes == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::bytes>(bytes);
  }

  static SpacePrefix::Place space_prefix_place_from_name(const std::string& name) {
    using enum SpacePrefix::Place;
    if (name == "nowhere") return nowhere;
    if (name == "first_segment") return first_segment;
    if (name == "every_segment") return every_segment;
    if (name == "byte_level") return byte_level;
    if (name == "document") return document;
    throw std::invalid_argument("a space is not put before " + name);
  }

  static size_t threads_of(int num_threads) {
    return num_threads > 0 ? static_cast<size_t>(num_threads) : std::thread::hardware_concurrency();
  }

  static std::array<int64_t, 256> checked_byte_ids(const Int64Array& ids) {
    if (ids.size() != 256) throw std::invalid_argument("256 byte ids are needed");
    std::array<int64_t, 256> result;
    std::copy_n(ids.data(), 256, result.begin());
    return result;
  }

  template <class Documents>
  py::list lists_of(const Documents& documents, const SpecialSet& specials, int num_threads) {
    const size_t n = documents.n;
    IdBuffer<uint32_t> ids;
    std::vector<int64_t> offsets(n + 1, 0);
    encode_into(documents, specials, {}, num_threads, false, ids, offsets.data() + 1);
    py::list lists = py::reinterpret_steal<py::list>(PyList_New(static_cast<py::ssize_t>(n)));
    if (!lists) throw py::error_already_set();
    for (size_t i = 0; i < n; ++i) {
      py::list list =
          ints_.to_list(ids.data() + offsets[i], static_cast<size_t>(offsets[i + 1] - offsets[i]));
      PyList_SET_ITEM(lists.ptr(), static_cast<py::ssize_t>(i), list.release().ptr());
    }
    return lists;
  }

  template <class Encode>
  py::object with_texts(const py::object& texts, const Encode& encode) const {
    if (!native_) throw std::invalid_argument("an encoder without a native pattern takes spans");
    // A tuple keeps the texts while others may change the list.
    const auto kept = py::tuple(texts);
    const std::optional<std::vector<TextSource>> sources = text_sources(kept);
    if (!sources) return py::none();
    return encode(TextSpans{sources->data(), sources->size()});
  }

  template <class Id, class Documents>
  py::tuple encode_as(const Documents& documents, const SpecialSet& specials,
                      const Affixes& affixes, int num_threads, bool continues) {
    std::vector<int64_t> offsets(documents.n + 1, 0);
    IdBuffer<Id> ids;
    encode_into(documents, specials, affixes, num_threads, continues, ids, offsets.data() + 1);
    return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
  }

  template <class Id, class Documents>
  void encode_into(const Documents& documents, const SpecialSet& specials, const Affixes& affixes,
                   int num_threads, bool continues, IdBuffer<Id>& ids, int64_t* offsets) {
    py::gil_scoped_release release;
    const auto encode = [&](const DocumentSpans& part, Workspace& workspace, IdBuffer<Id>& part_ids,
                            int64_t* part_offsets) {
      encoder_.encode_documents(workspace, part, specials.tokens(), affixes, continues, part_ids,
                                part_offsets);
    };
    const auto encode_any = [&](const Documents& part, Workspace& workspace, IdBuffer<Id>& part_ids,
                                int64_t* part_offsets) {
      if constexpr (std::is_same_v<Documents, TextSpans>) {
        // Once for all parts, so that the memory of an earlier result is used again.
        size_t bytes = 0;
        for (size_t i = 0; i < part.n; ++i) bytes += part.bytes_of(i);
        part_ids.reserve_more(std::min(bytes, kMostReservedIds));
        part.for_each_part([&](const DocumentSpans& few, size_t first) {
          encode(few, workspace, part_ids, part_offsets + first);
        });
      } else {
        encode(part, workspace, part_ids, part_offsets);
      }
    };
    encode_in_threads(encode_any, workspaces_, documents, encoder_.growth(),
                      affixes.prepend.size() + affixes.append.size(), threads_of(num_threads), ids,
                      offsets);
  }

  std::mutex streams_mutex_;
  Reserve reserve_;
  size_t streams_ = 0;
  Encoder encoder_;
  SharedInts ints_;
  bool native_;
  WorkspacePool workspaces_;
};

// Changes both arrays in place.
void undo_merges_in(const py::array_t<uint32_t, py::array::c_style>& left,
                    const py::array_t<uint32_t, py::array::c_style>& right,
                    const py::array_t<uint32_t, py::array::c_style>& result,
                    py::array_t<int64_t, py::array::c_style>& occurrences,
                    py::array_t<int64_t, py::array::c_style>& alone,
                    py::array_t<int64_t, py::array::c_style>& sums) {
  const std::vector<MergeRule> rules = rules_from_columns(left, right, result);
  if (occurrences.ndim() != 2 || alone.ndim() != 2 || alone.size() != occurrences.size() ||
      alone.shape(1) != occurrences.shape(1)) {
    throw std::invalid_argument("occurrences and alone must have the same two dimensions");
  }
  if (sums.ndim() != 2 || sums.shape(0) != 3 || sums.shape(1) != alone.shape(1)) {
    throw std::invalid_argument("there must be three sums of each group");
  }
  const py::ssize_t num_tokens = occurrences.shape(0);
  for (const MergeRule& rule : rules) {
    if (std::max({rule.left, rule.right, rule.result}) >= num_tokens) {
      throw std::invalid_argument("a merge has a token that is not counted");
    }
  }
  const auto num_groups = static_cast<size_t>(occurrences.shape(1));
  int64_t* const tokens = sums.mutable_data();
  const ChangingUse use = {num_groups, occurrences.mutable_data(), alone.mutable_data(),
                           tokens,     tokens + num_groups,        tokens + 2 * num_groups};
  py::gil_scoped_release release;
  undo_merges(rules, use);
}

py::tuple last_joins_of(const py::buffer& tokens, const Int64Array& offsets) {
  const BytesView data(tokens);
  const py::ssize_t n = std::max<py::ssize_t>(offsets.size() - 1, 0);
  check_key_offsets(data, offsets, n);
  for (py::ssize_t i = 0; i < n; ++i) {
    const int64_t length = offsets.data()[i + 1] - offsets.data()[i];
    if (length < 1 || length > INT32_MAX) {
      throw std::invalid_argument("token " + std::to_string(i) + " must have 1 to 2**31 - 1 bytes");
    }
  }
  LastJoins joins;
  {
    py::gil_scoped_release release;
    joins = last_joins(data.data(), offsets.data(), static_cast<size_t>(n));
  }
  return py::make_tuple(to_array(std::move(joins.left)), to_array(std::move(joins.right)));
}

WordEndMeaning word_end_from_name(const std::string& name) {
  if (name == "gap") return WordEndMeaning::gap;
  if (name == "symbol") return WordEndMeaning::symbol;
  if (name == "suffix") return WordEndMeaning::suffix;
  throw std::invalid_argument("an end of a word is not a " + name);
}

std::unique_ptr<LongestMatcher> make_longest_matcher(const py::buffer& buffer,
                                                     const Int64Array& offsets,
                                                     const Int64Array& ids,
                                                     const std::string& word_end) {
  const BytesView keys(buffer);
  check_key_offsets(keys, offsets, ids.size());
  py::gil_scoped_release release;
  return std::make_unique<LongestMatcher>(keys.data(), offsets.data(), ids.data(),
                                          static_cast<size_t>(ids.size()),
                                          word_end_from_name(word_end));
}

// (ids, offsets): int64 ids of all documents, -1 for the unknown, int64 offsets of n + 1.
py::tuple longest_match_ids(const LongestMatcher& matcher, const py::buffer& buffer,
                            const Int64Array& starts, const Int64Array& ends,
                            const std::vector<int64_t>& special_ids, bool longest_first) {
  const BytesView data(buffer);
  const DocumentSpans documents = checked_spans(data, starts, ends);
  std::vector<int64_t> ids;
  std::vector<int64_t> offsets(documents.n + 1, 0);
  {
    py::gil_scoped_release release;
    const auto encode =
        longest_first ? &LongestMatcher::longest_first : &LongestMatcher::left_to_right;
    (matcher.*encode)(documents.data, documents.starts, documents.ends, documents.n, special_ids,
                      ids, offsets.data() + 1);
  }
  return py::make_tuple(to_array(std::move(ids)), to_array(std::move(offsets)));
}

}  // namespace

void bind_encoding(py::module_& m) {
  py::class_<PyEncoder>(m, "Encoder")
      .def(py::init([](const Int64Array& byte_ids,
                       const py::array_t<uint32_t, py::array::c_style>& left,
                       const py::array_t<uint32_t, py::array::c_style>& right,
                       const py::array_t<uint32_t, py::array::c_style>& result, int64_t unknown_id,
                       const std::optional<PatternArgument>& pattern, size_t cache_entries,
                       bool portable, const Normalizer* normalizer, bool join_unknown) {
             return std::make_unique<PyEncoder>(byte_ids, rules_from_columns(left, right, result),
                                                unknown_id, pattern, cache_entries, portable,
                                                normalizer, join_unknown);
           }),
           "byte_ids"_a, "left"_a, "right"_a, "result"_a, "unknown_id"_a = -1,
           "pattern"_a = std::optional<PatternArgument>("gpt2"),
           "cache_entries"_a = size_t{1} << 21, "portable"_a = false, "normalizer"_a = py::none(),
           "join_unknown"_a = false)
      .def("set_space_prefix", &PyEncoder::set_space_prefix, "place"_a, "before_space"_a)
      .def("drop_white_space", &PyEncoder::drop_white_space)
      .def("set_whole_tokens", &PyEncoder::set_whole_tokens, "keys"_a, "offsets"_a, "ids"_a)
      .def("encode_documents", &PyEncoder::encode_documents, "data"_a, "starts"_a, "ends"_a,
           "specials"_a, "prepend"_a = std::vector<uint32_t>{},
           "append"_a = std::vector<uint32_t>{}, "bits"_a = 32, "num_threads"_a = 1,
           "continues"_a = false)
      .def("encode_lists", &PyEncoder::encode_lists, "data"_a, "starts"_a, "ends"_a, "specials"_a,
           "num_threads"_a = 1)
      .def("encode_text_lists", &PyEncoder::encode_text_lists, "texts"_a, "specials"_a,
           "num_threads"_a = 1)
      .def("encode_texts", &PyEncoder::encode_texts, "texts"_a, "specials"_a, "num_threads"_a = 1)
      .def("encode_text", &PyEncoder::encode_text, "text"_a, "specials"_a)
      .def("encode_step", &PyEncoder::encode_step, "text"_a, "specials"_a, "continues"_a = false)
      .def("begin_stream", &PyEncoder::begin_stream)
      .def("end_stream", &PyEncoder::end_stream)
      .def("encode_spans", &PyEncoder::encode_spans, "data"_a, "starts"_a, "ends"_a,
           "special_ids"_a)
      .def("count_token_use", &PyEncoder::count_token_use, "keys"_a, "offsets"_a, "rows"_a,
           "groups"_a, "counts"_a, "first_group"_a, "num_groups"_a, "num_tokens"_a,
           "num_threads"_a = 1);

  m.def("undo_merges", &undo_merges_in, "left"_a, "right"_a, "result"_a,
        "occurrences"_a.noconvert(), "alone"_a.noconvert(), "sums"_a.noconvert());

  m.def("last_joins", &last_joins_of, "data"_a, "offsets"_a);
  py::class_<LongestMatcher>(m, "LongestMatcher")
      .def(py::init(&make_longest_matcher), "keys"_a, "offsets"_a, "ids"_a, "word_end"_a)
      .def("encode", &longest_match_ids, "data"_a, "starts"_a, "ends"_a, "special_ids"_a,
           "longest_first"_a);
}

}  // namespace bpe
