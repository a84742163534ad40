// Standard output: one line a step and, on a terminal, a progress line that stays at the bottom.
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
  bool terminal = false;                    ///< fd is one (isatty)
  bool color = false;                       ///< a terminal, and neither NO_COLOR nor --no-color
  Progress progress = Progress::automatic;  ///< on: also where no terminal was recognised
  int64_t total_steps = 0;                  ///< 0: not known, so no time left
};

/// Used by one thread. Lines are gathered for at most a tenth of a second; a reader that went away (EPIPE) is never
/// noticed by training.
class Console {
 public:
  explicit Console(ConsoleOptions options) : options_(options) {}
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  /// A line of its own, without its newline.
  void line(std::string_view text);
  /// A step is done: moves the progress on, with or without (empty) a line of its own.
  void step(const StepRecord& row, std::string_view text);
  /// Takes the progress line away and writes everything; the next line() brings the progress back.
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
