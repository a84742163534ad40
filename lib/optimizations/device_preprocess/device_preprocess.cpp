#include "optimizations/device_preprocess/device_preprocess.h"

#include "train/plan.h"

namespace trainopt::device_preprocess {

Outcome apply(Plan& plan, const Config& config) {
  if (!plan.data.dataset) return Outcome::none("synthetic batches are on the device already");
  if (plan.data.device_dataset)
    return Outcome::none("data.cache: device keeps images as uint8 and finishes them there anyway");
  if (config.resize) {
    if (const auto refusal = device_resize_refusal(plan.data.transforms)) return Outcome::none(*refusal);
    plan.loader.resize_on_device = true;
  }
  plan.loader.finish_on_device = true;
  const std::string wanted = type_name(plan.tensor_format.compute_type);
  return Outcome::applied(
      fmt::format("uint8 batches; {} on the device, to {}",
                  config.resize ? "resized and what follows, crops and flips included," : "scaled and normalised",
                  wanted),
      [wanted](const StepTrace& seen) {
        const auto in_words = [](std::optional<at::ScalarType> type) { return type ? type_name(*type) : ""; };
        const std::string input = in_words(seen.loader.input_type), finished = in_words(seen.loader.finished_type);
        const bool effective = input == "uint8" && finished == wanted;
        return Receipt{
            .observed = fmt::format("batches left the loader as {}, {} a step, and were finished on the device as {}",
                                    input, human_bytes(static_cast<double>(seen.loader.bytes_delivered)),
                                    finished.empty() ? "nothing else" : finished),
            .effective = effective,
            .reason = effective ? "" : fmt::format("batches were not uint8 and then {}", wanted)};
      });
}

}  // namespace trainopt::device_preprocess
