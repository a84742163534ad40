#include "app/allocator_variables.h"

#include "base/error.h"
#include "device/cuda_library.h"
#include "device/device_allocator.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace trainopt {
namespace {

const char* allocator_variable = nullptr;  // NAME=value, in the environment
std::terminate_handler earlier_handler = nullptr;

[[noreturn]] void end_with_the_variable() {
  ::dprintf(STDERR_FILENO,
            "trainopt: libtorch cannot read this variable; correct it to option:value,option:value or unset it: %s\n",
            allocator_variable);
  ::_exit(static_cast<int>(ExitCode::recipe));
}

[[noreturn]] void explain_allocator_variable() {
  try {
    if (const auto thrown = std::current_exception()) std::rethrow_exception(thrown);
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), "AllocatorConfig")) end_with_the_variable();
  } catch (...) {  // not libtorch's; the earlier handler reports it
  }
  earlier_handler();
  std::abort();
}

}  // namespace

void explain_allocator_variables(char** environment) {
  for (const std::string_view name : kDeviceAllocatorVariables)  // libtorch reads the first that is set
    for (char** entry = environment; *entry && !allocator_variable; ++entry)
      if (std::strncmp(*entry, name.data(), name.size()) == 0 && (*entry)[name.size()] == '=')
        allocator_variable = *entry;
  if (allocator_variable) earlier_handler = std::set_terminate(explain_allocator_variable);
}

void check_allocator_variables() {
  if (!allocator_variable || cuda_table()) return;
  try {
    read_device_allocator_settings();
  } catch (const std::exception&) {  // libtorch has no specific exception type
    end_with_the_variable();
  }
}

}  // namespace trainopt
