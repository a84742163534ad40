#include "train/checkpoint_writer.h"

#include "checkpoint/draft.h"
#include "checkpoint/store.h"
#include "device/device.h"
#include "device/pinned.h"
#include "device/process.h"
#include "train/checkpoint_reader.h"

#include <ATen/ATen.h>

#include <pthread.h>
#include <signal.h>

#include <bit>

namespace trainopt {
namespace {

/// A loss may be finite although its update was not; such weights must not take the place of good ones.
void require_finite(const NamedTensors& tensors, int64_t step) {
  for (const auto& [name, tensor] : tensors) {
    if (!name.starts_with("model.") || tensor.scalar_type() != at::kFloat) continue;
    const float* values = tensor.const_data_ptr<float>();
    constexpr uint32_t kExponent = 0x7F800000;   // all ones: infinite or not a number
    bool bad = false;
    for (int64_t i = 0; i < tensor.numel(); ++i) bad |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent;
    if (bad)
      throw UserError(fmt::format("the weights are not finite, so no checkpoint was written; the one before stays: step {}, {}", step, name), ExitCode::diverged);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options) : options_(std::move(options)) {
  if (!options_.background) return;
  sigset_t all, before;   // signals are for the training thread
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

bool CheckpointWriter::due(int64_t step) {
  return (options_.requested && *options_.requested) || (options_.every_n_steps && step % *options_.every_n_steps == 0);
}

CheckpointWriter::Job CheckpointWriter::copy_of(const ArchiveWriter& archive, int64_t step, bool own_memory) {
  Job job{.step = step, .tensors = {}, .state = state_text(archive.values())};
  std::optional<c10::Device> device;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : archive.tensors()) {
    const bool on_host = tensor.is_cpu();
    if (!on_host) device = tensor.device();
    if (!own_memory && on_host && tensor.is_contiguous()) {
      job.tensors.emplace_back(name, tensor.detach());
      continue;
    }
    at::Tensor& buffer = buffers_[name];
    if (!buffer.defined() || buffer.sizes() != tensor.sizes() || buffer.scalar_type() != tensor.scalar_type())
      buffer = host_tensor(tensor.sizes(), tensor.scalar_type(), at::MemoryFormat::Contiguous, /*pinned=*/!on_host);
    buffer.copy_(tensor.detach(), /*non_blocking=*/true);
    job.tensors.emplace_back(name, buffer);
  }
  if (device) synchronize(*device);
  return job;
}

void CheckpointWriter::save(const ArchiveWriter& archive, int64_t step) {
  if (options_.requested) *options_.requested = false;   // before the copy: who asks from now on wants another one
  finish();
  Job job = copy_of(archive, step, options_.background);
  if (!options_.background) return write(job);
  {
    const std::lock_guard lock(mutex_);
    job_ = std::move(job);
    busy_ = true;
  }
  wake_.notify_all();
}

void CheckpointWriter::write(const Job& job) {
  require_finite(job.tensors, job.step);
  int64_t bytes = static_cast<int64_t>(job.state.size() + options_.recipe.size());
  const TensorEntries tensors = tensor_entries(job.tensors);
  for (const auto& entry : tensors.entries) bytes += static_cast<int64_t>(entry.bytes + entry.name.size()) + 128;
  CheckpointDraft draft(options_.root, job.step, bytes);
  draft.add_tensors(rank_file(0), tensors.entries, {{"format", "pt"}});
  draft.add(kStateFile, job.state);
  draft.add(kRecipeFile, options_.recipe);
  options_.before_commit();
  draft.commit(/*world_size=*/1, options_.versions);
  {
    const std::lock_guard lock(mutex_);
    saved_step_ = job.step;
  }
  prune_checkpoints(options_.root, options_.keep_last, options_.keep);
}

void CheckpointWriter::run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  yield_to_others();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return job_ || ending_; });
    if (!job_) return;
    const Job job = *std::exchange(job_, std::nullopt);
    lock.unlock();
    std::exception_ptr error;
    try {
      write(job);
    } catch (...) {   // a thread boundary: the training thread throws it at its next step
      error = std::current_exception();
    }
    lock.lock();
    error_ = error;
    busy_ = false;
    wake_.notify_all();
  }
}

void CheckpointWriter::wait_until_idle() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [&] { return !busy_; });
}

void CheckpointWriter::check() {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = std::exchange(error_, nullptr);
  }
  if (error) std::rethrow_exception(error);
}

void CheckpointWriter::finish() {
  wait_until_idle();
  check();
}

std::optional<int64_t> CheckpointWriter::saved_step() const {
  const std::lock_guard lock(mutex_);
  return saved_step_;
}

}  // namespace trainopt
