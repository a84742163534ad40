#include "metrics/tensorboard.h"

#include "base/files/files.h"
#include "base/host_name.h"
#include "metrics/format.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <chrono>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

namespace trainopt {
namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}
constexpr auto kCrc32cTable = crc32c_table();

/// TFRecord stores checksums in this form, because a checksum of data that contains its own checksum is weak.
uint32_t masked_checksum(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <class T>
void append_bytes(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof value);
}

template <class T>
T bytes_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// A protobuf message in the making. Its callers leave out fields with default values where protobuf does.
class ProtoMessage {
 public:
  ProtoMessage& integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtoMessage& real64(uint32_t field, double value) {
    key(field, 1);
    append_bytes(bytes_, value);
    return *this;
  }
  ProtoMessage& real32(uint32_t field, float value) {
    key(field, 5);
    append_bytes(bytes_, value);
    return *this;
  }
  /// A string or a message.
  ProtoMessage& content(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoMessage& content(uint32_t field, const ProtoMessage& value) { return content(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(uint32_t field, uint32_t wire_type) { varint(uint64_t{field} << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

constexpr int64_t kFloatType = 1, kStringType = 7;  // tensorboard.DataType

/// Summary.Value with a tensor that a plugin displays.
ProtoMessage plugin_value(std::string_view tag, std::string_view plugin, std::string_view plugin_content,
                          const ProtoMessage& tensor) {
  ProtoMessage plugin_data = ProtoMessage().content(1, plugin);
  if (!plugin_content.empty()) plugin_data.content(2, plugin_content);
  return ProtoMessage().content(1, tag).content(8, tensor).content(9, ProtoMessage().content(1, plugin_data));
}

/// google.protobuf.Value
ProtoMessage hyperparameter_value(const Json& value) {
  ProtoMessage message;
  if (value.is_boolean()) return message.integer(4, value.get<bool>());
  if (value.is_number()) return message.real64(2, value.get<double>());
  return message.content(3, value.get<std::string>());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~0u;
  for (const char byte : bytes) value = (value >> 8) ^ kCrc32cTable[(value ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~value;
}

std::string framed(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + kFrameBytes);
  append_bytes(record, uint64_t{payload.size()});
  append_bytes(record, masked_checksum(record));
  record += payload;
  append_bytes(record, masked_checksum(payload));
  return record;
}

std::optional<std::string_view> unframed(std::string_view bytes) {
  if (bytes.size() < kFrameBytes) return std::nullopt;
  const auto length = bytes_at<uint64_t>(bytes, 0);
  if (bytes_at<uint32_t>(bytes, 8) != masked_checksum(bytes.substr(0, 8)) || length > bytes.size() - kFrameBytes)
    return std::nullopt;
  const std::string_view payload = bytes.substr(12, length);
  if (bytes_at<uint32_t>(bytes, 12 + length) != masked_checksum(payload)) return std::nullopt;
  return payload;
}

std::string EventMaker::event(uint32_t field, std::string_view content) const {
  ProtoMessage message = ProtoMessage().real64(1, wall_s_);
  if (step_ != 0) message.integer(2, step_);
  return message.content(field, content).bytes();
}

std::string EventMaker::file_version() const { return event(3, "brain.Event:2"); }

std::string EventMaker::restarted() const {
  constexpr int64_t kStart = 1;  // SessionLog.START
  return event(7, ProtoMessage().integer(1, kStart).bytes());
}

std::string EventMaker::scalars(const std::vector<TaggedScalar>& values) const {
  ProtoMessage summary;
  for (const TaggedScalar& scalar : values)
    summary.content(1, ProtoMessage().content(1, scalar.tag).real32(2, static_cast<float>(scalar.value)));
  return event(5, summary.bytes());
}

std::string EventMaker::text(std::string_view tag, std::string_view markdown) const {
  // The shape of a scalar has no dimensions, but must be present.
  const ProtoMessage tensor = ProtoMessage().integer(1, kStringType).content(2, "").content(8, markdown);
  return event(5, ProtoMessage().content(1, plugin_value(tag, "text", "", tensor)).bytes());
}

std::string EventMaker::hparams(std::string_view tag, uint32_t field, std::string_view content) const {
  const ProtoMessage one_empty_dimension = ProtoMessage().content(2, "");
  const ProtoMessage no_values = ProtoMessage().integer(1, kFloatType).content(2, one_empty_dimension);
  const ProtoMessage data = ProtoMessage().content(field, content);
  return event(5, ProtoMessage().content(1, plugin_value(tag, "hparams", data.bytes(), no_values)).bytes());
}

std::string EventMaker::session_started(const Json& hyperparameters) const {
  ProtoMessage start;
  for (const auto& [name, value] : hyperparameters.items())
    start.content(1, ProtoMessage().content(1, name).content(2, hyperparameter_value(value)));
  return hparams("_hparams_/session_start_info", 3, start.real64(5, wall_s_).bytes());
}

std::string EventMaker::session_ended(SessionStatus status) const {
  return hparams(kSessionEndTag, 4, ProtoMessage().integer(1, static_cast<int64_t>(status)).real64(2, wall_s_).bytes());
}

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
