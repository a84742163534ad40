#include "roofline/attained.h"

#include "base/units.h"

#include <fmt/format.h>

#include <algorithm>

namespace trainopt {
namespace {

double measured_ms(const Json& unit) {
  const char* device = unit.at("device_forward_ms").is_number() ? "device_" : "";
  return unit.at(fmt::format("{}forward_ms", device)).get<double>() +
         unit.at(fmt::format("{}backward_ms", device)).get<double>();
}

std::string giga(const Json& per_s) {
  return per_s.is_number() ? fmt::format("{:.1f}", per_s.get<double>() / 1e9) : "";
}

void add_to_rank(Json& rank, const std::vector<UnitLimit>& limits) {
  for (Json& unit : rank["units"]) {
    const auto limit =
        std::find_if(limits.begin(), limits.end(), [&](const UnitLimit& each) { return unit.at("name") == each.name; });
    const double measured = measured_ms(unit);
    if (limit == limits.end() || measured <= 0) continue;
    const auto calls = unit.at("calls").get<double>();
    const double flops = calls * limit->flops, least_ms = calls * limit->least_ms();
    unit["step_flops"] = flops;
    unit["bytes"] = calls * limit->bytes;
    unit["least_ms"] = least_ms;
    unit["attainable_flops_per_s"] = flops > 0 ? Json(flops / least_ms * 1e3) : Json();
    unit["achieved_flops_per_s"] = flops > 0 ? Json(flops / measured * 1e3) : Json();
    unit["limited_by"] = limit->by_memory() ? "memory" : "compute";
    unit["attained_pct"] = 100 * least_ms / measured;
  }
}

}  // namespace

void add_attained(Json& profile, const std::vector<UnitLimit>& limits) {
  if (!profile.contains("ranks")) return add_to_rank(profile, limits);
  for (Json& rank : profile["ranks"]) add_to_rank(rank, limits);
}

std::string attained_text(const Json& profile) {
  const Json& rank = profile.contains("ranks") ? profile.at("ranks").front() : profile;
  std::string rows;
  for (const Json& unit : rank.at("units"))
    if (unit.contains("attained_pct"))
      rows +=
          fmt::format("  {:<28} {:>9.3g} {:>12} {:>9.2f} ms {:>9.2f} ms {:>10} {:>9} {:>8.0f} %  {}\n",
                      unit.at("name").get<std::string>(), unit.at("step_flops").get<double>() / 1e9,
                      human_bytes(unit.at("bytes").get<double>()), unit.at("least_ms").get<double>(), measured_ms(unit),
                      giga(unit.at("attainable_flops_per_s")), giga(unit.at("achieved_flops_per_s")),
                      unit.at("attained_pct").get<double>(), unit.at("limited_by").get<std::string>());
  if (rows.empty()) return "";
  return fmt::format(
      "\nunits against the roofline, forward and backward; attainable and achieved in GFLOP/s\n"
      "  {:<28} {:>9} {:>12} {:>12} {:>12} {:>10} {:>9} {:>10}  {}\n{}",
      "unit", "GFLOP", "memory", "at least", "measured", "attainable", "achieved", "attained", "limited by", rows);
}

}  // namespace trainopt
