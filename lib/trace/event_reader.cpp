#include "trace/event_reader.h"

#include "trace/byte_source.h"
#include "trace/flops.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <istream>
#include <stdexcept>

namespace trainopt::trace {
namespace {

/// The kinds of Kineto's categories (libkineto/src/ActivityType.cpp), and of those that PyTorch 1.8 wrote.
constexpr std::pair<std::string_view, HostKind> kHostCategories[] = {
    {"cpu_op", HostKind::operation},
    {"Operator", HostKind::operation},
    {"", HostKind::operation},  // torch.autograd.profiler writes no categories
    {"user_annotation", HostKind::annotation},
    {"cuda_runtime", HostKind::runtime},
    {"cuda_driver", HostKind::runtime},
    {"Runtime", HostKind::runtime},
    {"xpu_runtime", HostKind::runtime},
    {"mtia_runtime", HostKind::runtime},
    {"privateuse1_runtime", HostKind::runtime}};
constexpr std::pair<std::string_view, DeviceKind> kDeviceCategories[] = {
    {"kernel", DeviceKind::kernel}, {"Kernel", DeviceKind::kernel},   {"gpu_memcpy", DeviceKind::copy},
    {"Memcpy", DeviceKind::copy},   {"gpu_memset", DeviceKind::fill}, {"Memset", DeviceKind::fill}};

}  // namespace

EventReader::Field EventReader::event_field(std::string_view key) {
  if (key == "ph") return Field::phase;
  if (key == "name") return Field::name;
  if (key == "cat") return Field::category;
  if (key == "ts") return Field::start;
  if (key == "dur") return Field::duration;
  if (key == "pid") return Field::process;
  if (key == "tid") return Field::thread;
  return key == "args" ? Field::arguments : Field::other;
}

EventReader::Field EventReader::argument_field(std::string_view key) {
  if (key == "External id" || key == "external id") return Field::id;
  if (key == "correlation") return Field::correlation;
  if (key == "Input Dims" || key == "Input dims") return Field::shapes;
  if (key == "Concrete Inputs") return Field::values;
  if (key == "bytes") return Field::bytes;
  if (key == "est. achieved occupancy %") return Field::occupancy;
  if (key == "grid") return Field::grid;
  return key == "flops" ? Field::flops : Field::other;
}

int64_t EventReader::integer(std::string_view text) const {
  int64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr == text.data())
    refuse_trace(path_, fmt::format("not a trace: event {} has a text where a number belongs", events_ + 1));
  return number;
}

int64_t EventReader::time(std::string_view text) const {
  try {
    return nanoseconds_of(text);
  } catch (const std::logic_error&) {  // std::stod's two
    refuse_trace(path_, fmt::format("not a trace: event {} has an impossible time", events_ + 1));
  }
}

void EventReader::open() {
  ++depth_;
  if (events_depth_ > 0 && depth_ == events_depth_ + 1) clear_draft();
}

bool EventReader::start_object(size_t) {
  open();
  if (events_depth_ > 0 && depth_ == events_depth_ + 2 && field_ == Field::arguments) argument_ = Field::other;
  return true;
}

bool EventReader::start_array(size_t) {
  const bool events = events_depth_ == 0 && (depth_ == 0 || (depth_ == 1 && section_ == "traceEvents"));
  if (events_depth_ > 0 && field_ == Field::arguments && argument_ == Field::shapes) {
    if (!draft_.shapes.empty() && draft_.shapes.back() != '[') draft_.shapes += ", ";
    draft_.shapes += '[';
  }
  open();
  if (events) {
    events_depth_ = depth_;
    seen_events_ = true;
  }
  if (events_depth_ > 0 && argument_ == Field::grid && draft_.blocks < 0) draft_.blocks = 1;
  return true;
}

bool EventReader::end_array() {
  if (depth_ == events_depth_) events_depth_ = 0;
  if (events_depth_ > 0 && field_ == Field::arguments && argument_ == Field::shapes) draft_.shapes += ']';
  --depth_;
  return true;
}

bool EventReader::end_object() {
  if (events_depth_ > 0 && depth_ == events_depth_ + 1) finish_event();
  if (events_depth_ > 0 && depth_ == events_depth_ + 2) argument_ = Field::other;
  --depth_;
  return true;
}

bool EventReader::key(string_t& value) {
  if (events_depth_ == 0) {
    if (depth_ == 1) section_ = value;
    if (depth_ == 3) member_ = value;
    last_key_ = value;
  } else if (depth_ == events_depth_ + 1) {
    field_ = event_field(value);
    argument_ = Field::other;
  } else if (depth_ == events_depth_ + 2 && field_ == Field::arguments) {
    argument_ = argument_field(value);
  }
  return true;
}

bool EventReader::boolean(bool) { return value("", true); }
bool EventReader::null() { return value("", true); }
bool EventReader::number(const std::string& text) { return value(text, false); }
bool EventReader::string(string_t& text) { return value(text, true); }

bool EventReader::value(std::string_view text, bool is_text) {
  if (events_depth_ == 0)
    header_value(text);
  else if (depth_ > events_depth_)
    event_value(text, is_text);
  return true;
}

void EventReader::header_value(std::string_view text) {
  if (depth_ == 1 && last_key_ == "pidsPerRank") {
    pids_per_rank_ = integer(text);
    if (pids_per_rank_ != kPidsPerRank) refuse_trace(path_, "the trace was merged by another version of trainopt");
  }
  if (depth_ == 2 && section_ == "distributedInfo") {
    if (last_key_ == "rank") own_rank_ = integer(text);
    if (last_key_ == "world_size") world_sizes_[0] = integer(text);
  }
  if (depth_ == 3 && section_ == "deviceProperties" && last_key_ == "name") device_names_[0].emplace_back(text);
  if (section_ != "ranks") return;
  if (depth_ == 3 && last_key_ == "rank") listed_rank_ = integer(text);
  if (depth_ == 4 && member_ == "distributedInfo" && last_key_ == "world_size")
    world_sizes_[listed_rank_] = integer(text);
  if (depth_ == 5 && member_ == "deviceProperties" && last_key_ == "name")
    device_names_[listed_rank_].emplace_back(text);
}

void EventReader::event_value(std::string_view text, bool is_text) {
  if (depth_ == events_depth_ + 1) {
    switch (field_) {
      case Field::phase:
        draft_.phase = text;
        break;
      case Field::name:
        draft_.name = text;
        break;
      case Field::category:
        draft_.category = text;
        break;
      case Field::start:
        draft_.start_ns = time(text);
        break;
      case Field::duration:
        draft_.duration_ns = time(text);
        break;
      // Kineto names some processes and threads, "Traces" and "Trace PyTorch Profiler".
      case Field::process:
        draft_.process = is_text ? -1 : integer(text);
        break;
      case Field::thread:
        draft_.thread = is_text ? -1 - int64_t{names_->add(text)} : integer(text);
        break;
      default:
        break;
    }
    return;
  }
  switch (argument_) {
    case Field::id:
      draft_.id = integer(text);
      break;
    case Field::correlation:
      draft_.correlation = integer(text);
      break;
    case Field::bytes:
      draft_.bytes = integer(text);
      break;
    case Field::flops:
      draft_.flops = integer(text);
      break;
    case Field::occupancy:
      draft_.occupancy = is_text ? -1 : std::strtod(std::string(text).c_str(), nullptr);
      break;
    case Field::grid:
      if (__builtin_mul_overflow(draft_.blocks, integer(text), &draft_.blocks)) draft_.blocks = -1;  // nonsense
      break;
    case Field::values:
      draft_.values.emplace_back(text);
      break;
    case Field::shapes:
      if (!draft_.shapes.empty() && draft_.shapes.back() != '[') draft_.shapes += ", ";
      draft_.shapes += text;
      break;
    default:
      break;
  }
}

void EventReader::clear_draft() {
  draft_.phase.clear();
  draft_.name.clear();
  draft_.category.clear();
  draft_.shapes.clear();
  draft_.values.clear();
  draft_.start_ns = draft_.correlation = draft_.blocks = draft_.flops = -1;
  draft_.duration_ns = draft_.process = draft_.thread = draft_.id = draft_.bytes = 0;
  draft_.occupancy = -1;
  field_ = argument_ = Field::other;
}

void EventReader::finish_event() {
  ++events_;
  if (draft_.phase != "X") return;
  for (const auto& [category, kind] : kHostCategories)
    if (draft_.category == category) return add_host(kind);
  for (const auto& [category, kind] : kDeviceCategories)
    if (draft_.category == category) return add_device(kind);
}

RankTrace& EventReader::rank_of_draft() {
  if (draft_.start_ns < 0 || draft_.duration_ns < 0)
    refuse_trace(path_, fmt::format("not a trace: event {} has no time", events_));
  const int64_t rank = pids_per_rank_ > 0 && draft_.process >= 0 ? draft_.process / pids_per_rank_ : 0;
  RankTrace& trace = ranks_[rank];
  trace.rank = rank;
  return trace;
}

uint32_t EventReader::thread_of_draft() {
  return threads_.try_emplace({draft_.process, draft_.thread}, static_cast<uint32_t>(threads_.size())).first->second;
}

void EventReader::add_host(HostKind kind) {
  HostEvent event;
  RankTrace& trace = rank_of_draft();
  event.start_ns = draft_.start_ns;
  event.end_ns = draft_.start_ns + draft_.duration_ns;
  event.id = draft_.id;
  event.kind = kind;
  event.name = names_->add(draft_.name);
  event.thread = thread_of_draft();
  if (!draft_.shapes.empty() && draft_.shapes != "[]") event.shapes = names_->add(draft_.shapes);
  if (kind == HostKind::runtime)
    event.extra = draft_.correlation;
  else
    event.extra = draft_.flops >= 0 ? draft_.flops : flops_of(draft_.name, draft_.shapes, draft_.values);
  trace.host.push_back(event);
}

void EventReader::add_device(DeviceKind kind) {
  DeviceEvent event;
  RankTrace& trace = rank_of_draft();
  event.start_ns = draft_.start_ns;
  event.end_ns = draft_.start_ns + draft_.duration_ns;
  event.id = draft_.id;
  event.correlation = draft_.correlation;
  event.bytes = draft_.bytes;
  event.blocks = draft_.blocks;
  event.occupancy = draft_.occupancy;
  event.kind = kind;
  event.name = names_->add(draft_.name);
  // Kineto uses the device's number as process number.
  event.device = static_cast<int32_t>(pids_per_rank_ > 0 ? draft_.process % pids_per_rank_ : draft_.process);
  trace.device.push_back(event);
}

std::vector<RankTrace> EventReader::take_ranks() {
  std::vector<RankTrace> all;
  for (auto& [rank, trace] : ranks_) {
    trace.names = names_;
    trace.device_names = std::move(device_names_[rank]);
    if (const auto size = world_sizes_.find(rank); size != world_sizes_.end()) trace.ranks = size->second;
    trace.says_rank = pids_per_rank_ > 0 || own_rank_;
    if (pids_per_rank_ == 0) trace.rank = own_rank_.value_or(0);
    all.push_back(std::move(trace));
  }
  return all;
}

namespace {

constexpr size_t kStartBytes = 16;         // a file that is wrong this early was never JSON
constexpr double kMaxMicroseconds = 4e15;  // 127 years; start plus duration fits into 64 bits

}  // namespace

int64_t nanoseconds_of(std::string_view text) {
  int64_t whole = 0;
  const char *end = text.data() + text.size(), *at = text.data();
  const auto parsed = std::from_chars(at, end, whole);
  const bool fits = parsed.ec == std::errc() && std::abs(static_cast<double>(whole)) < kMaxMicroseconds;
  if (fits && parsed.ptr == end) return whole * 1000;
  const bool plain = fits && *parsed.ptr == '.' && text.find_first_of("eE") == std::string_view::npos;
  if (!plain) {  // 1.5e3, and what does not fit
    const double number = std::stod(std::string(text));
    if (!(std::abs(number) < kMaxMicroseconds)) throw std::invalid_argument("time out of range");
    return std::llround(number * 1000);
  }
  int64_t fraction = 0;
  at = parsed.ptr + 1;
  for (int digit = 0; digit < 3; ++digit) fraction = fraction * 10 + (at < end ? *at++ - '0' : 0);
  if (at < end && *at >= '5') ++fraction;
  return whole * 1000 + (text.front() == '-' ? -fraction : fraction);
}

std::string microseconds_text(int64_t nanoseconds) {
  const char* sign = nanoseconds < 0 ? "-" : "";
  const int64_t size = std::abs(nanoseconds);
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

void refuse_trace(const std::filesystem::path& path, const std::string& problem) {
  throw UserError(problem + ": " + path.string(), ExitCode::data);
}

void parse_trace_file(const std::filesystem::path& path, SaxHandler& handler, int64_t most_bytes) {
  ByteSource bytes(path, most_bytes);
  std::istream stream(&bytes);
  if (SaxJson::sax_parse(stream, &handler)) return;
  // The parser reads to the end of the file only if it expects more there.
  if (stream.eof()) refuse_trace(path, "the trace is truncated: its JSON ends too early");
  if (handler.problem_at() <= kStartBytes) refuse_trace(path, "not a trace: neither JSON nor gzip");
  refuse_trace(path, fmt::format("not a trace: its JSON is invalid at byte {}", handler.problem_at()));
}

std::vector<RankTrace> read_trace(const std::filesystem::path& path, int64_t most_bytes) {
  EventReader reader(path);
  parse_trace_file(path, reader, most_bytes);
  if (!reader.seen_events()) refuse_trace(path, "not a trace: it is JSON, but has no traceEvents");
  auto ranks = reader.take_ranks();
  if (ranks.empty()) refuse_trace(path, "the trace has no events of the profiler");
  return ranks;
}

}  // namespace trainopt::trace
