// A data set with known pixels that can fail or be slow on request, and functions that collect what a loader delivers.
#pragma once

#include "base/philox.h"
#include "data/batch_source.h"
#include "support/loaded_data.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <set>
#include <thread>

namespace trainopt {

class ProbeDataset : public ImageDataset {
 public:
  ProbeDataset(int64_t size, int64_t side) : size_(size), side_(side) {}
  std::set<int64_t> bad;
  std::map<int64_t, std::function<void()>> fails;  ///< by sample: called to throw an exception
  std::string blocks, versions;                    ///< of its identity
  int64_t microseconds = 0;                        ///< mean delay per sample; the delay varies between 0 and twice this
  mutable std::atomic<int64_t> loads{0};

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return 10; }
  int64_t label(int64_t sample) const override { return sample % 10; }
  std::optional<ImageSize> uniform_size() const override { return ImageSize{side_, side_}; }
  ImageSize size_of(int64_t, LoadScratch&) const override { return {side_, side_}; }
  static uint8_t pixel(int64_t sample, int64_t i) { return static_cast<uint8_t>((sample * 31 + i * 7 + i / 5) % 256); }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const int64_t turn = loads++;
    if (microseconds > 0)
      std::this_thread::sleep_for(
          std::chrono::microseconds(mix_key(static_cast<uint64_t>(turn), static_cast<uint64_t>(sample)) %
                                    (2 * static_cast<uint64_t>(microseconds))));
    if (bad.contains(sample)) throw BadSample("made to be bad");
    if (const auto fail = fails.find(sample); fail != fails.end()) fail->second();
    scratch.file.resize(static_cast<size_t>(side_ * side_ * 3));
    for (size_t i = 0; i < scratch.file.size(); ++i) scratch.file[i] = pixel(sample, static_cast<int64_t>(i));
    pipeline.run({scratch.file.data(), side_, side_, side_ * 3}, key, destination, scratch.image);
  }
  std::string name_of(int64_t sample) const override { return "probe " + std::to_string(sample); }

 private:
  DataIdentity find_identity() const override { return {"probe", size_, 10, "", blocks, versions}; }

  int64_t size_, side_;
};

/// The contents of consecutive micro-batches.
struct Delivered {
  std::vector<int64_t> samples, labels, steps, micros;
  std::vector<float> values;
  bool operator==(const Delivered&) const = default;
};

inline void append(Delivered& all, const HostBatch& batch) {
  all.samples.insert(all.samples.end(), batch.sample_ids.begin(), batch.sample_ids.end());
  all.steps.push_back(batch.where.step);
  all.micros.push_back(batch.where.micro);
  const at::Tensor values = batch.input.to(at::kFloat).contiguous(), labels = batch.target;
  all.values.insert(all.values.end(), values.data_ptr<float>(), values.data_ptr<float>() + values.numel());
  all.labels.insert(all.labels.end(), labels.data_ptr<int64_t>(), labels.data_ptr<int64_t>() + labels.numel());
}

inline Delivered take(Loader& loader, int64_t count) {
  Delivered all;
  for (int64_t i = 0; i < count; ++i) {
    const HostBatch batch = loader.next();
    append(all, batch);
    loader.release(batch);
  }
  return all;
}

inline int64_t entries_in(const char* folder) {
  int64_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}
inline int64_t thread_count() { return entries_in("/proc/self/task"); }

/// Resident memory of this process.
inline int64_t resident_bytes() {
  int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

/// Waits up to 30 seconds until `happened` returns true; returns whether it did.
template <class Happened>
bool eventually(const Happened& happened) {
  for (int i = 0; i < 30000 && !happened(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return happened();
}

/// Waits until there are at most `count` threads. A joined thread may remain visible in /proc for a moment, also when
/// `count` was taken.
inline bool threads_drop_to(int64_t count) {
  return eventually([count] { return thread_count() <= count; });
}

}  // namespace trainopt
