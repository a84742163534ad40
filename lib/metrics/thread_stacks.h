// Where every thread of this process is right now: for the report of a run that hangs.
#pragma once

#include "base/json.h"

#include <string>
#include <vector>

namespace trainopt {

struct ThreadStack {
  int id = 0;               ///< as gdb and /proc name it
  std::string name, state;  ///< "loader 3"; "S", "R", "D": /proc's letters
  std::string waits_in;     ///< the kernel's function, where the kernel says it
  std::vector<std::string>
      frames;            ///< innermost first: "function+0x12 (library)", or "library+0x3f20" for addr2line -e library
  std::string no_stack;  ///< why there are no frames
};

/// Once, early: what taking stacks needs is loaded, and the handler of stack_signal() installed for good.
void prepare_thread_stacks();
/// All threads, this one included. Each has a second to answer stack_signal(). One caller at a time.
std::vector<ThreadStack> thread_stacks();

Json to_json(const ThreadStack& thread);

}  // namespace trainopt
