// Ordering and timing of device work. A Stream is a queue; an Event is a point in it that others can wait for or
// measure from. On the CPU all work is done when the call returns: there is one stream, waiting does nothing, and an
// event stores the host's clock, so that the same code can measure on both.
#pragma once

#include "base/clock.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace trainopt {

class Stream {
 public:
  /// The stream on which this thread's operations currently run.
  static Stream current(c10::Device device);
  /// A stream from libtorch's pool of 32 per device (used in rotation), separate from the default stream; on the CPU
  /// the same as current(). `high_priority`: from a second pool of 32 with higher priority.
  static Stream side(c10::Device device, bool high_priority = false);

  c10::Device device() const { return stream_.device(); }
  /// For Tensor::record_stream and other calls that need the c10 handle.
  c10::Stream handle() const { return stream_; }
  /// Blocks the host until everything queued so far is done.
  void synchronize() const;
  bool operator==(const Stream& other) const { return stream_ == other.stream_; }

 private:
  explicit Stream(c10::Stream stream) : stream_(stream) {}
  c10::Stream stream_;
};

/// Makes a stream this thread's current one (and its device the current device) for a scope.
class StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream) {
    if (!stream.device().is_cpu()) guard_.emplace(stream.handle());
  }

 private:
  std::optional<c10::StreamGuard> guard_;
};

/// Not thread-safe. Recording again moves the event.
class Event {
 public:
  /// `timing`: allow elapsed_ms(), at a small extra cost on a GPU. Always allowed on the CPU.
  explicit Event(c10::Device device, bool timing = false);
  Event(Event&&) noexcept = default;
  Event& operator=(Event&&) noexcept = default;

  void record(const Stream& stream);
  /// Work queued on `stream` from now on starts after this event. Does nothing if it was never recorded.
  void block(const Stream& stream) const;
  /// Whether the work before the event is done; true if it was never recorded. Never waits.
  bool ready() const;
  /// Blocks the host until the event has happened.
  void synchronize() const;
  bool recorded() const { return recorded_; }

 private:
  friend double elapsed_ms(const Event& start, const Event& end);
  bool recorded_ = false;
  std::optional<c10::Event> event_;  // on an accelerator
  Clock::time_point recorded_at_;    // on the CPU
};

/// Milliseconds of device time between two recorded events with timing; both must be ready.
double elapsed_ms(const Event& start, const Event& end);

/// A span of device work to measure: record both events, and read the time when `end` is ready.
struct EventSpan {
  explicit EventSpan(c10::Device device) : start(device, true), end(device, true) {}
  Event start, end;
};

}  // namespace trainopt
