// Measures the cost of checkpoints, for bench_checkpoint.py. Prints one JSON object per pair of blocks, in seconds.
//
//   checkpoint_speed beside RECIPE FOLDER PAIRS STEPS
//     STEPS training steps with one checkpoint written in the background, against as many without
//   checkpoint_speed disk RECIPE FOLDER PAIRS
//     saving and loading the state of this training, against write + fsync and read of its bytes
#include "base/files/files.h"
#include "checkpoint/draft.h"
#include "checkpoint/store.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"
#include "train/checkpoint/checkpoint_files.h"
#include "train/trainer.h"

#include <fcntl.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

using namespace trainopt;

namespace {

constexpr int kWarmupSteps = 10;

class PauseClock : public RunListener {
 public:
  void step_done(const StepRecord&) override {}
  void evaluated(int64_t, const EvaluationResult&) override {}
  void at(const char* stage, int64_t) override {
    if (const auto began = std::exchange(saving_since_, std::nullopt)) last_s = seconds_since(*began);
    if (std::string_view(stage) == "saving a checkpoint") saving_since_ = Clock::now();
  }
  double last_s = 0;  ///< how long the last checkpoint paused training

 private:
  std::optional<Clock::time_point> saving_since_;
};

Plan plan_of(const char* recipe) {
  Plan plan = make_plan(load_recipe({.files = {recipe}, .overrides = {}}).recipe, detect_machine());
  apply(plan.process);
  return plan;
}

const std::atomic<int> never_stopped{0};

template <class Work>
double seconds_of(const Work& work) {
  const auto began = Clock::now();
  work();
  return seconds_since(began);
}

template <class One, class Other>
void alternate(int64_t number, const One& one, const Other& other) {
  if (number % 2 == 0)
    one(), other();
  else
    other(), one();
}

void show(const Json& json) {
  std::printf("%s\n", json.dump().c_str());
  std::fflush(stdout);
}

/// A block with a checkpoint lasts until the checkpoint is on the disk.
void measure_in_training(const char* recipe, const std::filesystem::path& folder, int64_t pairs, int64_t steps) {
  std::atomic<bool> requested{false};
  CheckpointWriter writer({.root = folder / "checkpoints", .requested = &requested});
  PauseClock pause;
  Trainer trainer(plan_of(recipe), {}, pause, never_stopped, {.checkpoints = &writer});
  double waited_s = 0;
  const auto block = [&](bool saves) {
    return seconds_of([&] {
      requested = saves;  // taken at the end of the first step
      for (int64_t i = 0; i < steps; ++i) trainer.step();
      waited_s = seconds_of([&] { writer.finish(); });
    });
  };
  for (int i = 0; i < kWarmupSteps; ++i) trainer.step();
  for (int i = 0; i < 3; ++i) block(true);  // from now on each new checkpoint removes an old one
  for (int64_t number = 0; number < pairs; ++number) {
    Json pair;
    alternate(
        number, [&] { pair["with_s"] = block(true), pair["pause_s"] = pause.last_s, pair["waited_s"] = waited_s; },
        [&] { pair["without_s"] = block(false); });
    show(pair);
  }
}

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

void write_plainly(const std::filesystem::path& path, const std::string& bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL, 0644);
  require(fd >= 0, "open");
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t written = ::write(fd, bytes.data() + done, bytes.size() - done);
    require(written > 0, "write");
    done += static_cast<size_t>(written);
  }
  require(::fsync(fd) == 0 && ::close(fd) == 0, "fsync");
  sync_folder(path.parent_path());
}

std::unique_ptr<char[]> read_plainly(const std::filesystem::path& path, size_t bytes) {
  std::unique_ptr<char[]> memory(new char[bytes]);  // uninitialised
  const int fd = ::open(path.c_str(), O_RDONLY);
  require(fd >= 0, "open");
  for (size_t done = 0; done < bytes;) {
    const ssize_t got = ::read(fd, memory.get() + done, bytes - done);
    require(got > 0, "read");
    done += static_cast<size_t>(got);
  }
  ::close(fd);
  return memory;
}

void disk(const char* recipe, const std::filesystem::path& folder, int64_t pairs) {
  ::mallopt(M_MMAP_THRESHOLD,
            128 << 10);  // as in a new process: loading does not reuse pages that were in use before
  PauseClock listener;
  Trainer trainer(plan_of(recipe), {}, listener, never_stopped);
  trainer.step();  // creates the momentum
  ArchiveWriter archive;
  trainer.save(archive);
  const auto root = folder / "checkpoints", plain = folder / "plain", checkpoint_root = folder / "whole";
  const std::string state = state_text(archive.values());
  const TensorEntries tensors = tensor_entries(archive.tensors());
  const auto save = [&] {
    CheckpointDraft draft(root, 1, archive.bytes());
    draft.add_tensors(rank_file(0), tensors.entries);
    draft.add(kStateFile, state);
    draft.add(kRecipeFile, "");
    draft.commit(1, {});
  };
  CheckpointWriter writer({.root = checkpoint_root, .keep_last = 1, .background = false});
  writer.save(archive, 1);
  save();
  const std::string bytes = read_file(root / checkpoint_name(1) / rank_file(0), ExitCode::checkpoint);
  for (int64_t number = 0; number < pairs; ++number) {
    Json pair = {{"bytes", bytes.size()}};
    remove_folder(root);
    remove_file(plain);
    alternate(
        number, [&] { pair["save_s"] = seconds_of(save); },
        [&] { pair["write_s"] = seconds_of([&] { write_plainly(plain, bytes); }); });
    pair["whole_save_s"] = seconds_of([&] { writer.save(archive, number + 2); });
    alternate(
        number,
        [&] {
          std::optional<ArchiveReader> loaded;  // freed after the clock was read
          pair["load_s"] = seconds_of([&] { loaded = read_checkpoint(root / checkpoint_name(1)); });
        },
        [&] {
          std::unique_ptr<char[]> memory;
          pair["read_s"] = seconds_of([&] { memory = read_plainly(plain, bytes.size()); });
        });
    show(pair);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 4 ? argv[1] : "";
  try {
    if (what == "beside" && argc == 6)
      return measure_in_training(argv[2], argv[3], std::atoll(argv[4]), std::atoll(argv[5])), 0;
    if (what == "disk" && argc == 5) return disk(argv[2], argv[3], std::atoll(argv[4])), 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  std::fprintf(stderr, "usage: checkpoint_speed beside RECIPE FOLDER PAIRS STEPS | disk RECIPE FOLDER PAIRS\n");
  return 2;
}
