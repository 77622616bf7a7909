#include "token_use.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "id_buffer.hpp"

namespace bpe {
namespace {

constexpr size_t kSlice = 4096;  // pre-tokens that a thread encodes at a time

class UseCounter {
 public:
  UseCounter(const Encoder& encoder, const CountedSpans& pretokens, GroupRange groups,
             size_t num_tokens)
      : encoder_(encoder), pretokens_(pretokens), groups_(groups), num_tokens_(num_tokens) {
    const size_t entries = num_tokens * static_cast<size_t>(groups.size);
    use.occurrences.resize(entries);
    use.alone.resize(entries);
  }

  void count(Workspace& workspace, size_t from, size_t to) {
    ids_.clear();
    encoder_.encode_spans(workspace, pretokens_.spans.slice(from, to), kNotSpecial.data(), ids_,
                          ends_);
    size_t begin = 0;
    for (size_t i = from; i < to; ++i) {
      const auto end = static_cast<size_t>(ends_[i - from]);
      for (int64_t k = pretokens_.rows[i]; k < pretokens_.rows[i + 1]; ++k) {
        const int32_t group = pretokens_.groups[k] - groups_.first;
        if (group < 0 || group >= groups_.size) continue;
        add(begin, end, static_cast<size_t>(group), pretokens_.counts[k]);
      }
      begin = end;
    }
  }

  TokenUse use;

 private:
  static const std::vector<int64_t> kNotSpecial;

  void add(size_t begin, size_t end, size_t group, int64_t count) {
    const auto num_groups = static_cast<size_t>(groups_.size);
    for (size_t i = begin; i < end; ++i) {
      const size_t token = ids_.data()[i];
      if (token >= num_tokens_) throw std::invalid_argument("the encoder has more tokens");
      use.occurrences[token * num_groups + group] += count;
    }
    if (end - begin == 1) use.alone[ids_.data()[begin] * num_groups + group] += count;
  }

  const Encoder& encoder_;
  const CountedSpans& pretokens_;
  const GroupRange groups_;
  const size_t num_tokens_;
  IdBuffer<uint32_t> ids_;
  int64_t ends_[kSlice];
};

const std::vector<int64_t> UseCounter::kNotSpecial(kSlice, -1);

void add_to(std::vector<int64_t>& sums, std::vector<int64_t>&& values) {
  if (sums.empty()) {
    sums = std::move(values);
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += values[i];
}

}  // namespace

TokenUse count_token_use(const Encoder& encoder, WorkspacePool& pool, const CountedSpans& pretokens,
                         GroupRange groups, size_t num_tokens, size_t num_threads) {
  const size_t n = pretokens.spans.n;
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  TokenUse total;
  const auto work = [&]() noexcept {
    try {
      UseCounter counter(encoder, pretokens, groups, num_tokens);
      {
        // Pre-tokens are distinct: a large cache would not be used.
        WorkspacePool::Lease lease(pool, Workspace::kStreamLines);
        for (size_t from = next.fetch_add(kSlice); from < n; from = next.fetch_add(kSlice)) {
          counter.count(lease.get(), from, std::min(n, from + kSlice));
        }
      }
      const std::lock_guard lock(mutex);
      add_to(total.occurrences, std::move(counter.use.occurrences));
      add_to(total.alone, std::move(counter.use.alone));
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (!failure) failure = std::current_exception();
      next = n;
    }
  };
  const size_t most_threads = std::min(num_threads, n / kSlice + 1);
  std::vector<std::thread> threads;
  threads.reserve(most_threads);
  try {
    while (threads.size() + 1 < most_threads) threads.emplace_back(work);
  } catch (const std::system_error&) {
    // The system provides no more threads: the existing ones do all of the work.
  }
  work();
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
  return total;
}

void undo_merges(const std::vector<MergeRule>& rules, const ChangingUse& use) {
  const size_t n = use.num_groups;
  for (size_t i = rules.size(); i-- > 0;) {
    int64_t* const left = use.occurrences + rules[i].left * n;
    int64_t* const right = use.occurrences + rules[i].right * n;
    int64_t* const result = use.occurrences + rules[i].result * n;
    int64_t* const alone = use.alone + rules[i].result * n;
    for (size_t group = 0; group < n; ++group) {
      const int64_t count = result[group];
      if (count == 0) continue;
      result[group] = 0;
      use.used[group] += (left[group] == 0) - 1;
      left[group] += count;
      use.used[group] += right[group] == 0;  // the same as left, perhaps
      right[group] += count;
      use.tokens[group] += count;
      use.pretokens[group] -= alone[group];
      alone[group] = 0;
    }
  }
}

}  // namespace bpe
