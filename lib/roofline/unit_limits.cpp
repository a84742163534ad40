#include "roofline/unit_limits.h"

#include "base/units.h"
#include "device/tensor.h"

namespace trainopt {
namespace {

double values_in(const SampleShape& shape) { return static_cast<double>(c10::multiply_integers(shape)); }

double parameter_bytes(const Model& model, size_t unit) {
  double bytes = 0;
  for (const auto& [name, parameter] : model.unit_parameters(unit)) bytes += static_cast<double>(parameter.nbytes());
  return bytes;
}

}  // namespace

std::vector<UnitLimit> unit_limits(const Model& model, int64_t batch, int64_t activation_bytes,
                                   const LimitRates& rates) {
  std::vector<UnitLimit> limits;
  for (size_t i = 0; i < model.units().size(); ++i) {
    const double values = values_in(model.shapes()[i]) + values_in(model.shapes()[i + 1]);
    const double activations = static_cast<double>(batch * activation_bytes) * values;
    UnitLimit limit{.name = model.units()[i]->name(),
                    .flops = 3 * model.unit_flops()[i] * static_cast<double>(batch),
                    .bytes = 3 * (activations + parameter_bytes(model, i))};
    limit.compute_ms = 1e3 * limit.flops / rates.flops_per_s;
    limit.memory_ms = 1e3 * limit.bytes / rates.bytes_per_s;
    limits.push_back(limit);
  }
  return limits;
}

Json to_json(const std::vector<UnitLimit>& limits) {
  Json list = Json::array();
  for (const UnitLimit& limit : limits)
    list.push_back({{"unit", limit.name},
                    {"flops", limit.flops},
                    {"bytes", limit.bytes},
                    {"compute_ms", limit.compute_ms},
                    {"memory_ms", limit.memory_ms}});
  return list;
}

std::string unit_limits_text(const std::vector<UnitLimit>& limits) {
  std::string text = fmt::format("  {:<28} {:>12} {:>12} {:>10} {:>12}  {}\n", "unit", "GFLOP", "memory", "FLOP/byte",
                                 "at least", "limited by");
  double total = 0;
  for (const UnitLimit& limit : limits) {
    total += limit.least_ms();
    text += fmt::format("  {:<28} {:>12.2f} {:>12} {:>10.1f} {:>9.2f} ms  {}\n", limit.name, limit.flops / 1e9,
                        human_bytes(limit.bytes), limit.intensity(), limit.least_ms(),
                        limit.by_memory() ? "memory" : "compute");
  }
  return text + fmt::format("  {:<28} {:>51.2f} ms\n", "forward and backward", total);
}

}  // namespace trainopt
