// The data set of Parquet files.
#include "base/checksum.h"
#include "base/error.h"
#include "base/units.h"
#include "data/dataset.h"
#include "data/formats/parquet/held_groups.h"
#include "data/formats/parquet/parquet_file.h"
#include "data/formats/shards.h"
#include "data/identity.h"
#include "data/files/open_files.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

namespace trainopt {
namespace {

constexpr const char* kNoLabel = "the label is missing, negative, or larger than the file says";

/// A row group, or those of its rows that the filter leaves.
struct GroupRows {
  const ParquetFile* file;
  int64_t group;                             ///< its index in the file
  int64_t first;                             ///< its first sample
  std::optional<std::vector<int32_t>> kept;  ///< the rows that the filter leaves; null: all

  int64_t row(int64_t index) const { return kept ? (*kept)[static_cast<size_t>(index)] : index; }
};

class Parquet : public ImageDataset {
 public:
  Parquet(const DataPaths& paths, const ParquetOptions& options)
      : ImageDataset(options.decoding), ahead_(options.window), columns_(options.columns) {
    const auto storage = options.files ? options.files : local_data_files();
    const std::string path = paths.text();
    const auto& names = note(find_files(*storage, paths, std::array{kParquetEnding}));
    files_ = open_files(*storage, names, [&](std::unique_ptr<const DataFile> file) {
      return std::make_unique<const ParquetFile>(std::move(file), options.columns, options.memory_limit);
    });
    for (const auto& file : files_) {
      require_same_columns(*file);
      add_groups(*file);
    }
    if (size_ == 0) throw UserError(fmt::format("there are no rows{}: {}", why_none(), path), ExitCode::data);
    // A window's rows and those of the row group that it ends with, of all partitions: so many rows are used at most
    // between two of one row group.
    const int64_t most_rows = *std::max_element(runs_.begin(), runs_.end());
    held_ = std::make_unique<HeldGroups>(options.memory_limit, 2 * (options.window + options.partitions * most_rows),
                                         options.keep_in_memory);
    announced_ = std::make_unique<std::atomic<bool>[]>(groups_.size());
    classes_ = find_classes();
    if (options.training && options.training->class_names() != class_names())
      throw UserError(
          fmt::format("the evaluation data's classes must be those of the training data, in the same order: {}", path),
          ExitCode::data);
    if (first().has_pixels()) {
      uniform_ = group_of(0).size;
      if (options.decoding.size == DecodeSize::reduced)
        throw UserError(fmt::format(
            "data.decode: scaled has no effect on pixels in lists, which are not decoded; remove it: {}", path));
    }
  }

  int64_t size() const override { return size_; }
  int64_t num_classes() const override { return classes_; }
  const std::vector<std::string>& class_names() const override { return first().class_names(); }
  std::optional<ImageSize> uniform_size() const override { return uniform_; }
  std::string name_of(int64_t sample) const override {
    const auto [group, row] = find(sample);
    return fmt::format("{}, row group {}, row {}", group->file->name(), group->group, row);
  }
  int64_t label(int64_t sample) const override {
    const int64_t found = stored_label(sample);
    if (!is_class(found)) throw UserError(fmt::format("{}: {}", kNoLabel, name_of(sample)), ExitCode::data);
    return found;
  }
  bool has_label(int64_t sample) const override { return is_class(stored_label(sample)); }
  ImageSize size_of(int64_t sample, LoadScratch& scratch) const override {
    if (uniform_) return *uniform_;
    return decoded_size(file_of(sample, scratch), scratch);
  }
  std::span<const uint8_t> file_of(int64_t sample, LoadScratch& scratch) const override {
    if (uniform_) return {};
    const auto [data, row] = used(sample, scratch);
    const auto image = data->image(row);
    if (image.empty()) throw BadSample("the image is missing");
    scratch.file.assign(image.begin(), image.end());
    return scratch.file;
  }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    const auto [data, row] = used(sample, scratch);
    const auto image = data->image(row);
    if (!is_class(data->labels[static_cast<size_t>(row)])) throw BadSample(kNoLabel);
    if (image.empty()) throw BadSample("the image is missing");
    if (!data->size) return load_file(sample, image, key, pipeline, destination, scratch);
    if (data->size != uniform_) throw SizeMismatch("the lists of pixels differ in length between row groups");
    pipeline.run({image.data(), data->size->height, data->size->width, data->size->width * 3}, key, destination,
                 scratch.image);
  }
  std::span<const int64_t> runs() const override { return runs_; }
  int64_t run_bytes() const override {
    int64_t bytes = uniform_ ? size_ * uniform_->height * uniform_->width * 3 : 0;
    for (const auto& each : groups_) bytes += uniform_ ? 0 : each.file->images(each.group).decoded_bytes;
    return bytes / static_cast<int64_t>(groups_.size());
  }
  int64_t samples_ahead() const override { return first().reads_ahead() > 0 ? ahead_ : 0; }
  void expect(int64_t sample) const override {
    const GroupRows& group = *find(sample).first;
    const auto number = &group - groups_.data();
    if (!held_->has(number) && !announced_[static_cast<size_t>(number)].exchange(true)) group.file->expect(group.group);
  }

 private:
  DataIdentity find_identity() const override {
    constexpr size_t kAhead = 256;  // far away, many are asked for at once
    Checksum all;
    for (size_t i = 0; i < groups_.size() + kAhead; ++i) {
      if (i < groups_.size()) groups_[i].file->expect_labels(groups_[i].group);
      if (i < kAhead) continue;
      const GroupRows& each = groups_[i - kAhead];
      const ParquetChunk& images = each.file->images(each.group);
      const auto labels = labels_of(each);
      all.add(&images.offset, sizeof(images.offset));
      all.add(&images.bytes, sizeof(images.bytes));
      all.add(labels.data(), labels.size() * sizeof(int32_t));
      if (each.kept) all.add(each.kept->data(), each.kept->size() * sizeof(int32_t));
    }
    std::vector<const DataFile*> files;
    for (const auto& each : files_) files.push_back(&each->file());
    return with_files({"parquet", size(), num_classes(), hex(all.value())}, files);
  }

  const ParquetFile& first() const { return *files_.front(); }

  /// The group of a sample, and its row there.
  std::pair<const GroupRows*, int64_t> find(int64_t sample) const {
    const auto after = std::upper_bound(groups_.begin(), groups_.end(), sample,
                                        [](int64_t value, const GroupRows& group) { return value < group.first; });
    const GroupRows& group = *std::prev(after);
    return {&group, group.row(sample - group.first)};
  }

  /// The row group of a sample in memory, and the sample's row there.
  std::pair<std::shared_ptr<const RowGroup>, int64_t> used(int64_t sample, LoadScratch& scratch) const {
    const StageTimer timer(scratch.image.times.read_ns);
    const auto [group, row] = find(sample);
    const int64_t number = group - groups_.data(), rows = runs_[static_cast<size_t>(number)];
    return {held_->use(number, row, rows, [&] { return read(number); }), row};
  }

  std::shared_ptr<const RowGroup> read(int64_t number) const {
    const GroupRows& group = groups_[static_cast<size_t>(number)];
    auto data = std::make_shared<const RowGroup>(group.file->read(group.group));
    announced_[static_cast<size_t>(number)] = false;
    const std::lock_guard lock(labels_mutex_);
    labels_[static_cast<size_t>(number)] = data->labels;
    return data;
  }

  RowGroup group_of(int64_t sample) const {
    const auto [group, row] = find(sample);
    try {
      return group->file->read(group->group);
    } catch (const BadSample& bad) {
      throw UserError(fmt::format("{}: {}", group->file->name(), bad.what()), ExitCode::data);
    }
  }

  int64_t stored_label(int64_t sample) const {
    const auto [group, row] = find(sample);
    const auto number = static_cast<size_t>(group - groups_.data());
    const std::lock_guard lock(labels_mutex_);
    if (labels_[number].empty()) labels_[number] = labels_of(*group);
    return labels_[number][static_cast<size_t>(row)];
  }

  bool is_class(int64_t label) const { return label >= 0 && label < classes_; }

  static std::vector<int32_t> labels_of(const GroupRows& group) {
    try {
      return group.file->labels(group.group);
    } catch (const BadSample& bad) {
      throw UserError(fmt::format("{}: {}", group.file->name(), bad.what()), ExitCode::data);
    }
  }

  static std::optional<std::vector<int32_t>> kept_of(const ParquetFile& file, int64_t group) {
    try {
      return file.kept_rows(group);
    } catch (const BadSample& bad) {
      throw UserError(fmt::format("{}: {}", file.name(), bad.what()), ExitCode::data);
    }
  }

  void require_same_columns(const ParquetFile& file) const {
    const auto same = [](const ParquetColumn& a, const ParquetColumn& b) {
      return a.kind == b.kind && a.levels == b.levels;
    };
    if (!same(file.image_column(), first().image_column()) || !same(file.label_column(), first().label_column()) ||
        file.class_names() != first().class_names())
      throw UserError(fmt::format("the columns {} and {}, or their classes, are others than in {}: {}",
                                  file.image_column().name, file.label_column().name, first().name(), file.name()),
                      ExitCode::data);
  }

  void add_groups(const ParquetFile& file) {
    for (int64_t group = 0; group < static_cast<int64_t>(file.groups().size()); ++group) {
      auto kept = kept_of(file, group);
      const int64_t all = file.groups()[static_cast<size_t>(group)].rows,
                    rows = kept ? static_cast<int64_t>(kept->size()) : all;
      if (rows == 0) continue;
      groups_.push_back({&file, group, size_, rows == all ? std::nullopt : std::move(kept)});
      runs_.push_back(rows);
      size_ += rows;
    }
    labels_.resize(groups_.size());
  }

  std::string why_none() const {
    return columns_.filter.column
               ? fmt::format(" whose {} is within the limits (data.parquet.filter)", *columns_.filter.column)
               : "";
  }

  /// The largest label of a group's rows: from the file's statistics, or else from the labels.
  static double largest_label(const GroupRows& group) {
    const ParquetChunk& chunk = group.file->label_chunk(group.group);
    if (!group.kept && chunk.most && *chunk.least >= 0) return *chunk.most;
    const auto labels = labels_of(group);
    if (!group.kept) return *std::max_element(labels.begin(), labels.end());
    int32_t largest = -1;
    for (const int32_t row : *group.kept) largest = std::max(largest, labels[static_cast<size_t>(row)]);
    return largest;
  }

  /// The number of classes: as many as have names, or as the largest label says.
  int64_t find_classes() const {
    double largest = -1;
    for (const auto& each : groups_) largest = std::max(largest, largest_label(each));
    const auto named = static_cast<int64_t>(class_names().size());
    if (!(largest < static_cast<double>(named > 0 ? named : kMostClasses)))
      throw UserError(fmt::format("the labels go up to {:.0f}, and {}: {}", largest,
                                  named > 0 ? fmt::format("the file names {}", counted(named, "class", "es"))
                                            : fmt::format("there can be {} classes at most", kMostClasses),
                                  first().name()),
                      ExitCode::data);
    return std::max<int64_t>(1, std::max(named, static_cast<int64_t>(largest) + 1));
  }

  int64_t ahead_;
  ParquetConfig columns_;
  std::vector<std::unique_ptr<const ParquetFile>> files_;
  std::vector<GroupRows> groups_;
  std::vector<int64_t> runs_;
  int64_t size_ = 0, classes_ = 0;
  std::optional<ImageSize> uniform_;
  std::unique_ptr<HeldGroups> held_;
  std::unique_ptr<std::atomic<bool>[]> announced_;  ///< for each group, whether it is announced and not yet read
  mutable std::mutex labels_mutex_;
  mutable std::vector<std::vector<int32_t>> labels_;  ///< each group's labels; empty until they are needed
};

}  // namespace

std::shared_ptr<const ImageDataset> open_parquet(const DataPaths& paths, const ParquetOptions& options) {
  return std::make_shared<Parquet>(paths, options);
}

}  // namespace trainopt
