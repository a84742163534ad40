// Builds compact events from the values of a trace file.
#pragma once

#include "base/error.h"
#include "trace/byte_source.h"
#include "trace/events.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt::trace {

// What the readers of a trace share: numbers exactly as written, and errors as sentences.

using SaxJson = nlohmann::json;

/// Receives a file's values. Derived classes override what they need.
class SaxHandler : public nlohmann::json_sax<SaxJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t byte, const std::string&, const SaxJson::exception&) override {
    problem_at_ = byte;
    return false;
  }
  size_t problem_at() const { return problem_at_; }

 protected:
  virtual bool number(const std::string& text) = 0;  ///< any number, as written

 private:
  size_t problem_at_ = 0;
};

/// "4628404622663.864" µs in nanoseconds. A double would lose digits: traces count from the Unix epoch. Throws
/// std::invalid_argument if it is not a number.
int64_t nanoseconds_of(std::string_view microseconds);

/// The number in Kineto's µs, "4628404622663.864", always with three decimals.
std::string microseconds_text(int64_t nanoseconds);

/// Parses the file with `handler`. Throws UserError(data) for text that is not JSON or ends too early, and what
/// `handler` throws.
void parse_trace_file(const std::filesystem::path& path, SaxHandler& handler, int64_t most_bytes = kMostJsonBytes);

/// Throws UserError(data): "`problem`: `path`".
[[noreturn]] void refuse_trace(const std::filesystem::path& path, const std::string& problem);

class EventReader : public SaxHandler {
 public:
  explicit EventReader(std::filesystem::path path) : path_(std::move(path)), names_(std::make_shared<Names>()) {}

  bool seen_events() const { return seen_events_; }  ///< the file has an array of events
  /// The ranks found, in ascending order. Call it once, at the end.
  std::vector<RankTrace> take_ranks();

  bool boolean(bool value) override;
  bool null() override;
  bool string(string_t& value) override;
  bool start_object(size_t size) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(size_t size) override;
  bool end_array() override;

 protected:
  bool number(const std::string& text) override;

 private:
  enum class Field : uint8_t {
    other,
    phase,
    name,
    category,
    start,
    duration,
    process,
    thread,
    arguments,  // phase to arguments: members of an event
    id,
    correlation,
    shapes,
    values,
    bytes,
    occupancy,
    grid,
    flops  // id to flops: members of its `args`
  };
  /// One event while it is read. Members keep their capacity from event to event.
  struct Draft {
    std::string phase, name, category, shapes;
    std::vector<std::string> values;
    int64_t start_ns = -1, duration_ns = 0, process = 0, thread = 0;
    int64_t id = 0, correlation = -1, bytes = 0, blocks = -1, flops = -1;
    double occupancy = -1;
  };

  static Field event_field(std::string_view key);
  static Field argument_field(std::string_view key);
  bool value(std::string_view text, bool is_text);
  void event_value(std::string_view text, bool is_text);
  void header_value(std::string_view text);
  void open();
  void clear_draft();
  void finish_event();
  void add_host(HostKind kind);
  void add_device(DeviceKind kind);
  RankTrace& rank_of_draft();
  uint32_t thread_of_draft();
  int64_t integer(std::string_view text) const;
  int64_t time(std::string_view text) const;

  std::filesystem::path path_;
  std::shared_ptr<Names> names_;
  std::map<int64_t, RankTrace> ranks_;
  std::map<std::pair<int64_t, int64_t>, uint32_t> threads_;
  std::map<int64_t, std::vector<std::string>> device_names_;
  std::map<int64_t, int64_t> world_sizes_;  ///< each rank's, as far as the file says; in a file of one rank: at 0

  int depth_ = 0;         ///< open objects and arrays
  int events_depth_ = 0;  ///< depth inside the array of events; 0: outside
  bool seen_events_ = false;
  std::string section_, member_;  ///< the keys at depths 1 and 3
  std::string last_key_;
  Field field_ = Field::other, argument_ = Field::other;
  Draft draft_;
  int64_t events_ = 0;
  std::optional<int64_t> own_rank_;  ///< the rank of a file of one rank
  int64_t listed_rank_ = 0;
  int64_t pids_per_rank_ = 0;  ///< 0: not a merged trace
};

// Reading Chrome-trace JSON as Kineto writes it, in one pass.

/// In merged traces (merge_traces()) the process p of rank r has the number r · kPidsPerRank + p.
constexpr int64_t kPidsPerRank = 1000000;

/// The ranks of a trace file, plain or gzip-compressed, in ascending order: one, except in a merged file. A trace that
/// does not say its rank (`distributedInfo`) gets rank 0. Needs memory for the compact events, not for the text. Throws
/// UserError(data) that names the file if it is missing, empty, truncated, damaged or not a trace, or has no events.
/// `most_bytes` of JSON: more are refused.
std::vector<RankTrace> read_trace(const std::filesystem::path& path, int64_t most_bytes = kMostJsonBytes);

}  // namespace trainopt::trace
