// A data set in one file or several, which together are numbered as one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trainopt {

inline constexpr std::string_view kPackEnding = ".pack", kTarEnding = ".tar", kParquetEnding = ".parquet";
/// Of a packed or tar file. More are damage, for which nothing is to be allocated.
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

}  // namespace trainopt
