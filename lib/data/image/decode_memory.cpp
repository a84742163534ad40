#include "data/image/decode_memory.h"

#include "base/units.h"
#include "data/image/image.h"

namespace trainopt {

/// Bytes that count in one of the memory's two sums as long as this lives. Created with the lock.
struct DecodeMemory::Bytes {
  Bytes(std::shared_ptr<DecodeMemory> of, int64_t DecodeMemory::*which, int64_t bytes)
      : memory(std::move(of)), sum(which), count(bytes) {
    (*memory).*sum += count;
  }
  ~Bytes() {
    {
      const std::lock_guard lock(memory->mutex_);
      (*memory).*sum -= count;
    }
    memory->given_back_.notify_all();
  }
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;

  std::shared_ptr<DecodeMemory> memory;
  int64_t DecodeMemory::*sum;
  int64_t count;
};

DecodeMemory::Hold DecodeMemory::reserve(const std::shared_ptr<DecodeMemory>& memory, int64_t bytes) {
  if (!memory) return nullptr;
  const std::lock_guard lock(memory->mutex_);
  return std::make_shared<const Bytes>(memory, &DecodeMemory::reserved_, bytes);
}

DecodeMemory::Hold DecodeMemory::take(const std::shared_ptr<DecodeMemory>& memory, int64_t bytes) {
  if (!memory) return nullptr;
  // The verdict must not depend on how many threads load, so it takes no account of what else is in memory.
  if (bytes > memory->limit_)
    throw BadSample(fmt::format("decoding it takes {}, more than data.memory_limit, {}; raise that key",
                                human_bytes(static_cast<double>(bytes)),
                                human_bytes(static_cast<double>(memory->limit_))));
  std::unique_lock lock(memory->mutex_);
  memory->given_back_.wait(
      lock, [&] { return memory->taken_ == 0 || bytes <= memory->limit_ - memory->reserved_ - memory->taken_; });
  return std::make_shared<const Bytes>(memory, &DecodeMemory::taken_, bytes);
}

bool DecodeMemory::is_first_very_large() { return !has_very_large_.exchange(true); }

}  // namespace trainopt
