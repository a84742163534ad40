#include "compare/comparison_words.h"

#include "base/counted.h"
#include "compare/table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace trainopt {

std::string percent_faster(double ratio) { return fmt::format("{:+.1f} %", 100 * (ratio - 1)); }
std::string percent_faster(const Interval& interval) {
  return fmt::format("{} to {}", percent_faster(interval.low), percent_faster(interval.high));
}

std::string percent_faster(double ratio, const std::optional<Interval>& interval) {
  return interval ? fmt::format("{} ({})", percent_faster(ratio), percent_faster(*interval)) : percent_faster(ratio);
}

std::string with_range(double ratio, const std::optional<Interval>& interval) {
  if (!interval) return percent_faster(ratio);
  return fmt::format("{} ({:+.1f} … {:+.1f})", percent_faster(ratio), 100 * (interval->low - 1),
                     100 * (interval->high - 1));
}

std::string_view color_of(Verdict verdict) {
  if (verdict == Verdict::pays) return kGreen;
  return verdict == Verdict::costs ? kRed : std::string_view{};
}

std::string level_text(double level) { return fmt::format("{:g} %", 100 * level); }

std::string_view ending(const std::string& ended) {
  if (ended == "decided") return "until it was decided";
  if (ended == "precision") return "until the interval was as narrow as --precision requires";
  if (ended == "unfinished") return "before it was cut off";
  if (ended == "failed") return "until an arm failed";
  if (ended == "budget") return "until the time budget was spent";
  if (ended == "repeats") return "as many as --repeats requested";
  return "until it was stopped";
}

std::string noise_text(const NoiseFloor& n) {
  return fmt::format("A against itself is {} over {}; per-block standard deviation {:.1f} %",
                     percent_faster(n.ratio, n.interval), counted(n.blocks, "block"), n.block_sd_pct);
}

std::string numbers_text(const Numerics& n) {
  if (!n.not_comparable.empty()) return "not compared: " + n.not_comparable;
  if (!n.agree()) return fmt::format("WRONG OR DIFFERENT: {}", fmt::join(n.disagreements(), "; "));
  return fmt::format(
      "agree to within {}: first gradients' cosine {:.5f} (limit {:.2f}), length ×{:.3f}; updates' cosine {:.5f} "
      "(limit {:.2f}), length ×{:.3f}; loss curves {:.2g} % apart (limit {:.2g} %){}",
      n.yardstick == Yardstick::perturbed ? "rounding" : "what another seed changes", 1 - n.gradient_direction.value,
      1 - n.gradient_direction.tolerance, n.gradient_norm_ratio, 1 - n.update_direction.value,
      1 - n.update_direction.tolerance, n.update_norm_ratio, 100 * n.loss.value, 100 * n.loss.tolerance,
      n.gradients.tensors > 0
          ? fmt::format("; {} and {} checked individually", counted(n.gradients.tensors, "gradient"),
                        counted(n.updates.tensors, "update"))
          : "");
}

std::vector<std::string> switch_lines(const std::vector<ArmReceipts>& arms) {
  const auto seen = [](const Json& receipts, const std::string& name) -> std::string {
    if (!receipts.contains(name)) return "off";
    const Json& receipt = receipts.at(name);
    return receipt.at("effective") ? receipt.at("observed").get<std::string>()
                                   : "NO EFFECT: " + receipt.at("reason").get<std::string>();
  };
  Json names;
  for (const ArmReceipts& arm : arms) names.update(*arm.receipts);
  std::vector<std::string> lines;
  for (const auto& [name, receipt] : names.items()) {
    const auto same = [&](const ArmReceipts& arm) {  // what was observed varies from step to step
      return arm.receipts->contains(name) && arm.receipts->at(name).at("requested") == receipt.at("requested") &&
             arm.receipts->at(name).at("effective") == receipt.at("effective");
    };
    if (std::all_of(arms.begin(), arms.end(), same)) continue;
    std::vector<std::string> all;
    for (const ArmReceipts& arm : arms) all.push_back(fmt::format("{} {}", arm.arm, seen(*arm.receipts, name)));
    lines.push_back(fmt::format("{}: {}", name, fmt::join(all, "; ")));
  }
  return lines;
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

std::string turn_columns(const Turn& turn, const std::optional<double>& other_load_pct) {
  const auto optional = [](const auto& value) {
    return value ? fmt::format("{:.9g}", static_cast<double>(*value)) : std::string();
  };
  return fmt::format("{},{},{:.9g},{:.9g},{:.9g},{},{},{}", turn.steps, turn.samples, turn.seconds, turn.data_wait_s,
                     turn.cpu_s, optional(turn.sm_clock_mhz), optional(turn.throttle), optional(other_load_pct));
}

}  // namespace trainopt
