#include "base/files/mapped_file.h"

#include "base/files/file_calls.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <vector>

namespace trainopt {

/// Where a file is mapped.
struct MappedRange {
  std::atomic<uintptr_t> begin{0}, end{0};  ///< whole pages; equal: none is
  std::atomic<bool> reads_zeros{false};
  const MappedFile* file = nullptr;
  MappedRange* next = nullptr;
};

namespace {

// The signal's handler may walk the list at any time, on any thread, so entries are never removed, only used again.
std::atomic<MappedRange*> all_ranges{nullptr};
std::atomic<int64_t> ranges_with_zeros{0};
static_assert(std::atomic<uintptr_t>::is_always_lock_free && std::atomic<MappedRange*>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
struct sigaction default_effect {};

/// What the handler does not use. Never destroyed: static objects may hold mapped files.
struct RangePool {
  std::mutex mutex;
  std::vector<MappedRange*> unused;
};
RangePool& pool() {
  static RangePool& only = *new RangePool;
  return only;
}

uintptr_t page_bytes() { return static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)); }

/// Puts pages of zeros from `address` to the end of its range. False if it lies in none.
bool read_as_zeros(uintptr_t address) {
  for (MappedRange* range = all_ranges.load(); range != nullptr; range = range->next) {
    // In the opposite order of the writes, so that both belong to one mapping or the range is taken for empty.
    const uintptr_t begin = range->begin.load(), end = range->end.load();
    if (begin == 0 || address < begin || address >= end || range->begin.load() != begin) continue;
    const uintptr_t page = address - address % page_bytes();
    // The count first: whoever reads zeros must find it.
    if (!range->reads_zeros.exchange(true)) ++ranges_with_zeros;
    // The kernel's own call: mmap() is not promised to a handler, and to ThreadSanitizer it is a write.
    return ::syscall(SYS_mmap, page, end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0L) != -1;
  }
  return false;
}

/// Runs on the thread that read the page; the page's address is where it read.
void on_bus_error(int signal, siginfo_t* info, void*) {
  const int error = errno;
  if (info->si_code == BUS_ADRERR && read_as_zeros(reinterpret_cast<uintptr_t>(info->si_addr))) {
    errno = error;
    return;
  }
  // Not of a mapped file, so it has the effect that it had. It is blocked here, and comes when this returns.
  ::sigaction(signal, &default_effect, nullptr);
  ::raise(signal);
}

void handle_bus_errors() {
  [[maybe_unused]] static const bool once = [] {
    struct sigaction action {};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigemptyset(&action.sa_mask);
    return ::sigaction(SIGBUS, &action, &default_effect) == 0;
  }();
}

MappedRange* take_range(const MappedFile& file) {
  handle_bus_errors();
  const auto begin = reinterpret_cast<uintptr_t>(file.bytes().data());
  const std::lock_guard lock(pool().mutex);
  MappedRange* range = nullptr;
  if (pool().unused.empty()) {
    range = new MappedRange;
    range->next = all_ranges.load();
    all_ranges = range;
  } else {
    range = pool().unused.back();
    pool().unused.pop_back();
  }
  range->file = &file;
  range->end = begin + (file.bytes().size() + page_bytes() - 1) / page_bytes() * page_bytes();
  range->begin = begin;
  return range;
}

void give_back(MappedRange& range) {
  const std::lock_guard lock(pool().mutex);
  range.begin = 0;
  range.end = 0;
  if (range.reads_zeros.exchange(false)) --ranges_with_zeros;
  range.file = nullptr;
  pool().unused.push_back(&range);
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path, ExitCode code)
    : path_(path), code_(code), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) throw FileError("read", path, errno, code);
  try {
    struct stat status {};
    if (::fstat(fd_, &status) != 0) throw FileError("read", path, errno, code);
    if (!S_ISREG(status.st_mode)) throw UserError(fmt::format("not a regular file: {}", path.string()), code);
    changed_ns_ = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
    if (status.st_size == 0) return;  // cannot be mapped
    const auto bytes = static_cast<size_t>(status.st_size);
    void* const mapped = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd_, 0);
    if (mapped == MAP_FAILED) throw FileError("map", path, errno, code);
    bytes_ = {static_cast<const uint8_t*>(mapped), bytes};
    range_ = take_range(*this);
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (range_ != nullptr) {
    give_back(*range_);
    ::munmap(const_cast<uint8_t*>(bytes_.data()), bytes_.size());
  }
  ::close(fd_);
}

void MappedFile::require_whole() const {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) throw FileError("read", path_, errno, code_);
  if (status.st_size < size())
    throw UserError(fmt::format("{} became shorter while it was read: {} bytes, before {}", path_.string(),
                                int64_t{status.st_size}, size()),
                    code_);
  if (range_ != nullptr && range_->reads_zeros.load())
    throw UserError(
        fmt::format("a part of {} could not be read: it was shorter for a while, or its disk failed", path_.string()),
        code_);
}

void require_mapped_files_whole() {
  if (ranges_with_zeros.load() == 0) return;
  const std::lock_guard lock(pool().mutex);
  for (const MappedRange* range = all_ranges.load(); range != nullptr; range = range->next)
    if (range->file != nullptr && range->reads_zeros.load()) range->file->require_whole();
}

}  // namespace trainopt
