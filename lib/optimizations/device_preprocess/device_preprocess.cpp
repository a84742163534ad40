#include "optimizations/device_preprocess/device_preprocess.h"

#include "train/plan.h"

namespace trainopt::device_preprocess {

Outcome apply(Plan& plan, const Config& config) {
  if (plan.data.config.dataset == DatasetKind::synthetic) return Outcome::none("synthetic batches are on the device already");
  if (config.resize) {
    if (const auto refusal = device_resize_refusal(plan.data.config.transforms)) return Outcome::none(*refusal);
    plan.data.options.device_resize = true;
  }
  plan.data.options.device_preprocess = true;
  return Outcome::applied(config.resize ? "uint8 batches; resized, scaled and normalised on the device" : "uint8 batches; scaled and normalised on the device",
                          [](const Observations& seen) {
                            const bool effective = seen.input_type == "uint8";
                            return Receipt{.observed = fmt::format("batches left the loader as {}, {} a step", seen.input_type, human_bytes(static_cast<double>(seen.bytes_delivered))),
                                           .effective = effective,
                                           .reason = effective ? "" : "batches were not uint8"};
                          });
}

}  // namespace trainopt::device_preprocess
