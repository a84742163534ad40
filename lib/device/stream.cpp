#include "device/stream.h"

#include "base/error.h"
#include "device/device.h"

#include <c10/core/impl/VirtualGuardImpl.h>

namespace trainopt {

Stream Stream::current(c10::Device device) {
  return Stream(c10::impl::VirtualGuardImpl(device.type()).getStream(with_index(device)));
}

Stream Stream::side(c10::Device device, bool high_priority) {
  if (device.is_cpu()) return current(device);
  return Stream(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(with_index(device), high_priority));
}

void Stream::synchronize() const {
  if (!device().is_cpu()) stream_.synchronize();
}

Event::Event(c10::Device device, bool timing) {
  // libtorch's CPU guard has no events.
  if (!device.is_cpu())
    event_.emplace(device.type(), timing ? c10::EventFlag::BACKEND_DEFAULT : c10::EventFlag::PYTORCH_DEFAULT);
}

void Event::record(const Stream& stream) {
  TRAINOPT_CHECK(stream.device().is_cpu() != event_.has_value());
  recorded_ = true;
  if (event_)
    event_->record(stream.handle());
  else
    recorded_at_ = Clock::now();
}

void Event::block(const Stream& stream) const {
  if (event_ && recorded_) event_->block(stream.handle());
}

bool Event::ready() const { return !event_ || !recorded_ || event_->query(); }

void Event::synchronize() const {
  if (!event_ || !recorded_) return;
  use_device(event_->device());  // the loader's threads wait here and use no other GPU
  event_->synchronize();
}

double elapsed_ms(const Event& start, const Event& end) {
  TRAINOPT_CHECK(start.recorded_ && end.recorded_);
  TRAINOPT_CHECK(start.event_.has_value() == end.event_.has_value());
  return start.event_ ? start.event_->elapsedTime(*end.event_)
                      : milliseconds_between(start.recorded_at_, end.recorded_at_);
}

}  // namespace trainopt
