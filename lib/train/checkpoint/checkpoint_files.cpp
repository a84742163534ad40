#include "train/checkpoint/checkpoint_files.h"

#include "base/files/files.h"
#include "base/log.h"
#include "base/signals.h"
#include "checkpoint/draft.h"
#include "checkpoint/store.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/process.h"
#include "device/tensor.h"

#include <pthread.h>

namespace trainopt {
namespace {

constexpr int kStateVersion = 1;
constexpr int64_t kMaxStateBytes = int64_t{64} << 20;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
  throw UserError(fmt::format("this program cannot read the checkpoint: {}; {}", file.string(), why),
                  ExitCode::checkpoint);
}

const StoredFile& listed(const Manifest& manifest, const std::filesystem::path& folder, const std::string& name) {
  const auto found = manifest.files.find(name);
  if (found == manifest.files.end()) refuse(folder, fmt::format("it has no {}", name));
  return found->second;
}

std::string read_verified(const std::filesystem::path& folder, const Manifest& manifest, const std::string& name) {
  const StoredFile& expected = listed(manifest, folder, name);
  std::string bytes = read_file(folder / name, ExitCode::checkpoint, kMaxStateBytes);
  Checksum sum;
  sum.add(bytes.data(), bytes.size());
  if (sum.value() != expected.xxh3) refuse(folder / name, "the file is damaged: its XXH3 differs from the manifest");
  return bytes;
}

}  // namespace

std::string rank_file(int64_t rank) { return fmt::format("rank-{:04}.safetensors", rank); }

std::string state_text(const Json& values) {
  Json state = {{"schema_version", kStateVersion}};
  state.update(values);
  return json_text(state, 2) + "\n";
}

ArchiveReader read_checkpoint(const std::filesystem::path& folder) {
  const Manifest manifest = open_checkpoint(folder);
  Json state = parse_json(read_verified(folder, manifest, kStateFile), /*allow_exceptions=*/false);
  if (!state.is_object() || !state.contains("schema_version"))
    refuse(folder / kStateFile, "it is not a JSON object with a schema_version");
  if (state["schema_version"] != kStateVersion)
    refuse(folder / kStateFile, fmt::format("it has schema_version {}, but this program reads {}",
                                            json_text(state["schema_version"]), kStateVersion));
  read_verified(folder, manifest, kRecipeFile);  // only verified here; the caller reads it next
  NamedTensors tensors;
  for (int64_t rank = 0; rank < manifest.world_size; ++rank)
    for (auto& entry : load_tensors(folder / rank_file(rank), listed(manifest, folder, rank_file(rank)).xxh3))
      tensors.push_back(std::move(entry));
  return {folder, std::move(tensors), std::move(state)};
}

std::optional<ArchiveReader> read_newest_checkpoint(const std::filesystem::path& root,
                                                    const std::function<void(const std::string&)>& rejected) {
  const auto all = list_checkpoints(root);
  for (const auto& candidate : all) {
    try {
      return read_checkpoint(candidate.folder);
    } catch (const UserError& error) {  // named recovery: try the next older one
      rejected(error.what());
    }
  }
  if (!all.empty())
    throw UserError(fmt::format("none of the {} checkpoints is valid; set checkpoint.resume to another one, or remove "
                                "them to start from scratch: {}",
                                all.size(), root.string()),
                    ExitCode::checkpoint);
  return std::nullopt;
}

namespace {

/// The loss may be finite although its update was not. Such weights must not replace good ones.
void require_finite(const NamedTensors& tensors, int64_t step) {
  NamedTensors weights = tensors;
  std::erase_if(weights, [](const auto& entry) { return !entry.first.starts_with("model."); });
  if (const auto bad = first_not_finite(weights))
    throw UserError(
        fmt::format(
            "the weights are not finite, so they are not saved; earlier checkpoints are unaffected: step {}, {}", step,
            *bad),
        ExitCode::diverged);
}

void add_lists(Json& state, const Json& lists) {
  for (const auto& [name, items] : lists.items()) {
    Json& all = state[name];
    if (all.is_null()) all = Json::array();
    append_new(all, items);
  }
}

}  // namespace

CheckpointWriter::CheckpointWriter(CheckpointWriterOptions options) : options_(std::move(options)) {
  if (!options_.background) return;
  const BlockedSignals blocked;
  thread_ = std::thread([this] { run(); });
}

CheckpointWriter::~CheckpointWriter() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

CheckpointWriter::Snapshot CheckpointWriter::copy_of(const ArchiveWriter& archive, int64_t step, bool own_memory) {
  Snapshot snapshot{.step = step, .tensors = {}, .values = archive.values(), .lists = archive.lists()};
  std::optional<c10::Device> device;
  const at::NoGradGuard no_grad;
  for (const auto& [name, tensor] : archive.tensors()) {
    const bool on_host = tensor.is_cpu();
    if (!on_host) device = tensor.device();
    if (!own_memory && on_host && tensor.is_contiguous()) {
      snapshot.tensors.emplace_back(name, tensor.detach());
      continue;
    }
    at::Tensor& buffer = buffers_[name];
    if (!buffer.defined() || buffer.sizes() != tensor.sizes() || buffer.scalar_type() != tensor.scalar_type())
      buffer = host_tensor(tensor.sizes(), tensor.scalar_type(), at::MemoryFormat::Contiguous, /*pinned=*/!on_host);
    buffer.copy_(tensor.detach(), /*non_blocking=*/true);
    snapshot.tensors.emplace_back(name, buffer);
  }
  if (device) synchronize(*device);
  return snapshot;
}

void CheckpointWriter::save(const ArchiveWriter& archive, int64_t step) {
  if (options_.requested) *options_.requested = false;  // first: later requests want another checkpoint
  wait_until_idle();
  Snapshot snapshot = copy_of(archive, step, options_.background);
  if (!options_.background) return write(snapshot);
  std::exception_ptr earlier;
  {
    const std::lock_guard lock(mutex_);
    earlier = std::exchange(error_, nullptr);
    pending_ = std::move(snapshot);
    busy_ = true;
  }
  wake_.notify_all();
  if (earlier) std::rethrow_exception(earlier);  // only now, so that this state is saved anyway
}

void CheckpointWriter::write(const Snapshot& snapshot) {
  require_finite(snapshot.tensors, snapshot.step);
  ++written_;
  if (options_.position.is_first())
    write_complete(snapshot);
  else
    write_rank_part(snapshot);
}

void CheckpointWriter::write_rank_part(const Snapshot& snapshot) {
  const std::string name = options_.get(fmt::format("checkpoint/{}", written_));
  if (!is_hidden_name(name) || name.find('/') != name.npos)
    throw UserError(fmt::format("rank 0 names no draft of a checkpoint: {}", name), ExitCode::peer);
  const StoredFile file = write_part(options_.root / name, rank_file(options_.position.rank),
                                     tensor_entries(snapshot.tensors).entries, {{"format", "pt"}});
  options_.put(fmt::format("checkpoint/{}/{}", written_, options_.position.rank),
               json_text(Json{file.bytes, file.xxh3, snapshot.lists}));
}

void CheckpointWriter::write_complete(const Snapshot& snapshot) {
  Json state = snapshot.values;
  add_lists(state, snapshot.lists);
  int64_t bytes = static_cast<int64_t>(state_text(state).size() + options_.recipe.size());
  const TensorEntries tensors = tensor_entries(snapshot.tensors);
  for (const auto& entry : tensors.entries) bytes += static_cast<int64_t>(entry.bytes + entry.name.size()) + 128;
  CheckpointDraft draft(options_.root, snapshot.step, bytes);
  if (options_.position.ranks > 1)
    options_.put(fmt::format("checkpoint/{}", written_), draft.folder().filename().string());
  draft.add_tensors(rank_file(0), tensors.entries, {{"format", "pt"}});
  draft.add(kRecipeFile, options_.recipe);
  options_.before_commit();
  for (int64_t rank = 1; rank < options_.position.ranks; ++rank) {
    const Json part = parse_json(options_.get(fmt::format("checkpoint/{}/{}", written_, rank)));
    draft.add_written(rank_file(rank), {part.at(0).get<int64_t>(), part.at(1).get<uint64_t>()});
    add_lists(state, part.at(2));
  }
  draft.add(kStateFile, state_text(state));
  draft.commit(options_.position.ranks, options_.versions);
  {
    const std::lock_guard lock(mutex_);
    saved_step_ = snapshot.step;
  }
  try {
    if (options_.keep_last) prune_checkpoints(options_.root, *options_.keep_last, options_.keep);
  } catch (const FileError& error) {  // named recovery: the new checkpoint is safe, and old ones do no harm
    log_warning("cannot remove an older checkpoint: {}", error.what());
  }
}

void CheckpointWriter::run() {
  pthread_setname_np(pthread_self(), "checkpoints");
  lower_thread_priority();
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [&] { return pending_ || ending_; });
    if (!pending_) return;
    const Snapshot snapshot = *std::exchange(pending_, std::nullopt);
    lock.unlock();
    std::exception_ptr error;
    try {
      write(snapshot);
    } catch (...) {  // rethrown by the training thread at its next step
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
