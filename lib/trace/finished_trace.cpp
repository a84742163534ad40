#include "trace/finished_trace.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/held_folder.h"
#include "base/json.h"
#include "trace/gzip_writer.h"
#include "trace/event_copier.h"
#include "trace/event_reader.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt::trace {
namespace {

/// One of the lines on which libtorch writes the parts of an event: `"ph": "X", "cat": "cpu_op", …,` or `"ts": 1.5,
/// …,`.
Json fields_of(std::string_view line) {
  while (!line.empty() && (line.back() == ',' || line.back() == ' ')) line.remove_suffix(1);
  return Json::parse(fmt::format("{{{}}}", line), nullptr, /*allow_exceptions=*/false);
}

bool begins_event(std::string_view line, std::string_view category) {
  constexpr std::string_view kBegin = R"(    "ph": "X", "cat": ")";
  return line.starts_with(kBegin) && line.substr(kBegin.size()).starts_with(category) &&
         line.substr(kBegin.size() + category.size()).starts_with('"');
}

/// The labels of one thread, in the order of their starts; they nest.
class Labels {
 public:
  void add(double start_us, double end_us, std::string name) {
    all_.push_back({start_us, end_us, std::move(name), {}});
  }

  void nest() {
    std::sort(all_.begin(), all_.end(), [](const Label& a, const Label& b) {
      return a.start_us != b.start_us ? a.start_us < b.start_us : a.end_us > b.end_us;
    });
    for (size_t i = 1; i < all_.size(); ++i) all_[i].around = innermost(i - 1, all_[i].start_us);
  }

  /// The names around `at_us`, outermost first, separated by semicolons.
  std::string path(double at_us) const {
    const auto after = std::upper_bound(all_.begin(), all_.end(), at_us,
                                        [](double at, const Label& label) { return at < label.start_us; });
    if (after == all_.begin()) return {};
    std::string path;
    for (auto label = innermost(static_cast<size_t>(after - all_.begin()) - 1, at_us); label;
         label = all_[*label].around)
      path = path.empty() ? all_[*label].name : all_[*label].name + ";" + path;
    return path;
  }

 private:
  struct Label {
    double start_us = 0, end_us = 0;
    std::string name;
    std::optional<size_t> around;  ///< the label that contains this one
  };

  /// The innermost label that contains `at_us`, starting from one that begins no later.
  std::optional<size_t> innermost(size_t from, double at_us) const {
    std::optional<size_t> label = from;
    while (label && all_[*label].end_us <= at_us) label = all_[*label].around;
    return label;
  }

  std::vector<Label> all_;
};

/// Each thread's labels; the key is its number as it is written.
using ThreadLabels = std::map<std::string, Labels>;

std::string thread_of(const Json& fields) { return fields.value("tid", Json()).dump(); }

ThreadLabels read_labels(const std::filesystem::path& raw) {
  ThreadLabels threads;
  std::ifstream file(path_for_others(raw));
  for (std::string line; std::getline(file, line);) {
    if (!begins_event(line, "user_annotation")) continue;
    const Json event = fields_of(line);
    if (!std::getline(file, line)) break;
    const Json times = fields_of(line);
    if (!event.is_object() || !times.is_object()) continue;
    const double start = times.value("ts", 0.0);
    threads[thread_of(event)].add(start, start + times.value("dur", 0.0), event.value("name", ""));
  }
  for (auto& [thread, labels] : threads) labels.nest();
  return threads;
}

/// Copies the lines of `raw`, and adds what `origin` says.
void copy_lines(const std::filesystem::path& raw, const TraceOrigin& origin, GzipWriter& out) {
  const ThreadLabels labels = origin.call_stacks ? read_labels(raw) : ThreadLabels();
  const auto write = [&](const std::string& line) { out.append(line + "\n"); };
  std::ifstream file(path_for_others(raw));
  bool at_start = true;
  std::string path;  // the path of the operation whose lines are being copied
  std::string last;
  for (std::string line; std::getline(file, line);) {
    write(line);
    if (at_start && line.ends_with('{')) {
      at_start = false;
      write(fmt::format(R"(  "distributedInfo": {{"rank": {}, "world_size": {}}},)", origin.rank, origin.ranks));
    } else if (origin.call_stacks && begins_event(line, "cpu_op")) {
      const auto thread = labels.find(thread_of(fields_of(line)));
      if (!std::getline(file, line)) break;
      const Json times = fields_of(line);
      path = thread == labels.end() || !times.is_object() ? "" : thread->second.path(times.value("ts", 0.0));
      write(line);
    } else if (!path.empty() && line == R"(    "args": {)") {
      write(fmt::format(R"(      "Call stack": {},)", json_text(Json(std::exchange(path, "")))));
    }
    if (!line.empty()) last = line;
  }
  if (last != "}") throw UserError(fmt::format("the trace is incomplete: {}", raw.string()), ExitCode::storage);
}

}  // namespace

void finish_trace(const std::filesystem::path& raw, const std::filesystem::path& finished, const TraceOrigin& origin) {
  struct RemovedAtEnd {
    const std::filesystem::path& path;
    ~RemovedAtEnd() { unlink_quietly(path); }
  } const removed{raw};  // also on failure: a large file would fill a disk that has little room already
  replace_file(finished, [&](File& file) {
    GzipWriter out(file);
    copy_lines(raw, origin, out);
    out.finish();
  });
}

void merge_traces(const std::vector<std::filesystem::path>& paths_by_rank, const std::filesystem::path& out) {
  replace_file(out, [&](File& file) {
    GzipWriter writer(file);
    // Before the events, because read_trace() needs it for them.
    writer.append(
        fmt::format("{{\"schemaVersion\": 1, \"pidsPerRank\": {}, \"displayTimeUnit\": \"ms\",\n"
                    "\"traceEvents\": [",
                    kPidsPerRank));
    std::optional<int64_t> base_ns;
    bool any = false;
    std::string descriptions;
    for (size_t rank = 0; rank < paths_by_rank.size(); ++rank) {
      EventCopier copier(paths_by_rank[rank], static_cast<int64_t>(rank), writer, base_ns, any);
      parse_trace_file(paths_by_rank[rank], copier);
      if (!copier.seen_events()) refuse_trace(paths_by_rank[rank], "not a trace: it is JSON, but has no traceEvents");
      descriptions += (rank == 0 ? "\n" : ",\n") + copier.description();
    }
    writer.append(
        fmt::format("\n],\n\"baseTimeNanoseconds\": {},\n\"ranks\": [{}\n]}}\n", base_ns.value_or(0), descriptions));
    writer.finish();
  });
}

}  // namespace trainopt::trace
