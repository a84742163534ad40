#include "run/explain.h"

#include "base/threads.h"
#include "device/gpu_error.h"
#include "device/memory.h"

#include <c10/util/Exception.h>

#include <algorithm>

namespace trainopt {
namespace {

constexpr const char* kOutOfMemory = "out of memory; lower data.batch_size";

/// ": tried to allocate 20.00 MiB", from "… Tried to allocate 20.00 MiB. GPU 0 has …" or "… you tried to allocate 4000
/// bytes. Error code 12 …".
std::string amount_tried(const std::string& message) {
  const size_t at = message.find("ried to allocate ");
  if (at == std::string::npos) return "";
  return ": t" + message.substr(at, std::min(message.find(". ", at), message.find('\n', at)) - at);
}

}  // namespace

Explained explain(const std::exception& error) {
  if (const auto* user = dynamic_cast<const UserError*>(&error)) return {user->what(), user->code()};
  if (const auto fault = gpu_fault(error)) {
    const GpuLost lost(*fault, "");
    return {lost.what(), lost.code()};
  }
  if (is_out_of_threads(error)) return {out_of_threads_text(), ExitCode::memory};
  const bool memory = is_out_of_memory(error);
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const std::string message = torch->what_without_backtrace();  // what() includes a C++ stack
    if (memory) return {kOutOfMemory + amount_tried(message), ExitCode::memory};
    return {"libtorch: " + message, ExitCode::bug};
  }
  return memory ? Explained{kOutOfMemory, ExitCode::memory} : Explained{error.what(), ExitCode::bug};
}

}  // namespace trainopt
