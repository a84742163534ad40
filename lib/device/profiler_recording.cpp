#include "device/profiler_recording.h"

#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/held_folder.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <fstream>
#include <set>
#include <string>
#include <string_view>

namespace trainopt {
namespace {

namespace profiler = torch::autograd::profiler;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities_of(const RecordingOptions& options) {
  std::set<ActivityType> activities;
  if (options.cpu) activities.insert(ActivityType::CPU);
  if (options.gpu) activities.insert(ActivityType::CUDA);
  return activities;
}

ProfilerConfig config_of(const RecordingOptions& options) {
  torch::profiler::impl::ExperimentalConfig experimental;
  // The loader's threads too, which exist already. libtorch reports memory only to a profiler of this thread.
  experimental.profile_all_threads = !options.memory;
  return ProfilerConfig(ProfilerState::KINETO, options.shapes, options.memory, /*with_stack=*/false,
                        /*with_flops=*/false, /*with_modules=*/false, experimental);
}

/// Kineto's last line is "}"; no other line is.
bool is_complete(const std::filesystem::path& trace) {
  std::ifstream file(trace, std::ios::binary);
  char end[3] = {};
  file.seekg(-3, std::ios::end).read(end, sizeof end);
  return file && (std::string_view(end, 3) == "\n}\n" || std::string_view(end + 1, 2) == "\n}");
}

/// Kineto does not say why it could not write. What prevented it prevents writing more to the same file. Returns the
/// errno, or 0 if more can be written after all.
int why_incomplete(const std::filesystem::path& trace) {
  try {
    File file = File::append_to(trace);
    const std::string more(size_t{1} << 16, ' ');
    file.append(more.data(), more.size());
    file.sync();
    file.close();
  } catch (const FileError& error) {  // named recovery: this is the answer
    return error.number();
  }
  return 0;
}

}  // namespace

ProfilerRecording::ProfilerRecording(const RecordingOptions& options) : options_(options) {
  profiler::prepareProfiler(config_of(options_), activities_of(options_));
  prepared_ = true;
}

void ProfilerRecording::start() {
  profiler::enableProfiler(
      config_of(options_), activities_of(options_),
      {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  started_ = true;
}

void ProfilerRecording::save(const std::filesystem::path& file) {
  TRAINOPT_CHECK(started_);
  started_ = prepared_ = false;
  const auto result = profiler::disableProfiler();
  result->save(path_for_others(file).string());
  if (is_complete(path_for_others(file))) return;
  auto unfinished = file;
  unfinished += ".tmp";  // Kineto renames it once all is written
  const int reason = why_incomplete(kind_of(unfinished) != PathKind::absent ? unfinished : file);
  for (const auto& leftover : {unfinished, file}) unlink_quietly(leftover);
  if (reason != 0) throw FileError("write", file, reason, ExitCode::storage);
  throw UserError(fmt::format("the profiler could not write its trace: {}", file.string()), ExitCode::storage);
}

ProfilerRecording::~ProfilerRecording() {
  if (!prepared_) return;
  try {
    if (!started_) start();  // what was only prepared cannot be ended
    profiler::disableProfiler();
  } catch (...) {  // a destructor must not throw
  }
}

}  // namespace trainopt
