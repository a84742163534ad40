// The name of this machine, for messages and reports.
#pragma once

#include <string>

#include <unistd.h>

namespace trainopt {

inline std::string host_name() {
  char name[256] = "?";
  ::gethostname(name, sizeof name - 1);
  return name;
}

}  // namespace trainopt
