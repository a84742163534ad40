#include "metrics/thread_stacks.h"

#include "base/clock.h"
#include "base/blocked_signals.h"

#include <fmt/format.h>

#include <cxxabi.h>
#include <dirent.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>

namespace trainopt {
namespace {

constexpr double kAnswerSeconds = 1.0;

/// Where an interrupted thread stores its stack. Global because a signal handler can reach nothing else.
struct StackRequest {
  static constexpr pid_t kNobody = 0, kWriting = -1, kWritten = -2;
  std::atomic<pid_t> wanted{kNobody};  ///< the thread whose stack is requested, or one of the above
  std::array<void*, 256> frames;
  int count = 0;
  const void* interrupted_at = nullptr;
};
StackRequest slot;
static_assert(std::atomic<pid_t>::is_always_lock_free);

void record_stack(int, siginfo_t*, void* context) {
  const int error = errno;
  auto me = static_cast<pid_t>(::syscall(SYS_gettid));
  if (slot.wanted.compare_exchange_strong(
          me, StackRequest::kWriting)) {  // fails for a late answer, whose request has expired
    slot.interrupted_at = reinterpret_cast<const void*>(static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_RIP]);
    slot.count = ::backtrace(slot.frames.data(), static_cast<int>(slot.frames.size()));
    slot.wanted.store(StackRequest::kWritten, std::memory_order_release);
  }
  errno = error;
}

std::string text_of(int thread, const char* file) {
  std::ifstream stream(fmt::format("/proc/self/task/{}/{}", thread, file));
  return {std::istreambuf_iterator<char>(stream), {}};
}

/// The word after `field`, such as "State", in the text of /proc's status.
std::string status_word(const std::string& status, const std::string& field) {
  const size_t at = status.find("\n" + field + ":\t");
  if (at == std::string::npos) return {};
  const size_t begin = at + field.size() + 3;
  return status.substr(begin, status.find_first_of(" \n", begin) - begin);
}

bool blocks_stack_signal(const std::string& status) {
  const std::string mask = status_word(status, "SigBlk");
  uint64_t bits = 0;
  std::from_chars(mask.data(), mask.data() + mask.size(), bits, 16);
  return bits >> (stack_signal() - 1) & 1;
}

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> text(abi::__cxa_demangle(name, nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

std::string frame_text(const char* address) {
  Dl_info info{};
  if (::dladdr(address, &info) == 0 || !info.dli_fname) return fmt::format("{}", static_cast<const void*>(address));
  const char* slash = std::strrchr(info.dli_fname, '/');
  const char* library = slash ? slash + 1 : info.dli_fname;
  if (info.dli_sname)
    return fmt::format("{}+{:#x} ({})", demangled(info.dli_sname), address - static_cast<const char*>(info.dli_saddr),
                       library);
  return fmt::format("{}+{:#x}", library, address - static_cast<const char*>(info.dli_fbase));
}

std::vector<std::string> frame_texts() {
  const auto end = slot.frames.begin() + slot.count;
  auto frame = std::find(slot.frames.begin(), end,
                         slot.interrupted_at);  // frames before it belong to the signal handler
  if (frame == end) frame = slot.frames.begin();
  std::vector<std::string> texts;
  // All but the innermost are return addresses; the byte before is still in the call.
  for (; frame != end; ++frame) texts.push_back(frame_text(static_cast<const char*>(*frame) - (texts.empty() ? 0 : 1)));
  return texts;
}

/// nullopt if the thread answered, else the reason why not.
std::optional<std::string> ask(pid_t thread, const std::string& state) {
  if (slot.wanted == StackRequest::kWriting) return "another thread is still storing its stack";
  slot.wanted = thread;
  if (::syscall(SYS_tgkill, ::getpid(), thread, stack_signal()) != 0) {
    slot.wanted = StackRequest::kNobody;
    return std::string(errno == ESRCH ? "it has exited" : std::strerror(errno));
  }
  // A thread in an uninterruptible wait does not receive the signal, but the wait may end soon.
  const double timeout_s = state == "D" ? kAnswerSeconds / 10 : kAnswerSeconds;
  for (const auto requested_at = Clock::now(); seconds_since(requested_at) < timeout_s;
       std::this_thread::sleep_for(std::chrono::milliseconds(1)))
    if (slot.wanted.load(std::memory_order_acquire) == StackRequest::kWritten) return std::nullopt;
  if (slot.wanted.compare_exchange_strong(thread, StackRequest::kNobody))
    return fmt::format("it did not answer within {:g} s", timeout_s);
  return slot.wanted.load(std::memory_order_acquire) == StackRequest::kWritten
             ? std::nullopt
             : std::optional<std::string>("it did not finish storing its stack");
}

ThreadStack stack_of(pid_t id) {
  ThreadStack thread{.id = id,
                     .name = text_of(id, "comm"),
                     .state = {},
                     .waits_in = text_of(id, "wchan"),
                     .frames = {},
                     .no_stack = {}};
  if (thread.name.ends_with('\n')) thread.name.pop_back();
  if (thread.waits_in == "0") thread.waits_in.clear();
  const std::string status = text_of(id, "status");
  thread.state = status_word(status, "State");
  if (blocks_stack_signal(status))
    thread.no_stack = "it blocks all signals";
  else if (const auto reason = ask(id, thread.state))
    thread.no_stack = *reason;
  else
    thread.frames = frame_texts();
  return thread;
}

}  // namespace

void prepare_thread_stacks() {
  void* frame = nullptr;
  ::backtrace(&frame, 1);  // the first call loads a library, which a signal handler must not do
  struct sigaction action {};
  action.sa_sigaction = record_stack;
  action.sa_flags = SA_SIGINFO | SA_RESTART;
  sigfillset(&action.sa_mask);
  ::sigaction(stack_signal(), &action, nullptr);  // permanent: without it, a late signal would end the process
}

std::vector<ThreadStack> thread_stacks() {
  prepare_thread_stacks();
  std::vector<pid_t> ids;
  if (DIR* tasks = ::opendir("/proc/self/task")) {
    while (const dirent* entry = ::readdir(tasks))
      if (const pid_t id = std::atoi(entry->d_name); id > 0) ids.push_back(id);
    ::closedir(tasks);
  }
  std::vector<ThreadStack> threads;
  for (const pid_t id : ids) threads.push_back(stack_of(id));
  return threads;
}

Json to_json(const ThreadStack& thread) {
  Json json = {{"tid", thread.id}, {"name", thread.name}, {"state", thread.state}};
  if (!thread.waits_in.empty()) json["waits_in"] = thread.waits_in;
  json["stack"] = thread.frames;
  if (!thread.no_stack.empty()) json["no_stack"] = thread.no_stack;
  return json;
}

}  // namespace trainopt
