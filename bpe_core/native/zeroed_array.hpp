// A large array of zeros that costs no memory until it is written to, in huge pages if the system
// has them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace bpe {

// T must be trivial, with all-zero bytes as a valid value.
template <class T>
class ZeroedArray {
 public:
  ZeroedArray() = default;
  // small_pages: use small pages for this many bytes at the start, which may be all that is used.
  explicit ZeroedArray(size_t size, [[maybe_unused]] size_t small_pages = 0) : size_(size) {
    const size_t bytes = size * sizeof(T);
#if defined(__linux__)
    if (bytes >= kHugePage) {
      mapped_ = (bytes + kHugePage - 1) / kHugePage * kHugePage;
      void* memory =
          mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (memory == MAP_FAILED) throw std::bad_alloc();
      madvise(static_cast<char*>(memory) + small_pages, mapped_ - small_pages, MADV_HUGEPAGE);
      data_ = static_cast<T*>(memory);
      return;
    }
#endif
    // A multiple of the alignment, and not zero.
    const size_t rounded = (bytes / kAlignment + 1) * kAlignment;
    data_ = static_cast<T*>(std::aligned_alloc(kAlignment, rounded));
    if (data_ == nullptr) throw std::bad_alloc();
    std::memset(static_cast<void*>(data_), 0, rounded);
  }
  ZeroedArray(ZeroedArray&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_(std::exchange(other.size_, 0)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  ZeroedArray& operator=(ZeroedArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(mapped_, other.mapped_);
    return *this;
  }
  ~ZeroedArray() {
#if defined(__linux__)
    if (mapped_ != 0) {
      munmap(data_, mapped_);
      return;
    }
#endif
    std::free(data_);
  }

  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  static constexpr size_t kHugePage = size_t{2} << 20;
  static constexpr size_t kAlignment = 64;
  static_assert(alignof(T) <= kAlignment);

  T* data_ = nullptr;
  size_t size_ = 0;
  size_t mapped_ = 0;
};

}  // namespace bpe
