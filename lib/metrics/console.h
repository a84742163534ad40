// Standard output: one line per step and, on a terminal, a progress line that stays at the bottom.
#pragma once

#include "base/clock.h"
#include "metrics/config.h"
#include "metrics/record.h"

#include <cstdint>
#include <string>
#include <string_view>

namespace trainopt {

struct ConsoleOptions {
  int fd = 1;
  bool terminal = false;                    ///< fd is a terminal (isatty)
  bool color = false;                       ///< a terminal, and neither NO_COLOR nor --no-color
  Progress progress = Progress::automatic;  ///< on: even if fd is not a terminal
  int64_t total_steps = 0;                  ///< 0: unknown, so the remaining time is not shown
};

/// For one thread only. Writes at most ten times a second; lines in between wait for the next call. If the reader goes
/// away (EPIPE), output is discarded and training is not affected.
class Console {
 public:
  explicit Console(ConsoleOptions options) : options_(options) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// Adds a line; `text` has no newline.
  void line(std::string_view text);
  /// Advances the progress after a step, and adds the line `text` unless it is empty.
  void step(const StepRecord& row, std::string_view text);
  /// Removes the progress line and writes all pending lines. The next line() shows the progress again.
  void flush();

 private:
  bool shows_progress() const {
    return options_.progress == Progress::on || (options_.progress == Progress::automatic && options_.terminal);
  }
  void draw_if_due();
  std::string progress_text() const;
  size_t columns() const;
  void write(std::string_view bytes);

  ConsoleOptions options_;
  std::string pending_;
  Clock::time_point started_, drawn_at_;
  int64_t first_step_ = 0, step_ = 0;
  double samples_per_s_ = 0;
  bool progress_shown_ = false, closed_ = false;
};

}  // namespace trainopt
