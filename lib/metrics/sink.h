// What every output for step records is.
#pragma once

#include "base/json.h"
#include "metrics/record.h"

#include <cstdint>
#include <string>

namespace trainopt {

/// A sink that has no place for something other than records ignores it.
class Sink {
 public:
  virtual ~Sink() = default;
  virtual void write(const StepRecord& row) = 0;
  virtual void flush() = 0;
  /// Lines, or records of a binary file, dropped because of a full disk.
  virtual int64_t dropped_lines() const { return 0; }

  /// Called before the first row with the resolved recipe.
  virtual void run_began(const Json& /*recipe*/, const std::string& /*recipe_yaml*/) {}
  /// `evaluation` is an object whose numbers have names with units.
  virtual void evaluated(int64_t /*step*/, const Json& /*evaluation*/) {}
  /// Called after the last row with the content of summary.json.
  virtual void run_ended(const Json& /*summary*/) {}
};

}  // namespace trainopt
