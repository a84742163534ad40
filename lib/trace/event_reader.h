// Builds compact events from the values of a trace file.
#pragma once

#include "trace/events.h"
#include "trace/sax.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trainopt::trace {

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
    arguments,  // of an event
    id,
    correlation,
    shapes,
    values,
    bytes,
    occupancy,
    grid,
    flops  // of its `args`
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
  std::map<int64_t, int64_t> world_sizes_;  ///< by rank, as far as the file says; of a file of one rank: at 0

  int depth_ = 0;         ///< open objects and arrays
  int events_depth_ = 0;  ///< depth inside the array of events; 0: outside
  bool seen_events_ = false;
  std::string section_, member_;  ///< the keys at depths 1 and 3
  std::string last_key_;
  Field field_ = Field::other, argument_ = Field::other;
  Draft draft_;
  int64_t events_ = 0;
  std::optional<int64_t> own_rank_;  ///< of a file of one rank
  int64_t listed_rank_ = 0;
  int64_t pids_per_rank_ = 0;  ///< 0: not a merged trace
};

}  // namespace trainopt::trace
