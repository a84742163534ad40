// How a tuning reads on the console and in tuned.yaml.
#pragma once

#include "app/tuning_bench.h"

#include <map>
#include <string>

namespace trainopt {

/// Ratios as people say them, for one goal.
class TuningText {
 public:
  explicit TuningText(TuningGoal goal) : goal_(goal) {}

  /// "+31.0 %", "×3.20"; of memory and price "-24 %".
  std::string gain(double ratio) const;
  /// "+31.0 % (+29.8 % to +32.4 %)"; of memory "-24 %, throughput -3.1 %". Empty if nothing was measured.
  std::string measured(const Trial& trial) const;
  /// Two lines on the console.
  std::string line_of(const TuningStep& step, size_t number) const;
  /// Markdown: every change that was tried, kept or not and why.
  std::string table_of(const Tuning& tuning) const;
  /// By key: what changed it and what it gained.
  std::map<std::string, std::string> comments(const Tuning& tuning) const;
  /// What the final comparison shows.
  std::string final_text(const CommandBench::Final& last) const;

 private:
  TuningGoal goal_;
};

Json to_json(const CommandBench::Final& last);

}  // namespace trainopt
