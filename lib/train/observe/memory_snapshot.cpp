#include "train/observe/memory_snapshot.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/files/pickle.h"
#include "device/memory.h"

#include <algorithm>

namespace trainopt {
namespace {

int64_t number_of(const void* address) { return static_cast<int64_t>(reinterpret_cast<intptr_t>(address)); }

class SnapshotWriter {
 public:
  explicit SnapshotWriter(const MemoryRecorder& recorder)
      : contents_(recorder.contents()), history_(recorder.history()) {}

  std::string write() {
    out_.begin_dictionary();
    out_.text("segments");
    out_.begin_list();
    for (const auto& [address, block] : in_order()) segment(address, block);
    out_.end_list();
    out_.text("device_traces");
    out_.begin_list();
    out_.begin_list();
    for (const MemoryEvent& event : history_) trace_entry(event);
    out_.end_list();
    out_.end_list();
    out_.text("allocator_settings");
    out_.begin_dictionary();
    out_.end_dictionary();
    out_.end_dictionary();
    return out_.finish();
  }

 private:
  std::vector<std::pair<const void*, MemoryRecorder::Block>> in_order() const {
    std::vector<std::pair<const void*, MemoryRecorder::Block>> blocks(contents_.blocks.begin(), contents_.blocks.end());
    std::sort(blocks.begin(), blocks.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    return blocks;
  }

  void number(const char* key, int64_t value) {
    out_.text(key);
    out_.integer(value);
  }

  /// The viewer shows a frame as file:line:name.
  void frames(size_t label) {
    const MemoryLabel& made_by = contents_.labels[label];
    out_.text("frames");
    out_.begin_list();
    out_.begin_dictionary();
    out_.text("name");
    out_.text(where_text(made_by));
    out_.text("filename");
    out_.text(name_of(made_by.use));
    number("line", 0);
    out_.end_dictionary();
    out_.end_list();
  }

  void segment(const void* address, const MemoryRecorder::Block& block) {
    out_.begin_dictionary();
    number("device", 0);
    number("address", number_of(address));
    for (const char* size : {"total_size", "allocated_size", "active_size", "requested_size"})
      number(size, block.bytes);
    number("stream", 0);
    out_.text("segment_type");
    out_.text("large");
    out_.text("segment_pool_id");
    out_.begin_list();
    out_.integer(0);
    out_.integer(0);
    out_.end_list();
    out_.text("is_expandable");
    out_.boolean(false);
    frames(block.label);
    out_.text("blocks");
    out_.begin_list();
    out_.begin_dictionary();
    number("address", number_of(address));
    number("size", block.bytes);
    number("requested_size", block.bytes);
    out_.text("state");
    out_.text("active_allocated");
    frames(block.label);
    out_.end_dictionary();
    out_.end_list();
    out_.end_dictionary();
  }

  /// A CPU's memory is free as soon as it is released, which the viewer expects as two entries.
  void trace_entry(const MemoryEvent& event) {
    if (event.bytes >= 0) return entry("alloc", event);
    entry("free_requested", event);
    entry("free_completed", event);
  }

  void entry(const char* action, const MemoryEvent& event) {
    out_.begin_dictionary();
    out_.text("action");
    out_.text(action);
    number("addr", number_of(event.address));
    number("size", std::abs(event.bytes));
    number("stream", 0);
    number("time_us", event.time_us);
    frames(event.label);
    out_.end_dictionary();
  }

  MemoryRecorder::Contents contents_;
  std::vector<MemoryEvent> history_;
  PickleWriter out_;
};

}  // namespace

std::string memory_snapshot(const MemoryRecorder& recorder) { return SnapshotWriter(recorder).write(); }

void write_memory_snapshot(const std::filesystem::path& file, c10::Device device, const MemoryRecorder* recorder) {
  TRAINOPT_CHECK(recorder || device.is_cuda());
  create_folders(file.parent_path());
  write_file(file, device.is_cuda() ? gpu_memory_snapshot() : memory_snapshot(*recorder));
}

}  // namespace trainopt
