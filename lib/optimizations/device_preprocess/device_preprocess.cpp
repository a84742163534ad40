#include "optimizations/device_preprocess/device_preprocess.h"

#include "train/plan.h"

namespace trainopt::device_preprocess {

Outcome apply(Plan& plan, const Config& config) {
  if (!plan.data.dataset) return Outcome::none("synthetic batches are already on the device");
  if (plan.data.is_text()) return Outcome::none("the data is text, which is not preprocessed");
  if (plan.data.device_dataset)
    return Outcome::none("data.cache: device already stores images as uint8 and preprocesses them on the device");
  if (config.resize) {
    if (const auto refusal = device_resize_refusal(plan.data.transforms)) return Outcome::none(*refusal);
    plan.loader.resize_on_device = true;
  }
  plan.loader.finish_on_device = true;
  const std::string wanted = type_name(plan.tensor_format.compute_type);
  return Outcome::applied(
      fmt::format(
          "uint8 batches; {} on the device, giving {}",
          config.resize ? "resize and all later transforms, crops and flips included," : "scaling and normalisation",
          wanted),
      [wanted](const StepTrace& seen) {
        const auto in_words = [](std::optional<at::ScalarType> type, const char* none) {
          return type ? type_name(*type) : none;
        };
        const std::string input = in_words(seen.loader.input_type, "nothing"),
                          finished = in_words(seen.loader.finished_type, "no other type");
        const bool effective = input == "uint8" && finished == wanted;
        return Receipt{
            .observed = fmt::format("the loader delivered {}, {} per step; the device converted it to {}", input,
                                    human_bytes(static_cast<double>(seen.loader.bytes_delivered)), finished),
            .effective = effective,
            .reason = effective ? "" : fmt::format("expected uint8 batches converted to {}", wanted)};
      });
}

}  // namespace trainopt::device_preprocess
