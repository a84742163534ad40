#include "device/autocast.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace trainopt {
namespace {

/// The kind of device under which libtorch keeps the state for this one.
at::DeviceType stored_as(at::DeviceType device) { return device == at::kMeta ? at::kPrivateUse1 : device; }

}  // namespace

std::optional<at::ScalarType> autocast_type(at::DeviceType of_device) {
  const at::DeviceType device = stored_as(of_device);
  if (!at::autocast::is_autocast_enabled(device)) return std::nullopt;
  return at::autocast::get_autocast_dtype(device);
}

AutocastGuard::AutocastGuard(at::DeviceType device, std::optional<at::ScalarType> dtype)
    : device_(stored_as(device)), active_(dtype.has_value()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  old_dtype_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *dtype);
  at::autocast::increment_nesting();
  had_key_ = c10::impl::tls_is_dispatch_key_included(kMetaAutocastKey);
  if (device == at::kMeta) c10::impl::tls_set_dispatch_key_included(kMetaAutocastKey, true);
}

AutocastGuard::~AutocastGuard() {
  if (!active_) return;
  c10::impl::tls_set_dispatch_key_included(kMetaAutocastKey, had_key_);
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, old_dtype_);
}

WithoutAutocast::WithoutAutocast(at::DeviceType device)
    : device_(stored_as(device)),
      was_enabled_(at::autocast::is_autocast_enabled(device_)),
      had_key_(c10::impl::tls_is_dispatch_key_included(kMetaAutocastKey)) {
  at::autocast::set_autocast_enabled(device_, false);
  if (had_key_) c10::impl::tls_set_dispatch_key_included(kMetaAutocastKey, false);
}

WithoutAutocast::~WithoutAutocast() {
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  if (had_key_) c10::impl::tls_set_dispatch_key_included(kMetaAutocastKey, true);
}

}  // namespace trainopt
