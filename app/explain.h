// Which sentence and which exit code an exception becomes.
#pragma once

#include "base/error.h"

#include <exception>
#include <string>

namespace trainopt {

struct Explained {
  std::string message;
  ExitCode code;
};
Explained explain(const std::exception& error);

}  // namespace trainopt
