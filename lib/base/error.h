// Two kinds of error. UserError: something outside the program is wrong (recipe, data, disk); main prints its sentence
// and exits with its code. BrokenInvariant, thrown by the TRAINOPT_CHECK macros: a bug in the program; exit code 1.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>

namespace trainopt {

/// The documented exit codes. A run stopped by signal n after saving exits with 128 + n.
enum class ExitCode : int {
  done = 0,
  bug = 1,
  recipe = 2,
  data = 3,
  checkpoint = 4,
  memory = 5,
  diverged = 6,
  peer = 7,
  storage = 8,
  hardware = 9,
  gate = 10
};

class UserError : public std::runtime_error {
 public:
  /// `sentence`: what is wrong and what to do, values last; no full stop needed.
  explicit UserError(const std::string& sentence, ExitCode code = ExitCode::recipe)
      : std::runtime_error(sentence), code_(code) {}
  ExitCode code() const { return code_; }

 private:
  ExitCode code_;
};

class BrokenInvariant : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

[[noreturn]] void broken_invariant(const char* file, int line, const std::string& what);

}  // namespace trainopt

/// Checks a condition that only a bug can make false.
#define TRAINOPT_CHECK(condition)                                                   \
  do {                                                                              \
    if (!(condition)) ::trainopt::broken_invariant(__FILE__, __LINE__, #condition); \
  } while (false)

/// Checks equality; the message shows both operands.
#define TRAINOPT_CHECK_EQUAL(left, right)                                                                              \
  do {                                                                                                                 \
    const auto& trainopt_left = (left);                                                                                \
    const auto& trainopt_right = (right);                                                                              \
    if (!(trainopt_left == trainopt_right))                                                                            \
      ::trainopt::broken_invariant(__FILE__, __LINE__,                                                                 \
                                   fmt::format("{} == {} ({} and {})", #left, #right, trainopt_left, trainopt_right)); \
  } while (false)
