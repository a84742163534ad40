// Signals that wait to be read instead of interrupting, while the object lives.
#pragma once

#include <csignal>
#include <optional>

namespace trainopt {

class HeldSignals {
 public:
  /// Those that are passed on to ranks, and SIGCHLD. A hang-up that is ignored (nohup) stays ignored; so does a pipe
  /// without reader, from here on.
  HeldSignals();
  ~HeldSignals();
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  /// Becomes readable when there is one.
  int descriptor() const { return descriptor_; }
  std::optional<int> next();
  /// What was blocked before.
  const sigset_t& mask_before() const { return mask_before_; }

 private:
  int descriptor_ = -1;
  sigset_t mask_before_;
  struct sigaction child_before_, pipe_before_;
};

}  // namespace trainopt
