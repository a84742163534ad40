// The stacks of all threads of this process, for the report of a run that hangs.
#pragma once

#include "base/json.h"

#include <string>
#include <vector>

namespace trainopt {

struct ThreadStack {
  int id = 0;               ///< the thread id that gdb and /proc use
  std::string name, state;  ///< "loader 3"; "S", "R", "D": /proc's letters
  std::string waits_in;     ///< the kernel function, if the kernel reports it
  std::vector<std::string>
      frames;            ///< innermost first: "function+0x12 (library)", or "library+0x3f20" for addr2line -e library
  std::string no_stack;  ///< why there are no frames
};

/// Call once, early: loads what taking stacks needs and permanently installs the handler of stack_signal().
void prepare_thread_stacks();
/// The stacks of all threads, including this one. Each has a second to answer stack_signal(). One caller at a time.
std::vector<ThreadStack> thread_stacks();

Json to_json(const ThreadStack& thread);

}  // namespace trainopt
