// The data set of packed files.
#include "base/checksum.h"
#include "base/error.h"
#include "data/dataset.h"
#include "data/formats/packed/packed_file.h"
#include "data/formats/shards.h"
#include "data/identity.h"
#include "data/files/open_files.h"

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

namespace trainopt {
namespace {

class Packed : public ImageDataset {
 public:
  Packed(const DataPaths& paths, const PackedOptions& options) : ImageDataset(options.decoding) {
    const auto storage = options.files ? options.files : local_data_files();
    const auto& names = note(find_files(*storage, paths, std::array{kPackEnding}));
    auto files = open_files(*storage, names, [](std::unique_ptr<const DataFile> file) {
      return std::make_unique<const PackedFile>(std::move(file));
    });
    const std::string path = paths.text();
    std::sort(files.begin(), files.end(),
              [](const auto& a, const auto& b) { return a->trailer().shard < b->trailer().shard; });
    for (auto& file : files) shards_.add(std::move(file));
    require_complete(path);
    if (options.decoding.size == DecodeSize::reduced && uniform_size())
      throw UserError(fmt::format(
          "data.decode: scaled has no effect on packed pixels, which are not decoded; remove it: {}", path));
    if (const auto* training = options.training;
        training && (training->num_classes() != num_classes() || training->class_names() != class_names()))
      throw UserError(
          fmt::format("the evaluation data's classes must be those of the training data, in the same order: {}", path),
          ExitCode::data);
  }

  int64_t size() const override { return shards_.size(); }
  int64_t num_classes() const override { return first().classes; }
  int64_t label(int64_t sample) const override {
    const auto [file, image] = shards_.find(sample);
    return file->entry(image).label;
  }
  std::optional<ImageSize> uniform_size() const override {
    return first().kind == PackKind::pixels ? std::optional(ImageSize{first().height, first().width}) : std::nullopt;
  }
  const std::vector<std::string>& class_names() const override { return shards_.front().class_names(); }
  std::string name_of(int64_t sample) const override {
    const auto [file, image] = shards_.find(sample);
    return fmt::format("{}, image {}", file->name(), image);
  }
  ImageSize size_of(int64_t sample, LoadScratch& scratch) const override {
    if (const auto size = uniform_size()) return *size;
    return decoded_size(record(sample, scratch), scratch);
  }
  std::span<const uint8_t> file_of(int64_t sample, LoadScratch& scratch) const override {
    return uniform_size() ? std::span<const uint8_t>() : record(sample, scratch);
  }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const auto bytes = record(sample, scratch);
    if (const auto size = uniform_size())
      pipeline.run({bytes.data(), size->height, size->width, size->width * 3}, key, destination, scratch.image);
    else
      load_file(sample, bytes, key, pipeline, destination, scratch);
  }
  int64_t samples_ahead() const override { return shards_.front().reads_ahead(); }
  void expect(int64_t sample) const override {
    const auto [file, image] = shards_.find(sample);
    file->expect(image);
  }

 private:
  DataIdentity find_identity() const override {
    Checksum all;
    std::vector<const DataFile*> files;
    for (const auto& shard : shards_) {
      const uint64_t index = shard.file->trailer().index_checksum;  // covers the checksums of all records
      all.add(&index, sizeof(index));
      files.push_back(&shard.file->file());
    }
    return with_files({"packed", size(), num_classes(), hex(all.value())}, files);
  }

  const PackTrailer& first() const { return shards_.front().trailer(); }

  std::span<const uint8_t> record(int64_t sample, LoadScratch& scratch) const {
    const StageTimer timer(scratch.image.times.read_ns);
    const auto [file, image] = shards_.find(sample);
    return file->record(image, scratch.file);
  }

  /// All shards of one packing, each once.
  void require_complete(const std::string& path) const {
    uint32_t expected = 0;
    for (const auto& [before, file] : shards_) {
      const PackTrailer& trailer = file->trailer();
      if (trailer.source != first().source || trailer.shards != first().shards || trailer.kind != first().kind ||
          trailer.height != first().height || trailer.width != first().width || trailer.classes != first().classes ||
          file->class_names() != class_names())
        throw UserError(fmt::format("{} and {} are not of one packing", shards_.front().name(), file->name()),
                        ExitCode::data);
      if (trailer.shard != expected)
        refuse_shard(trailer.shard > expected ? expected : trailer.shard, path,
                     trailer.shard > expected ? "missing" : "there twice");
      ++expected;
    }
    if (expected < first().shards) refuse_shard(expected, path, "missing");
  }
  [[noreturn]] void refuse_shard(uint32_t shard, const std::string& path, const char* what) const {
    throw UserError(
        fmt::format("the packed data set has {} files, and number {} is {}: {}", first().shards, shard, what, path),
        ExitCode::data);
  }

  Shards<PackedFile> shards_;
};

}  // namespace

std::shared_ptr<const ImageDataset> open_packed(const DataPaths& paths, const PackedOptions& options) {
  return std::make_shared<Packed>(paths, options);
}

}  // namespace trainopt
