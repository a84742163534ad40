// CPU tensors from memory that is kept. glibc's malloc gives every block above 32 MiB back to the kernel, and what lies
// free at the heap's end too, so that a training step touches tens of thousands of new pages, each a fault and 4 KiB of
// zeros.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <map>
#include <mutex>

namespace trainopt {

/// Large blocks are kept when they are freed and given out again to requests of nearly their size; small ones are left
/// to malloc. Memory in use grows to the largest that was ever needed at once, and a little more. Safe to use from many
/// threads.
class CachingAllocator : public c10::Allocator {
 public:
  /// From this size on a block is kept.
  static constexpr size_t kSmallestKept = size_t{256} << 10;

  /// Must outlive every tensor made from it. `huge_pages`: ask the kernel for 2 MiB pages.
  explicit CachingAllocator(bool huge_pages) : huge_pages_(huge_pages) {}

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override { return &CachingAllocator::give_back; }
  void copy_data(void* to, const void* from, std::size_t count) const override { default_copy_data(to, from, count); }

  struct Figures {
    int64_t held_bytes = 0;   ///< taken from the kernel, in use or kept
    int64_t given = 0;        ///< requests served
    int64_t given_again = 0;  ///< of them from kept blocks
  };
  Figures figures() const;

 private:
  /// In front of every block. A deleter is told only the data's address (oneDNN frees that way), so the rest must lie
  /// beside it.
  struct alignas(64) Header {
    CachingAllocator* owner;  ///< null: from malloc
    void* start;              ///< what malloc or the kernel gave
    size_t bytes;             ///< with the header
  };
  static void give_back(void* data);
  Header* take_kept(size_t bytes);
  Header* map_new(size_t bytes);

  bool huge_pages_;
  mutable std::mutex mutex_;
  std::multimap<size_t, Header*> kept_;  // by size
  Figures figures_;
};

/// Puts a CachingAllocator under all CPU tensors that this process makes from now on. A second call does nothing.
void install_caching_allocator(bool huge_pages);
/// The one installed, or nullptr.
const CachingAllocator* installed_caching_allocator();

}  // namespace trainopt
