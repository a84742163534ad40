// Runs CUDA kernels as functions on the host: the counterpart of on_device.cuh, to be included before the kernels. Each
// thread of a block is a fiber that runs until a barrier or its end and then yields to the next. Out-of-bounds accesses
// are real here, so AddressSanitizer finds them; ThreadSanitizer does not support fibers. One host thread at a time.
#pragma once

#include "kernels/dtype.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <ucontext.h>
#include <utility>
#include <vector>

#define __global__
#define __device__
#define __grid_constant__
#define __launch_bounds__(...)
#define TRAINOPT_UNROLL
#define TRAINOPT_NO_UNROLL

namespace trainopt::test {

/// Thrown where a GPU would hang or its behaviour is undefined.
class BrokenKernel : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

class GridOnHost {
 public:
  /// Runs blocks and threads from last to first. A kernel whose result then changes lacks a barrier, or its blocks
  /// depend on each other.
  bool backwards = false;
  unsigned block = 0, thread = 0;
  int launches = 0;

  void run(int64_t blocks, int threads, const std::function<void()>& kernel) {
    constexpr int kMaxThreads = 1024;
    if (blocks < 1 || blocks > 0x7fffffff || threads < 1 || threads > kMaxThreads)
      throw BrokenKernel("a grid that no GPU supports");
    ++launches;
    for (int64_t i = 0; i < blocks; ++i) {
      block = static_cast<unsigned>(backwards ? blocks - 1 - i : i);
      run_block(threads, kernel);
    }
  }

  void barrier() {
    fibers_[thread]->waits = true;
    back_to_scheduler();
  }

  /// The block's shared memory of exactly `bytes`, at first full of NaN; `name` identifies it within the kernel.
  void* shared(const void* name, size_t bytes) {
    constexpr size_t kMaxSharedBytes = 48 << 10;
    auto& memory = shared_memory_[name];
    if (!memory) {
      memory.reset(new double[(bytes + sizeof(double) - 1) / sizeof(double)]);
      std::memset(memory.get(), 0xff, bytes);
      shared_bytes_ += bytes;
    }
    if (shared_bytes_ > kMaxSharedBytes) throw BrokenKernel("more shared memory than every GPU provides");
    return memory.get();
  }

 private:
  struct Fiber {
    static constexpr size_t kStack = 128 << 10;
    ucontext_t context{};
    std::unique_ptr<char[]> stack{new char[kStack]};
    bool waits = false, done = false;
  };

  void back_to_scheduler() { swapcontext(&fibers_[thread]->context, &scheduler_); }

  /// Entry point of a fiber, without arguments because makecontext() cannot pass a pointer.
  static void enter();

  void run_block(int threads, const std::function<void()>& kernel) {
    shared_memory_.clear();
    shared_bytes_ = 0;
    kernel_ = &kernel;
    while (fibers_.size() < static_cast<size_t>(threads)) fibers_.push_back(std::make_unique<Fiber>());
    for (int i = 0; i < threads; ++i) {
      Fiber& fiber = *fibers_[static_cast<size_t>(i)];
      fiber.done = false;
      getcontext(&fiber.context);
      fiber.context.uc_stack.ss_sp = fiber.stack.get();
      fiber.context.uc_stack.ss_size = Fiber::kStack;
      makecontext(&fiber.context, &GridOnHost::enter, 0);
    }
    int done = 0;
    while (done < threads) {
      int waiting = 0;
      for (int i = 0; i < threads; ++i) {
        thread = static_cast<unsigned>(backwards ? threads - 1 - i : i);
        Fiber& fiber = *fibers_[thread];
        if (fiber.done) continue;
        fiber.waits = false;
        swapcontext(&scheduler_, &fiber.context);
        waiting += fiber.waits;
        done += fiber.done;
        if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
      }
      if (waiting > 0 && done > 0) throw BrokenKernel("not every thread reaches __syncthreads()");
    }
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::map<const void*, std::unique_ptr<double[]>> shared_memory_;
  size_t shared_bytes_ = 0;
  const std::function<void()>* kernel_ = nullptr;
  ucontext_t scheduler_{};
  std::exception_ptr thrown_;  ///< by a fiber, whose stack an exception cannot leave
};

inline GridOnHost grid_on_host;

inline void GridOnHost::enter() {
  try {
    (*grid_on_host.kernel_)();
  } catch (...) {
    grid_on_host.thrown_ = std::current_exception();
  }
  grid_on_host.fibers_[grid_on_host.thread]->done = true;
  grid_on_host.back_to_scheduler();  // never returns
}

struct BlockIndex {
  struct {
    operator unsigned() const { return grid_on_host.block; }
  } x;
};
struct ThreadIndex {
  struct {
    operator unsigned() const { return grid_on_host.thread; }
  } x;
};

}  // namespace trainopt::test

const trainopt::test::BlockIndex blockIdx;
const trainopt::test::ThreadIndex threadIdx;
inline void __syncthreads() { trainopt::test::grid_on_host.barrier(); }

namespace trainopt::kernels {
namespace {

inline float wide(float number) { return number; }
inline float wide(BFloat16 number) { return c10::BFloat16(number.bits, c10::BFloat16::from_bits()); }
inline float wide(Float16 number) { return c10::Half(number.bits, c10::Half::from_bits()); }

template <class T, int kWidth>
Pack<float, kWidth> widened(const Pack<T, kWidth>& pack) {
  Pack<float, kWidth> floats;
  for (int i = 0; i < kWidth; ++i) floats.values[i] = wide(pack.values[i]);
  return floats;
}

inline float with_sign_of(float of, float number) { return std::signbit(of) ? -number : number; }

inline float fast_exp2(float x) { return std::exp2(x); }

inline float fast_reciprocal(float x) { return 1 / x; }

inline uint32_t words_shifted(uint32_t low, uint32_t high, unsigned bits) {
  return static_cast<uint32_t>((uint64_t{high} << 32 | low) >> bits);
}

inline void narrow(float number, float& to) { to = number; }
inline void narrow(float number, BFloat16& to) { to.bits = c10::BFloat16(number).x; }
inline void narrow(float number, Float16& to) { to.bits = c10::Half(number).x; }

inline void check_aligned(const void* pointer, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(pointer) % bytes != 0)
    throw test::BrokenKernel("a pack whose address is not a multiple of its size");
}
template <class P>
P read(const void* from) {
  check_aligned(from, alignof(P));
  return *static_cast<const P*>(from);
}
template <class T>
T read_constant(const T* from) {
  check_aligned(from, sizeof(T));
  return *from;
}
template <class P>
void write(void* to, const P& pack) {
  check_aligned(to, alignof(P));
  *static_cast<P*>(to) = pack;
}

template <class T, int kCount>
T* shared_memory() {
  static const char name = 0;
  return static_cast<T*>(test::grid_on_host.shared(&name, kCount * sizeof(T)));
}

template <class... Parameters, class... Arguments>
void launch(void*, int64_t blocks, int threads, void (*kernel)(Parameters...), const Arguments&... arguments) {
  test::grid_on_host.run(blocks, threads, [&] { kernel(arguments...); });
}

}  // namespace
}  // namespace trainopt::kernels
