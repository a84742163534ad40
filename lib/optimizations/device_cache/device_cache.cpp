#include "optimizations/device_cache/device_cache.h"

#include "base/units.h"
#include "data/on_device/device_dataset.h"
#include "train/plan.h"

namespace trainopt::device_cache {

Outcome apply(Plan& plan) {
  if (!plan.data.dataset) return Outcome::none("synthetic batches are already on the device");
  plan.data.device_dataset = std::make_shared<DeviceDataset>();
  plan.loader.finish_on_device = true;  // evaluation data is still loaded; copy it as uint8 too
  const ImageSize size = buffer_format(plan.data, plan.loader, plan.tensor_format.memory_format).size;
  const int64_t samples = plan.data.samples();
  const auto reason = plan.device.is_cpu()
                          ? why_too_large(size, samples, plan.loader.memory_limit, "data.memory_limit")
                          : why_too_large(size, samples, plan.machine.gpu_memory_bytes, "the GPU's memory");
  if (reason) throw UserError(*reason);
  return Outcome::applied(
      fmt::format("data set cached on the device: {}, {}; batches are gathered there by index",
                  counted(samples, "sample"), human_bytes(static_cast<double>(resident_bytes(size, samples)))),
      [](const StepTrace& trace) {
        const BatchSourceStats& seen = trace.loader;
        const bool effective = seen.resident_bytes > 0 && !seen.input_type;
        return Receipt{
            .observed = fmt::format(
                "{} cached on the device; {} of indices and crops per step, {} of it copied; batches built as {}",
                human_bytes(static_cast<double>(seen.resident_bytes)),
                human_bytes(static_cast<double>(seen.bytes_delivered)),
                human_bytes(static_cast<double>(seen.bytes_copied)),
                seen.finished_type ? type_name(*seen.finished_type) : ""),
            .effective = effective,
            .reason = effective ? "" : "batches came from a loader"};
      });
}

}  // namespace trainopt::device_cache
