// A wait of a rank for others, before the job has begun.
#pragma once

#include "base/clock.h"

#include <string>

namespace trainopt {

struct RendezvousOptions;

class MeetingWait {
 public:
  /// `options` must outlive the wait.
  explicit MeetingWait(const RendezvousOptions& options) : options_(options) {}

  double seconds() const { return seconds_since(began_); }
  /// To be called again and again while waiting for `awaited`, such as "ranks 1, 2 of 4". After three seconds, and then
  /// each minute, warns who is awaited, since when, and which variables of the launcher say that there are such ranks.
  /// Throws UserError once the user asks for a stop; its code is 128 + the signal's number.
  void still(const std::string& awaited);
  /// The part of a message that shows the launcher's variables; empty without any.
  std::string variables() const;

 private:
  const RendezvousOptions& options_;
  const Clock::time_point began_ = Clock::now();
  double next_warning_s_ = 3;
};

}  // namespace trainopt
