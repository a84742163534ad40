#include "report/environment.h"

#include "report/figures.h"
#include "report/run_sections.h"

#include <fmt/format.h>

namespace trainopt::report {
namespace {

Html in_words(const Figures& environment, const Json& list, const char* path, const char* name_key) {
  Html words;
  for (size_t i = 0; list.is_array() && i < shown_of(list); ++i) {
    const std::string at_item =
        list[i].is_object() ? fmt::format("{}.{}.{}", path, i, name_key) : fmt::format("{}.{}", path, i);
    words += (i ? ", " : "") + environment.text(at_item);
  }
  return words;
}

Html not_measured(const Json& reasons) {
  if (!reasons.is_object() || reasons.empty()) return {};
  Table table{.caption = "What was not measured", .columns = {{"number"}, {"reason"}}, .rows = {}};
  for (const auto& [name, reason] : reasons.items())
    if (table.rows.size() < kMostItems)
      table.rows.push_back({element("code", escape(name)), escape(value_text(reason))});
  return element("details", element("summary", "What was not measured, and why") + draw(table));
}

}  // namespace

Html environment_facts(const Figures& environment) {
  if (!environment.json().is_object()) return {};
  const auto text = [&](const char* path) { return environment.known_text(path); };
  return fact_table("Environment",
                    {{"trainopt", text("trainopt") + (text("commit").empty() ? "" : ", ") + text("commit")},
                     {"libtorch", text("libtorch")},
                     {"CUDA", text("cuda")},
                     {"cuDNN", text("cudnn")},
                     {"NCCL", text("nccl")},
                     {"driver", text("driver")},
                     {"GPUs", in_words(environment, environment.json("gpus"), "gpus", "name")},
                     {"CPU", text("cpu.model")},
                     {"cores allowed", text("cpu.cores_allowed")},
                     {"threads", text("cpu.threads")},
                     {"instructions", text("cpu.instructions")},
                     {"memory", environment.known("memory_mib", mib_text)},
                     {"kernel", text("kernel")},
                     {"distribution", text("distribution")}}) +
         not_measured(environment.json("not_measured"));
}

Section environment_section(const RunFolder& run, const Place& place) {
  return {place.ids + "environment-section", place.heading + "Environment",
          environment_facts(Figures(run.environment, place.keys + "environment."))};
}

}  // namespace trainopt::report
