#include "app/explain.h"

#include <c10/util/Exception.h>

#include <new>

namespace trainopt {
namespace {

constexpr const char* kOutOfMemory = "out of memory; lower data.batch_size";

/// libtorch has no type for a CPU allocation that failed, only a text.
bool is_out_of_memory(const c10::Error& error, const std::string& message) {
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) || message.find("not enough memory") != std::string::npos ||
         message.find("can't allocate memory") != std::string::npos;
}

}  // namespace

Explained explain(const std::exception& error) {
  if (const auto* user = dynamic_cast<const UserError*>(&error)) return {user->what(), user->code()};
  if (dynamic_cast<const std::bad_alloc*>(&error)) return {kOutOfMemory, ExitCode::memory};
  if (const auto* torch = dynamic_cast<const c10::Error*>(&error)) {
    const std::string message = torch->what_without_backtrace();   // what() carries a C++ stack
    if (is_out_of_memory(*torch, message)) return {fmt::format("{}: {}", kOutOfMemory, message.substr(0, message.find('\n'))), ExitCode::memory};
    return {"libtorch: " + message, ExitCode::bug};
  }
  return {error.what(), ExitCode::bug};
}

}  // namespace trainopt
