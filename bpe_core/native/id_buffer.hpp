// A growing array of ids.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

#include "spare_memory.hpp"

namespace bpe {

template <class Id>
class IdBuffer {
 public:
  IdBuffer() = default;
  IdBuffer(const IdBuffer&) = delete;
  IdBuffer& operator=(const IdBuffer&) = delete;
  IdBuffer(IdBuffer&& other) noexcept
      : block_(std::exchange(other.block_, {})), size_(std::exchange(other.size_, 0)) {}
  IdBuffer& operator=(IdBuffer&& other) noexcept {
    std::swap(block_, other.block_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~IdBuffer() {
    touch();
    give_memory(block_);
  }

  // Makes room for `more` ids; they are written through end() and counted by advance(). Memory that
  // is not written to costs nothing.
  void reserve_more(size_t more) {
    const size_t capacity = block_.bytes / sizeof(Id);
    if (size_ + more > capacity) [[unlikely]]
      grow(std::max(size_ + more, capacity + capacity / 2));
  }
  Id* end() { return static_cast<Id*>(block_.data) + size_; }
  void advance(size_t n) { size_ += n; }
  void push_back(Id id) {
    reserve_more(1);
    *end() = id;
    advance(1);
  }
  void clear() {
    touch();
    size_ = 0;
  }

  size_t size() const { return size_; }
  const Id* data() const { return static_cast<const Id*>(block_.data); }

 private:
  void touch() { block_.touched = std::max(block_.touched, size_ * sizeof(Id)); }

  void grow(size_t capacity) {
    if (block_.data == nullptr) {
      block_ = take_memory(capacity * sizeof(Id));
      return;
    }
    void* const moved = std::realloc(block_.data, capacity * sizeof(Id));
    if (moved == nullptr) throw std::bad_alloc();
    block_.data = moved;
    block_.bytes = capacity * sizeof(Id);
  }

  MemoryBlock block_;
  size_t size_ = 0;
};

}  // namespace bpe
