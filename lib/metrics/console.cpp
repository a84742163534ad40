#include "metrics/console.h"

#include "base/print.h"
#include "base/status_line.h"
#include "metrics/format.h"
#include "metrics/line_file.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr double kDrawSeconds = 0.1;
constexpr int kBarCells = 24;

}  // namespace

Console::~Console() { flush(); }

void Console::line(std::string_view text) {
  pending_ += printable(text);
  pending_ += '\n';
  draw_if_due();
}

void Console::step(const StepRecord& row, std::string_view text) {
  step_ = row.step();
  if (first_step_ == 0) {
    // The first step is slow because of lazy initialisation, so the remaining time is estimated from the steps after
    // it.
    first_step_ = step_;
    started_ = Clock::now();
  }
  if (row[Metric::samples_per_s]) samples_per_s_ = *row[Metric::samples_per_s];
  if (!text.empty()) pending_.append(text) += '\n';
  draw_if_due();
}

void Console::draw_if_due() {
  if (seconds_since(drawn_at_) < kDrawSeconds) return;
  drawn_at_ = Clock::now();
  const bool draws = shows_progress() && step_ > 0;
  std::string bytes;
  if (progress_shown_) bytes += kEraseLine;
  bytes += pending_;
  if (draws) bytes += progress_text();
  pending_.clear();
  progress_shown_ = draws;
  write(bytes);
}

void Console::flush() {
  if (progress_shown_) pending_.insert(0, kEraseLine);
  progress_shown_ = false;
  write(pending_);
  pending_.clear();
  drawn_at_ = {};
}

std::string Console::progress_text() const {
  const int64_t total = options_.total_steps;
  if (total <= 0) return fmt::format("step {}  {} samples/s", step_, human_rate(samples_per_s_)).substr(0, columns());
  const double done = std::min(1.0, static_cast<double>(step_) / static_cast<double>(total));
  std::string left = "-";
  if (step_ > first_step_) {
    const double per_step = seconds_since(started_) / static_cast<double>(step_ - first_step_);
    left = human_seconds(per_step * static_cast<double>(std::max<int64_t>(total - step_, 0)));
  }
  const std::string numbers = fmt::format("{:3.0f} %  {}/{}  {} samples/s  {} left", 100 * done, step_, total,
                                          human_rate(samples_per_s_), left);
  // A line that wraps cannot be erased.
  if (columns() < numbers.size() + kBarCells + 4) return numbers.substr(0, columns());
  const auto filled = static_cast<size_t>(done * kBarCells);
  const std::string bar = std::string(filled, '=') + std::string(kBarCells - filled, ' ');
  return options_.color ? fmt::format("[\033[32m{}\033[0m] {}", bar, numbers) : fmt::format("[{}] {}", bar, numbers);
}

size_t Console::columns() const { return terminal_columns(options_.fd) - 1; }

void Console::write(std::string_view bytes) {
  if (closed_ || bytes.empty()) return;
  size_t written = 0;
  closed_ = write_fully(options_.fd, bytes, written) != 0;
}

}  // namespace trainopt
