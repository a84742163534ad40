#include "trace/event_copier.h"

#include "base/json.h"
#include "trace/event_reader.h"

#include <charconv>
#include <stdexcept>

namespace trainopt::trace {
namespace {

/// Flow arrows of rank r have numbers from r · this; Kineto's are 32-bit numbers.
constexpr int64_t kFlowsPerRank = 10000000000;

std::string json_quoted(const std::string& text) {
  for (const char c : text)
    if (static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\') return json_text(Json(text));
  return '"' + text + '"';
}

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return {};
  return number;
}

}  // namespace

void EventCopier::separate() {
  if (depth_ == 0 || has_element_.back()) text_ += depth_ == 0 ? "" : ", ";
  if (depth_ > 0) has_element_.back() = true;
}

bool EventCopier::write(std::string_view value) {
  // After a key the value needs no comma.
  if (!text_.ends_with(": ")) separate();
  text_ += value;
  if (depth_ == 1 && !in_events()) {
    other_members_ += ", " + text_;
    text_.clear();
  }
  return true;
}

bool EventCopier::open(char bracket) {
  if (in_events() && depth_ == events_depth_) {
    text_.clear();
    event_name_.clear();
  } else if (!text_.ends_with(": ") && depth_ > 0) {
    separate();
  }
  if (depth_ > 0) text_ += bracket;
  ++depth_;
  has_element_.push_back(false);
  return true;
}

bool EventCopier::close(char bracket) {
  --depth_;
  has_element_.pop_back();
  if (depth_ == 0) return true;
  text_ += bracket;
  if (in_events() && depth_ == events_depth_) {
    to_.append((any_ ? ",\n" : "\n") + text_);
    any_ = true;
    text_.clear();
  } else if (depth_ == 1 && !in_events()) {
    other_members_ += ", " + text_;
    text_.clear();
  }
  return true;
}

bool EventCopier::key(string_t& value) {
  if (depth_ == 1) {
    member_ = value;
    text_ = json_quoted(value) + ": ";
    return true;
  }
  if (in_event() || !in_events() || depth_ == events_depth_ + 2) key_ = value;
  separate();
  text_ += json_quoted(value) + ": ";
  return true;
}

bool EventCopier::start_array(size_t) {
  const bool events = depth_ == 0 || (depth_ == 1 && member_ == "traceEvents");
  open('[');
  if (events) {
    events_depth_ = depth_;
    seen_events_ = true;
    text_.clear();
  }
  return true;
}

bool EventCopier::end_array() {
  if (depth_ != events_depth_) return close(']');
  events_depth_ = 0;
  --depth_;
  has_element_.pop_back();
  text_.clear();
  return true;
}

bool EventCopier::string(string_t& value) {
  if (in_event() && key_ == "name") event_name_ = value;
  const bool names_process = in_events() && depth_ == events_depth_ + 2 && event_name_ == "process_name";
  const bool process = in_event() && key_ == "pid";  // a process that has a name instead of a number
  if ((names_process && key_ == "name") || process) value = fmt::format("rank {}: {}", rank_, value);
  return write(json_quoted(value));
}

bool EventCopier::number(const std::string& text) {
  if (depth_ == 1 && member_ == "baseTimeNanoseconds") {
    if (const auto base = whole_number(text)) {
      if (!base_ns_) base_ns_ = *base;
      shift_ns_ = *base - *base_ns_;
    }
  }
  if (!in_event()) return write(text);
  if (key_ == "ts" && shift_ns_ != 0) {
    try {
      return write(microseconds_text(nanoseconds_of(text) + shift_ns_));
    } catch (const std::logic_error&) {  // std::stod's two
      refuse_trace(path_, "not a trace: an event has an impossible time");
    }
  }
  const auto whole = whole_number(text);
  if (whole && key_ == "pid") return write(std::to_string(rank_ * kPidsPerRank + *whole % kPidsPerRank));
  if (whole && (key_ == "id" || key_ == "bind_id")) return write(std::to_string(rank_ * kFlowsPerRank + *whole));
  return write(text);
}

}  // namespace trainopt::trace
