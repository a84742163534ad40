// Turns an exception into a one-sentence message and an exit code.
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
