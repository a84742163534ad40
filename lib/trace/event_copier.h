// Copies the events of one rank's trace into a merged trace.
#pragma once

#include "trace/byte_source.h"
#include "trace/gzip_writer.h"
#include "trace/event_reader.h"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trainopt::trace {

/// Writes the elements of `traceEvents`, each on its own line, to the merged file as they are read, and keeps the
/// file's other members as text.
class EventCopier : public SaxHandler {
 public:
  /// `base_ns`: the first rank's `baseTimeNanoseconds`; set by the first rank.
  EventCopier(std::filesystem::path path, int64_t rank, GzipWriter& to, std::optional<int64_t>& base_ns, bool& any)
      : path_(std::move(path)), rank_(rank), to_(to), base_ns_(base_ns), any_(any) {}

  bool seen_events() const { return seen_events_; }
  /// `{"rank": 1, "deviceProperties": […], …}`.
  std::string description() const { return "{\"rank\": " + std::to_string(rank_) + other_members_ + "}"; }

  bool boolean(bool value) override { return write(value ? "true" : "false"); }
  bool null() override { return write("null"); }
  bool string(string_t& value) override;
  bool start_object(size_t) override { return open('{'); }
  bool key(string_t& value) override;
  bool end_object() override { return close('}'); }
  bool start_array(size_t) override;
  bool end_array() override;

 protected:
  bool number(const std::string& text) override;

 private:
  bool in_events() const { return events_depth_ > 0; }
  bool in_event() const { return in_events() && depth_ == events_depth_ + 1; }
  void separate();
  bool open(char bracket);
  bool close(char bracket);
  bool write(std::string_view value);

  std::filesystem::path path_;
  int64_t rank_;
  GzipWriter& to_;
  std::optional<int64_t>& base_ns_;
  bool& any_;  ///< whether the merged file has an event already
  int64_t shift_ns_ = 0;

  std::string text_;           ///< the event or member under way
  std::string other_members_;  ///< ", \"schemaVersion\": 1, …"
  std::string key_, member_, event_name_;
  std::vector<bool> has_element_;  ///< one per open object or array
  int depth_ = 0, events_depth_ = 0;
  bool seen_events_ = false;
};

}  // namespace trainopt::trace
