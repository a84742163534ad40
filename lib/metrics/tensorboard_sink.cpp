#include "metrics/tensorboard_sink.h"

#include "base/files.h"
#include "base/host_name.h"
#include "metrics/format.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

namespace trainopt {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kEventFilePrefix = "events.out.tfevents.";

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// The time in an event file's name; 0 if there is none.
int64_t time_in_name(const fs::path& file) {
  const std::string name = file.filename().string();
  int64_t seconds = 0;
  std::from_chars(name.data() + kEventFilePrefix.size(), name.data() + name.size(), seconds);
  return seconds;
}

/// TensorBoard reads the files of a run in the order of their names, so the time in a new name is always the latest.
fs::path new_event_file(const fs::path& run_dir) {
  auto seconds = static_cast<int64_t>(unix_seconds());
  for (const fs::path& file : event_files(run_dir)) seconds = std::max(seconds, time_in_name(file) + 1);
  return run_dir / fmt::format("{}{:010}.{}.{}.0", kEventFilePrefix, seconds, host_name(), ::getpid());
}

/// Removes the end of a session, and a torn record, from a file.
void remove_session_end(const fs::path& path) {
  const std::string all = read_file(path, ExitCode::storage);
  size_t kept = 0;
  while (const auto payload = unframed(std::string_view(all).substr(kept))) {
    if (payload->find(kSessionEndTag) != std::string_view::npos) break;
    kept += payload->size() + kFrameBytes;
  }
  if (kept < all.size()) File::append_to(path).truncate(static_cast<int64_t>(kept));
}

std::string in_cell(std::string text) {
  for (size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.insert(at, 1, '\\');
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::string receipts_table(const Json& receipts) {
  if (receipts.empty()) return "The recipe turns no switch on.";
  std::string table = "| switch | requested | observed | effective |\n|---|---|---|---|\n";
  for (const auto& [name, receipt] : receipts.items()) {
    const std::string reason = receipt.value("reason", "");
    table += fmt::format("| {} | {} | {} | {}{} |\n", in_cell(name), in_cell(receipt.value("requested", "")),
                         in_cell(receipt.value("observed", "")), receipt.value("effective", false) ? "yes" : "no",
                         reason.empty() ? "" : ": " + in_cell(reason));
  }
  return table;
}

void add_scalar(std::vector<TaggedScalar>& scalars, std::string tag, const Json& value) {
  if (value.is_number()) scalars.push_back({std::move(tag), value.get<double>()});
}

/// By the names of summary.json. HPARAMS shows the first five metrics in alphabetical order unless told otherwise; no
/// other section comes before this one.
std::vector<TaggedScalar> results_at_end(const Json& summary) {
  std::vector<TaggedScalar> scalars;
  for (const char* name : {"samples_per_s", "tokens_per_s", "samples_per_joule", "price_per_million_samples"})
    add_scalar(scalars, std::string("at_end/") + name, summary.value(name, Json()));
  add_scalar(scalars, "at_end/loss", summary.value("loss", Json::object()).value("last", Json()));
  if (const Json evaluation = summary.value("evaluation", Json()); evaluation.is_object())
    for (const char* name : {"top1_pct", "perplexity"})
      add_scalar(scalars, std::string("at_end/") + name, evaluation.value(name, Json()));
  return scalars;
}

}  // namespace

std::vector<fs::path> event_files(const fs::path& run_dir) {
  std::vector<fs::path> files;
  for (const std::string& name : names_in_folder(run_dir, ExitCode::storage))
    if (name.starts_with(kEventFilePrefix)) files.push_back(run_dir / name);
  return files;
}

Json hyperparameters(const Json& recipe) {
  constexpr std::array<std::string_view, 7> kLeftOut{"run_dir",   "output_dir", "checkpoint", "logging",
                                                     "telemetry", "watchdog",   "bench"};
  Json flat = Json::object();
  const auto add = [&](const std::string& name, const Json& value) {
    flat[name] = value.is_boolean() || value.is_number() || value.is_string() ? value : Json(json_text(value));
  };
  for (const auto& [section, content] : recipe.items()) {
    if (std::find(kLeftOut.begin(), kLeftOut.end(), section) != kLeftOut.end()) continue;
    if (!content.is_object())
      add(section, content);
    else
      for (const auto& [key, value] : content.items()) add(section + "." + key, value);
  }
  return flat;
}

TensorboardSink::TensorboardSink(const fs::path& run_dir, int64_t resumed_after)
    : file_(new_event_file(run_dir)), resumed_after_(resumed_after) {
  const double now_s = unix_seconds();
  add(EventMaker(now_s, 0).file_version());
  if (resumed_after == 0) return;
  const auto files = event_files(run_dir);
  for (size_t i = 0; i + 1 < files.size(); ++i) remove_session_end(files[i]);
  add(EventMaker(now_s, resumed_after + 1).restarted());
}

void TensorboardSink::write(const StepRecord& row) {
  std::vector<TaggedScalar> scalars;
  for (const MetricInfo& metric : kCatalogue)
    if (const auto& value = row[metric.metric]; value && metric.metric != Metric::step)
      scalars.push_back({fmt::format("{}/{}", metric.section, metric.name), *value});
  add(EventMaker(unix_seconds(), row.step()).scalars(scalars));
}

void TensorboardSink::run_began(const Json& recipe, const std::string& recipe_yaml) {
  const EventMaker maker(unix_seconds(), resumed_after_);
  add(maker.session_started(hyperparameters(recipe)));
  add(maker.text("recipe", "```yaml\n" + recipe_yaml + "```\n"));
}

void TensorboardSink::evaluated(int64_t step, const Json& evaluation) {
  std::vector<TaggedScalar> scalars;
  for (const auto& [name, value] : evaluation.items()) add_scalar(scalars, "eval/" + name, value);
  add(EventMaker(unix_seconds(), step).scalars(scalars));
}

void TensorboardSink::run_ended(const Json& summary) {
  const EventMaker maker(unix_seconds(), summary.value("steps", int64_t{0}));
  const std::string status = summary.value("status", "");
  // First, so that remove_session_end() removes the results with it.
  if (status == "done") add(maker.session_ended(SessionStatus::success));
  if (status == "failed") add(maker.session_ended(SessionStatus::failure));
  add(maker.scalars(results_at_end(summary)));
  add(maker.text("receipts", receipts_table(summary.value("receipts", Json::object()))));
  file_.flush();
}

}  // namespace trainopt
