#include "device/profiler_recording.h"

#include "base/error.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <set>

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
  result->save(file.string());
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored) || std::filesystem::file_size(file, ignored) == 0)
    throw UserError(fmt::format("cannot write the profiler's trace: {}", file.string()), ExitCode::storage);
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
