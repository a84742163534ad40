// Order and time of device work. A Stream is a queue; an Event is a place in it that others can wait for or measure
// from. On the CPU all work has happened when the call returns: there is one stream, waiting is nothing, and an event
// keeps the host's clock, so that the same code measures on both.
#pragma once

#include "base/clock.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include <optional>

namespace trainopt {

class Stream {
 public:
  /// The stream on which this thread's operations run now.
  static Stream current(c10::Device device);
  /// One of libtorch's pool of 32 streams per device (taken in turn), beside the default one; on the CPU the same as
  /// current(). `urgent`: of another pool of 32, whose work goes first.
  static Stream side(c10::Device device, bool urgent = false);

  c10::Device device() const { return stream_.device(); }
  /// For Tensor::record_stream, and for what needs the bare handle.
  c10::Stream handle() const { return stream_; }
  /// Waits on the host for everything queued so far.
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

/// Used by one thread at a time. Recording again moves it.
class Event {
 public:
  /// `timing`: elapsed_ms() is allowed; costs a little more on a GPU. On the CPU always.
  explicit Event(c10::Device device, bool timing = false);
  Event(Event&&) noexcept = default;
  Event& operator=(Event&&) noexcept = default;

  void record(const Stream& stream);
  /// What is queued on `stream` from now on starts after this event. Nothing if it was never recorded.
  void block(const Stream& stream) const;
  /// The work before it is done; true if it was never recorded. Never waits.
  bool ready() const;
  /// Waits on the host.
  void synchronize() const;
  bool recorded() const { return recorded_; }

 private:
  friend double elapsed_ms(const Event& start, const Event& end);
  bool recorded_ = false;
  std::optional<c10::Event> event_;  // an accelerator's
  Clock::time_point recorded_at_;    // the CPU's
};

/// Milliseconds of device time between two recorded events with timing, both ready.
double elapsed_ms(const Event& start, const Event& end);

/// A stretch of device work to be measured: record both ends, read it when the end is ready.
struct EventSpan {
  explicit EventSpan(c10::Device device) : start(device, true), end(device, true) {}
  Event start, end;
};

}  // namespace trainopt
