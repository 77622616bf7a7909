// Encoding of documents in threads, with the same result as in one thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "encoder.hpp"

namespace bpe {

// Stores the first exception of a thread, for which a little memory is needed: without memory the
// process would end, so it is reserved here. Returns false if memory is exhausted.
inline bool make_ready_to_throw() {
  void* const volatile probe = std::malloc(4096);
  if (probe == nullptr) return false;
  std::free(probe);
  return std::uncaught_exceptions() == 0;
}

// Unused workspaces, kept for later calls.
class WorkspacePool {
 public:
  // One is made at once, so that texts can be encoded even if no more memory is available.
  explicit WorkspacePool(size_t cache_entries) : cache_entries_(cache_entries) {
    make_ready_to_throw();
    give(make());
  }

  // An exclusive workspace for a limited time. Its cache does not grow beyond most_lines.
  class Lease {
   public:
    explicit Lease(WorkspacePool& pool, size_t most_lines = SIZE_MAX)
        : pool_(pool), workspace_(pool.take()) {
      workspace_->most_lines = most_lines;
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    ~Lease() { pool_.give(std::move(workspace_)); }
    Workspace& get() { return *workspace_; }

   private:
    WorkspacePool& pool_;
    std::unique_ptr<Workspace> workspace_;
  };

 private:
  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Workspace> workspace = std::move(idle_.back());
        idle_.pop_back();
        return workspace;
      }
    }
    return make();
  }

  std::unique_ptr<Workspace> make() {
    std::unique_ptr<Workspace> workspace = std::make_unique<Workspace>(cache_entries_);
    const std::lock_guard lock(mutex_);
    idle_.reserve(made_ + 1);
    ++made_;
    return workspace;
  }

  // There is room for all existing ones.
  void give(std::unique_ptr<Workspace> workspace) noexcept {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(workspace));
  }

  size_t cache_entries_;
  std::mutex mutex_;
  size_t made_ = 0;
  std::vector<std::unique_ptr<Workspace>> idle_;
};

// encode(documents, workspace, ids, offsets) appends the ids of documents, and writes the number of
// ids after each to the offsets.

// Runs of documents of about the same number of bytes, distributed to threads in order. Each is
// encoded into separate memory, which stays in the nearer caches, and copied to its place when the
// number of ids before it is known.
template <class Id, class Documents>
class ParallelEncoding {
 public:
  template <class Encode>
  ParallelEncoding(const Encode& encode, WorkspacePool& pool, const Documents& documents,
                   size_t most_ids, size_t num_threads, IdBuffer<Id>& ids, int64_t* offsets)
      : documents_(documents), ids_(ids), offsets_(offsets) {
    cut_into_runs(num_threads);
    waiting_.resize(num_runs());
    is_done_.resize(num_runs(), false);
    idle_.reserve(num_runs());
    ids.reserve_more(most_ids);
    const size_t most_threads = std::min(num_threads, num_runs());
    std::vector<std::thread> threads;
    threads.reserve(most_threads);
    try {
      while (threads.size() + 1 < most_threads) {
        threads.emplace_back([&] {
          if (make_ready_to_throw()) work(encode, pool);
        });
      }
    } catch (const std::system_error&) {
      // The system provides no more threads: the existing ones do all of the work.
    }
    work(encode, pool);
    for (std::thread& thread : threads) thread.join();
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  static constexpr size_t kMostRunBytes = size_t{1} << 19;
  static constexpr size_t kLeastRunBytes = size_t{1} << 14;
  static constexpr size_t kRunsOfThread = 8;
  static constexpr size_t kMostAhead = 16;  // runs that are finished while an earlier one is not

  size_t num_runs() const { return cuts_.size() - 1; }

  void cut_into_runs(size_t num_threads) {
    size_t bytes = 0;
    for (size_t i = 0; i < documents_.n; ++i) bytes += documents_.bytes_of(i);
    const size_t target =
        std::clamp(bytes / (num_threads * kRunsOfThread), kLeastRunBytes, kMostRunBytes);
    cuts_ = {0};
    size_t run = 0;
    for (size_t i = 0; i < documents_.n; ++i) {
      run += documents_.bytes_of(i);
      if (run < target && i + 1 < documents_.n) continue;
      cuts_.push_back(i + 1);
      run = 0;
    }
  }

  template <class Encode>
  void work(const Encode& encode, WorkspacePool& pool) noexcept {
    size_t i = 0;
    try {
      WorkspacePool::Lease lease(pool);
      for (i = next_++; i < num_runs(); i = next_++) {
        IdBuffer<Id> ids = take_buffer();
        encode(documents_.slice(cuts_[i], cuts_[i + 1]), lease.get(), ids, offsets_ + cuts_[i]);
        if (!hand_in(i, std::move(ids))) return;
      }
    } catch (...) {
      fail(i);
    }
  }

  IdBuffer<Id> take_buffer() {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) return {};
    IdBuffer<Id> ids = std::move(idle_.back());
    idle_.pop_back();
    ids.clear();
    return ids;
  }

  // Copies the runs whose place is known now: this one, those that wait for it, or none yet.
  // Returns false if a run has failed.
  bool hand_in(size_t i, IdBuffer<Id> ids) {
    {
      std::unique_lock lock(mutex_);
      waiting_[i] = std::move(ids);
      is_done_[i] = true;
      // Limits the ids that wait for a single slow thread.
      changed_.wait(lock, [&] { return i < placed_ + kMostAhead || failure_; });
    }
    while (place_next()) {
    }
    const std::lock_guard lock(mutex_);
    return !failure_;
  }

  bool place_next() {
    size_t i;
    IdBuffer<Id> ids;
    Id* out;
    int64_t before;
    {
      const std::lock_guard lock(mutex_);
      if (failure_ || placed_ == num_runs() || !is_done_[placed_]) return false;
      i = placed_++;
      ids = std::move(waiting_[i]);
      out = ids_.end();
      before = static_cast<int64_t>(ids_.size());
      ids_.advance(ids.size());
    }
    changed_.notify_all();
    std::copy_n(ids.data(), ids.size(), out);
    for (size_t k = cuts_[i]; k < cuts_[i + 1]; ++k) offsets_[k] += before;
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(ids));
    return true;
  }

  // The failure of the first run counts, as in one thread. All earlier runs are already being
  // processed.
  void fail(size_t i) {
    {
      const std::lock_guard lock(mutex_);
      if (!failure_ || i < failed_) {
        failure_ = std::current_exception();
        failed_ = i;
      }
    }
    next_ = num_runs();
    changed_.notify_all();
  }

  const Documents documents_;
  IdBuffer<Id>& ids_;
  int64_t* offsets_;
  std::vector<size_t> cuts_;
  std::atomic<size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t placed_ = 0;  // number of runs whose place is known
  std::vector<IdBuffer<Id>> waiting_;
  std::vector<bool> is_done_;
  std::vector<IdBuffer<Id>> idle_;
  std::exception_ptr failure_;
  size_t failed_ = 0;
};

// Encodes documents in up to num_threads threads. Each has at most `growth` ids per byte, and
// `affixes` more.
template <class Id, class Documents, class Encode>
void encode_in_threads(const Encode& encode, WorkspacePool& pool, const Documents& documents,
                       size_t growth, size_t affixes, size_t num_threads, IdBuffer<Id>& ids,
                       int64_t* offsets) {
  constexpr size_t kMostBytes = size_t{1} << 28;  // for which room is made at a time
  if (num_threads <= 1) {
    WorkspacePool::Lease lease(pool);
    encode(documents, lease.get(), ids, offsets);
    return;
  }
  for (size_t from = 0, to; from < documents.n; from = to) {
    size_t most_ids = 0;
    for (to = from; to < documents.n && (to == from || most_ids < kMostBytes); ++to) {
      most_ids += documents.bytes_of(to) * growth + affixes;
    }
    ParallelEncoding<Id, Documents>(encode, pool, documents.slice(from, to), most_ids, num_threads,
                                    ids, offsets + from);
  }
}

}  // namespace bpe
