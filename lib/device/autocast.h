// libtorch's autocast on this thread, without its header, which costs every file that includes it five seconds of
// compilation.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>

#include <optional>

namespace trainopt {

/// libtorch has no autocast for meta tensors. Theirs is that of out-of-tree devices, which this program has none of:
/// while it is enabled, this dispatch key is added to every call (meta_device.cpp handles it).
inline constexpr c10::DispatchKey kMetaAutocastKey = c10::DispatchKey::AutocastPrivateUse1;

/// The type that autocast casts to on this kind of device; null while autocast is disabled.
std::optional<at::ScalarType> autocast_type(at::DeviceType device);

/// Enables autocast during its lifetime; does nothing if `dtype` is null. libtorch has no such guard.
class AutocastGuard {
 public:
  AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  at::DeviceType device_;
  bool active_ = false, was_enabled_ = false, had_key_ = false;
  at::ScalarType old_dtype_ = at::kFloat;
};

/// Turns autocast off while it exists.
class WithoutAutocast {
 public:
  explicit WithoutAutocast(at::DeviceType device);
  ~WithoutAutocast();
  WithoutAutocast(const WithoutAutocast&) = delete;
  WithoutAutocast& operator=(const WithoutAutocast&) = delete;

 private:
  at::DeviceType device_;
  bool was_enabled_, had_key_;
};

}  // namespace trainopt
