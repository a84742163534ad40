#include "roofline/roofline.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <exception>

namespace trainopt {
namespace {

constexpr int kVersion = 1;

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(); }
std::optional<double> number(const Json& json) {
  return json.is_null() ? std::nullopt : std::optional(json.get<double>());
}

Json json_of(const ExchangePeak& peak) {
  return {{"collective", peak.collective},
          {"bytes", peak.bytes},
          {"seconds", peak.seconds},
          {"sent_bytes_per_s", peak.sent_bytes_per_s}};
}

std::string rate(const std::optional<double>& bytes_per_s) {
  return bytes_per_s ? fmt::format("{:.1f} GB/s", *bytes_per_s / 1e9) : "not measured";
}

/// Throws Json::exception.
Roofline roofline_from(const Json& json) {
  Roofline roofline;
  roofline.key = {.device = json.at("device"), .libraries = json.at("libraries")};
  for (const auto& [type, peak] : json.at("products").items())
    roofline.products[type] = {.flops_per_s = peak.at("flops_per_s"), .size = peak.at("size")};
  roofline.no_products = json.at("no_products").get<std::map<std::string, std::string>>();
  roofline.memory_bytes_per_s = number(json.at("memory_bytes_per_s"));
  roofline.pageable_copy_bytes_per_s = number(json.at("pageable_copy_bytes_per_s"));
  roofline.pinned_copy_bytes_per_s = number(json.at("pinned_copy_bytes_per_s"));
  roofline.disk_read_bytes_per_s = number(json.at("disk_read_bytes_per_s"));
  roofline.disk_write_bytes_per_s = number(json.at("disk_write_bytes_per_s"));
  roofline.disk_folder = json.at("disk_folder");
  roofline.operation_us = number(json.at("operation_us"));
  roofline.page_fault_us = number(json.at("page_fault_us"));
  for (const auto& [job, peaks] : json.at("exchanges").items())
    for (const Json& peak : peaks)
      roofline.exchanges[job].push_back({.collective = peak.at("collective"),
                                         .bytes = peak.at("bytes"),
                                         .seconds = peak.at("seconds"),
                                         .sent_bytes_per_s = peak.at("sent_bytes_per_s")});
  roofline.wall_s = json.at("wall_s");
  roofline.other_load_pct = number(json.value("other_load_pct", Json()));  // older measurements do not have it
  return roofline;
}

}  // namespace

Json to_json(const Roofline& roofline) {
  Json json = {{"schema_version", kVersion},
               {"device", roofline.key.device},
               {"libraries", roofline.key.libraries},
               {"products", Json::object()},
               {"no_products", roofline.no_products},
               {"memory_bytes_per_s", json_of(roofline.memory_bytes_per_s)},
               {"pageable_copy_bytes_per_s", json_of(roofline.pageable_copy_bytes_per_s)},
               {"pinned_copy_bytes_per_s", json_of(roofline.pinned_copy_bytes_per_s)},
               {"disk_read_bytes_per_s", json_of(roofline.disk_read_bytes_per_s)},
               {"disk_write_bytes_per_s", json_of(roofline.disk_write_bytes_per_s)},
               {"disk_folder", roofline.disk_folder},
               {"operation_us", json_of(roofline.operation_us)},
               {"page_fault_us", json_of(roofline.page_fault_us)},
               {"exchanges", Json::object()},
               {"wall_s", roofline.wall_s},
               {"other_load_pct", json_of(roofline.other_load_pct)},
               {"disturbance", nullptr}};
  if (const std::string what = disturbance(roofline); !what.empty()) json["disturbance"] = what;
  for (const auto& [type, peak] : roofline.products)
    json["products"][type] = {{"flops_per_s", peak.flops_per_s}, {"size", peak.size}};
  for (const auto& [job, peaks] : roofline.exchanges) {
    Json& list = json["exchanges"][job] = Json::array();
    for (const ExchangePeak& peak : peaks) list.push_back(json_of(peak));
  }
  return json;
}

std::string disturbance(const Roofline& roofline) {
  constexpr double kQuietPct = 10;
  const bool of_cpu = !roofline.pinned_copy_bytes_per_s;  // a GPU's products do not share the cores
  if (!of_cpu || !roofline.other_load_pct || *roofline.other_load_pct < kQuietPct) return {};
  return fmt::format(
      "other programs used {:.0f} % of the cores while the peaks were measured: the peaks are too low, and a run's "
      "share "
      "of a peak will seem too high; measure again on a quiet machine: trainopt roofline --again",
      *roofline.other_load_pct);
}

std::string roofline_text(const Roofline& roofline) {
  std::string text = fmt::format("{}\n{}\n", roofline.key.device, roofline.key.libraries);
  const auto row = [&](std::string_view name, const std::string& value) {
    text += fmt::format("  {:<22} {}\n", name, value);
  };
  for (const auto& [type, peak] : roofline.products)
    row(type + " products",
        fmt::format("{:.1f} GFLOP/s ({} × {} matrices)", peak.flops_per_s / 1e9, peak.size, peak.size));
  for (const auto& [type, reason] : roofline.no_products) row(type + " products", "not measured: " + reason);
  row("memory copy", rate(roofline.memory_bytes_per_s) + ", read and written");
  if (roofline.pageable_copy_bytes_per_s || roofline.pinned_copy_bytes_per_s) {
    row("host to device", rate(roofline.pageable_copy_bytes_per_s));
    row("  from pinned memory", rate(roofline.pinned_copy_bytes_per_s));
  }
  if (roofline.operation_us) row("small operation", fmt::format("{:.2f} us of the host", *roofline.operation_us));
  if (roofline.page_fault_us) row("page fault", fmt::format("{:.2f} us of a thread", *roofline.page_fault_us));
  row("disk, reading", rate(roofline.disk_read_bytes_per_s));
  row("disk, writing", fmt::format("{}, in {}", rate(roofline.disk_write_bytes_per_s), roofline.disk_folder));
  for (const auto& [job, peaks] : roofline.exchanges) {
    text += job + "\n";
    for (const ExchangePeak& peak : peaks)
      row(peak.collective, fmt::format("{:>9}   {:>9.3f} ms   {}", human_bytes(static_cast<double>(peak.bytes)),
                                       peak.seconds * 1e3, rate(peak.sent_bytes_per_s)));
  }
  return text;
}

std::filesystem::path roofline_file(const std::filesystem::path& cache, const RooflineKey& key) {
  const std::string all = key.device + "\n" + key.libraries;
  Checksum sum;
  sum.add(all.data(), all.size());
  return cache / "trainopt" / "roofline" / (hex(sum.value()) + ".json");
}

std::optional<Roofline> stored_roofline(const std::filesystem::path& cache, const RooflineKey& key) {
  const auto file = roofline_file(cache, key);
  if (std::error_code error; !std::filesystem::exists(file, error)) return std::nullopt;
  try {
    const Roofline roofline = roofline_from(parse_json(read_file(file, ExitCode::storage)));
    return roofline.key == key ? std::optional(roofline) : std::nullopt;
  } catch (const std::exception&) {  // named recovery: an unreadable measurement is as good as none
    return std::nullopt;
  }
}

void store(const std::filesystem::path& cache, const Roofline& roofline) {
  const auto file = roofline_file(cache, roofline.key);
  create_folders(file.parent_path());
  write_file(file, json_text(to_json(roofline), 2) + "\n");
}

namespace {

struct Sheet {
  std::string_view device;           ///< as the driver names it
  double float32, rounded, float16;  ///< TFLOP/s; `rounded`: of TF32; bfloat16 is as fast as float16
};

constexpr std::array kSheets{
    Sheet{"NVIDIA A10", 31.2, 62.5, 125},           Sheet{"NVIDIA A100-SXM4-40GB", 19.5, 156, 312},
    Sheet{"NVIDIA A100-SXM4-80GB", 19.5, 156, 312}, Sheet{"NVIDIA A100 80GB PCIe", 19.5, 156, 312},
    Sheet{"NVIDIA H100 80GB HBM3", 67, 494.5, 989}, Sheet{"NVIDIA H100 PCIe", 51, 378, 756},
    Sheet{"NVIDIA H200", 67, 494.5, 989},           Sheet{"NVIDIA L4", 30.3, 60, 121},
    Sheet{"NVIDIA L40S", 91.6, 183, 362},
};

}  // namespace

std::optional<double> data_sheet_flops_per_s(std::string_view device, std::string_view type) {
  for (const Sheet& sheet : kSheets) {
    if (sheet.device != device) continue;
    if (type == "float32") return sheet.float32 * 1e12;
    if (type == "TF32") return sheet.rounded * 1e12;
    if (type == "bfloat16" || type == "float16") return sheet.float16 * 1e12;
  }
  return std::nullopt;
}

}  // namespace trainopt
