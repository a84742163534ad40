// A data set in one file or several, which together are numbered as one.
#pragma once

#include "base/checksum.h"
#include "base/files/file_calls.h"
#include "data/formats/table.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

/// The most classes of a packed or tar file. More are damage, for which nothing is to be allocated.
inline constexpr int64_t kMostClasses = int64_t{1} << 20;

/// "00002-of-00064.tar".
std::string shard_name(int64_t shard, int64_t shards, std::string_view ending);

/// `File` has size(), the number of its samples.
template <class File>
class Shards {
 public:
  struct Shard {
    int64_t first;  ///< sample
    std::unique_ptr<const File> file;
  };

  void add(std::unique_ptr<const File> file) {
    const int64_t samples = file->size();
    shards_.push_back({size_, std::move(file)});
    size_ += samples;
  }
  int64_t size() const { return size_; }  ///< samples
  auto begin() const { return shards_.begin(); }
  auto end() const { return shards_.end(); }
  const File& front() const { return *shards_.front().file; }

  /// The file with this sample, and its number there.
  std::pair<const File*, int64_t> find(int64_t sample) const {
    const auto after = std::upper_bound(shards_.begin(), shards_.end(), sample,
                                        [](int64_t value, const Shard& shard) { return value < shard.first; });
    const Shard& shard = *std::prev(after);
    return {shard.file.get(), sample - shard.first};
  }

 private:
  std::vector<Shard> shards_;
  int64_t size_ = 0;
};

// Writes images to one file, front to back.

class ShardWriter {
 public:
  explicit ShardWriter(File& file) : file_(file) {}
  virtual ~ShardWriter() = default;
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Appends the sample at this place. `bytes`: its image as it is to be stored. Throws FileError(storage).
  virtual void add(int64_t place, std::span<const uint8_t> bytes, int64_t label) = 0;
  /// Appends what stands at the end. `class_names`: one for each class, or none.
  virtual void finish(const std::vector<std::string>& class_names) = 0;
  /// XXH3 of all that was written.
  uint64_t checksum() const { return checksum_.value(); }

 protected:
  void append(const void* data, size_t bytes) {
    checksum_.add(data, bytes);
    file_.append(data, bytes);
  }
  void append(std::string_view text) { append(text.data(), text.size()); }
  int64_t written() const { return checksum_.bytes(); }

 private:
  File& file_;
  Checksum checksum_;
};

}  // namespace trainopt
