// The data set of tar files.
#include "base/checksum.h"
#include "base/error.h"
#include "data/dataset.h"
#include "data/formats/other_kind.h"
#include "data/formats/shards.h"
#include "data/formats/tar/tar_index.h"
#include "data/identity.h"
#include "data/files/open_files.h"

#include <algorithm>
#include <array>
#include <memory>

namespace trainopt {
namespace {

struct TarFile {
  explicit TarFile(std::unique_ptr<const DataFile> opened) : file(std::move(opened)) {
    std::vector<uint8_t> scratch;
    const auto start = file->read(0, std::min(file->size(), kTarBlock), scratch);
    if (!is_tar({reinterpret_cast<const char*>(start.data()), start.size()})) refuse_other_kind(*file, "a tar file");
    index = stored_tar_index(*file);
    if (index.samples.empty())
      throw UserError(fmt::format("the tar file contains no images: {}", file->name()), ExitCode::data);
  }
  int64_t size() const { return static_cast<int64_t>(index.samples.size()); }
  const TarSample& sample(int64_t i) const { return index.samples[static_cast<size_t>(i)]; }

  std::unique_ptr<const DataFile> file;
  TarIndex index;
};

class Tar : public ImageDataset {
 public:
  Tar(const DataPaths& paths, const DecodeOptions& decoding, DataFiles& files) : ImageDataset(decoding) {
    const auto& names = note(find_files(files, paths, std::array{kTarEnding}));
    auto opened = open_files(files, names, [](std::unique_ptr<const DataFile> file) {
      return std::make_unique<const TarFile>(std::move(file));
    });
    for (auto& file : opened) {
      found_.left_out.add(file->index.left_out);
      shards_.add(std::move(file));
    }
    for (const auto& shard : shards_)
      for (const auto& sample : shard.file->index.samples) classes_ = std::max(classes_, sample.label + 1);
  }

  int64_t size() const override { return shards_.size(); }
  int64_t num_classes() const override { return classes_; }
  int64_t label(int64_t sample) const override {
    const auto [tar, i] = shards_.find(sample);
    return tar->sample(i).label;
  }
  std::optional<ImageSize> uniform_size() const override { return std::nullopt; }
  std::string name_of(int64_t sample) const override {
    const auto [tar, i] = shards_.find(sample);
    return fmt::format("{}, member {} at byte {}", tar->file->name(), tar->sample(i).name, tar->sample(i).offset);
  }
  ImageSize size_of(int64_t sample, LoadScratch& scratch) const override {
    return decoded_size(file_of(sample, scratch), scratch);
  }
  std::span<const uint8_t> file_of(int64_t sample, LoadScratch& scratch) const override {
    const StageTimer timer(scratch.image.times.read_ns);
    const auto [tar, i] = shards_.find(sample);
    const TarSample& found = tar->sample(i);
    return tar->file->read(found.offset, found.bytes, scratch.file);
  }
  int64_t samples_ahead() const override { return shards_.front().file->reads_ahead(); }
  void expect(int64_t sample) const override {
    const auto [tar, i] = shards_.find(sample);
    tar->file->expect(tar->sample(i).offset, tar->sample(i).bytes);
  }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    load_file(sample, file_of(sample, scratch), key, pipeline, destination, scratch);
  }

 private:
  DataIdentity find_identity() const override {
    Checksum all;
    std::vector<const DataFile*> files;
    for (const auto& shard : shards_) {
      files.push_back(shard.file->file.get());
      for (const auto& sample : shard.file->index.samples) {
        all.add(&sample.offset, sizeof(sample.offset));
        all.add(&sample.bytes, sizeof(sample.bytes));
        all.add(&sample.label, sizeof(sample.label));
      }
    }
    return with_files({"tar", size(), classes_, hex(all.value())}, files);
  }

  Shards<TarFile> shards_;
  int64_t classes_ = 0;
};

}  // namespace

std::shared_ptr<const ImageDataset> open_tar(const DataPaths& paths, const DecodeOptions& decoding,
                                             std::shared_ptr<DataFiles> files) {
  return std::make_shared<Tar>(paths, decoding, files ? *files : *local_data_files());
}

}  // namespace trainopt
