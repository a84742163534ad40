// Data sets: indexed samples, each a pure function of its index. The kinds of data sets are in formats/.
#pragma once

#include "data/config.h"
#include "data/files/found_files.h"
#include "data/identity.h"
#include "data/image/pipeline.h"
#include "data/sample_marks.h"
#include "storage/data_files.h"

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

/// Buffers that one thread reuses from sample to sample.
struct LoadScratch {
  PipelineScratch image;  ///< its `times` are those of all stages
  std::vector<uint8_t> file;
  std::vector<int64_t> tokens;
};

/// A sample's place in a batch.
struct SamplePlace {
  Destination image;          ///< images only
  int64_t* tokens = nullptr;  ///< text: the row of input tokens
  int64_t* target = nullptr;  ///< the label; text: the row of target tokens
  int64_t width = 0;          ///< text: tokens of a row
};

/// Safe to use from many threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual int64_t size() const = 0;
  /// Name for messages: the file, or the record in it.
  virtual std::string name_of(int64_t sample) const = 0;
  /// The identity of the files as they were at the first call, which reads up to 1,024 blocks of them and asks up to
  /// 11,024 of them for their sizes (image_folder).
  const DataIdentity& identity() const;
  /// What is in the data set's folders and is not read.
  const LeftOut& left_out() const { return found_.left_out; }
  /// A hash for each file that samples come from, of its real path; empty if there are none. Two data sets have a hash
  /// in common if they read the same file.
  virtual std::vector<uint64_t> file_hashes() const;
  /// Writes input and target. Images: transformed by `pipeline`; `key` seeds the random transforms. Throws BadSample.
  virtual void write(int64_t sample, uint64_t key, const Pipeline& pipeline, const SamplePlace& place,
                     LoadScratch& scratch) const = 0;
  /// How many samples ahead write() should be announced by expect(); 0: it need not be, because all files are local.
  virtual int64_t samples_ahead() const { return 0; }
  /// How many consecutive samples are best read together, such as those of one row group: a random order then keeps
  /// them close (stream_order.h). Empty: each sample can be read by itself.
  virtual std::span<const int64_t> runs() const { return {}; }
  /// Host memory that a run takes while it is read, on average. 0 without runs.
  virtual int64_t run_bytes() const { return 0; }
  /// Announces that write() will soon be called for this sample, so that its bytes are fetched meanwhile.
  virtual void expect(int64_t /*sample*/) const {}

 protected:
  /// Notes what was found for left_out() and file_hashes(). Returns the names of the files.
  const std::vector<std::string>& note(FoundFiles found);
  FoundFiles found_;

 private:
  virtual DataIdentity find_identity() const = 0;

  mutable std::once_flag identity_found_;
  mutable DataIdentity identity_;
};

/// Images with labels.
class ImageDataset : public Dataset {
 public:
  /// `decoding`: for images that are stored as files.
  explicit ImageDataset(DecodeOptions decoding = {}) : decoding_(std::move(decoding)) {}
  virtual int64_t num_classes() const = 0;
  virtual int64_t label(int64_t sample) const = 0;
  /// Whether label() has one to return; it throws UserError(data) where a file has none, as Parquet's rows may.
  virtual bool has_label(int64_t /*sample*/) const { return true; }
  /// Size of every image; nullopt if sizes may differ.
  virtual std::optional<ImageSize> uniform_size() const = 0;
  /// Size of this image. Throws BadSample.
  virtual ImageSize size_of(int64_t sample, LoadScratch& scratch) const = 0;
  /// Writes the transformed image to `destination`. `key` seeds the random transforms. Throws BadSample.
  virtual void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
                    LoadScratch& scratch) const = 0;
  /// The JPEG or PNG file that this image is stored as; empty if images are stored as pixels. Valid until `scratch` or
  /// the data set changes. Throws BadSample.
  virtual std::span<const uint8_t> file_of(int64_t sample, LoadScratch& scratch) const;
  /// Class names in label order; empty if classes have no names.
  virtual const std::vector<std::string>& class_names() const;
  void write(int64_t sample, uint64_t key, const Pipeline& pipeline, const SamplePlace& place,
             LoadScratch& scratch) const final;
  const DecodeOptions& decoding() const { return decoding_; }

 protected:
  /// load() of an image that is stored as the JPEG or PNG file `bytes`. The first time that the sample is used, the
  /// file is read to its end, so that damage is found whatever part of the image the transforms need.
  void load_file(int64_t sample, std::span<const uint8_t> bytes, uint64_t key, const Pipeline& pipeline,
                 const Destination& destination, LoadScratch& scratch) const;
  /// Warns of the first image with more than kManyPixels.
  void warn_if_very_large(int64_t sample, ImageSize size) const;
  /// size_of() for such an image.
  ImageSize decoded_size(std::span<const uint8_t> bytes, LoadScratch& scratch) const;

 private:
  DecodeOptions decoding_;
  mutable std::once_flag whole_made_;
  mutable SampleMarks whole_;  ///< samples whose files were read to the end without a fault
};

/// fake_cifar10: random 32×32 images and labels; image i depends only on seed and i.
std::shared_ptr<const ImageDataset> make_fake_cifar10(int64_t size, uint64_t seed);

/// The binary version of CIFAR-10. `path`: a folder with any of data_batch_1.bin … data_batch_5.bin, or one such file.
/// Throws UserError(data) for a missing folder, a size that is not a multiple of the record size, or a label above 9.
std::shared_ptr<const ImageDataset> read_cifar10(const std::string& path);
/// As read_cifar10(), but reads a folder's test_batch.bin if there is one.
std::shared_ptr<const ImageDataset> read_cifar10_test(const std::string& path);

struct ImageFolderOptions {
  DecodeOptions decoding = {};
  int64_t memory_limit = 0;  ///< most bytes of decoded images, kept when they are first used; 0: none are kept
  /// The data set whose classes it must have, and whose memory its images share; null: the classes are the folders in
  /// bytewise order.
  const ImageDataset* training = nullptr;
};
/// image_folder: `path` has a folder for each class with *.jpg, *.jpeg and *.png files (any case), in it or in folders
/// below. Throws UserError(data) if there are no classes or no images, a class is not one of `training`, or, without
/// `training`, a class has no images; and for folders of several splits.
std::shared_ptr<const ImageDataset> open_image_folder(const std::string& path, const ImageFolderOptions& options);

struct PackedOptions {
  DecodeOptions decoding = {};                 ///< for images that are stored as files
  const ImageDataset* training = nullptr;      ///< the data set whose classes it must have; null: any
  std::shared_ptr<DataFiles> files = nullptr;  ///< null: local ones
};
/// packed: files that `trainopt data pack` wrote (formats/packed/packed_file.h), all of one packing. Throws
/// UserError(data) for files that are missing, damaged or of different packings.
std::shared_ptr<const ImageDataset> open_packed(const DataPaths& paths, const PackedOptions& options);

/// tar: tar files in WebDataset's convention (formats/tar/tar_index.h). There are as many classes as the largest label
/// says. Throws UserError(data) for files that are damaged or do not follow the convention.
std::shared_ptr<const ImageDataset> open_tar(const DataPaths& paths, const DecodeOptions& decoding,
                                             std::shared_ptr<DataFiles> files = nullptr);

struct ParquetOptions {
  DecodeOptions decoding = {};
  ParquetConfig columns = {};               ///< which columns, and which rows
  int64_t memory_limit = int64_t{4} << 30;  ///< most bytes of row groups in memory
  bool keep_in_memory = false;              ///< keeps row groups whose rows were all used, as far as the limit allows
  int64_t window = 4096, partitions = 8;    ///< settings of the order (stream_order.h)
  const ImageDataset* training = nullptr;   ///< the data set whose classes it must have; null: any
  std::shared_ptr<DataFiles> files = nullptr;
};
/// parquet: *.parquet files, with images in one column and labels in another (formats/parquet/parquet_file.h). Samples
/// are in the order of rows and of files. Throws UserError(data) for files that are damaged or have no such columns,
/// and if this build or this machine has no Arrow.
std::shared_ptr<const ImageDataset> open_parquet(const DataPaths& paths, const ParquetOptions& options);

/// Opens images without a recipe: *.pack, *.tar or *.parquet files or a folder of them, CIFAR-10's binary files, or a
/// folder for each class. `columns` are those of Parquet files. Throws UserError(data), and UserError if `columns`
/// names any and these are no Parquet files.
std::shared_ptr<const ImageDataset> open_images(const DataPaths& paths, std::shared_ptr<DataFiles> files = nullptr,
                                                const ParquetConfig& columns = {});

/// Files that need no settings: local ones.
std::shared_ptr<DataFiles> local_data_files();
/// Files with the recipe's settings. `variables`: AWS_… and HOME.
std::shared_ptr<DataFiles> data_files(const DataConfig& data, const Variables& variables);

/// What the data must know of the model.
struct ModelNeeds {
  int64_t num_classes = 10;
  int64_t context = 0;  ///< tokens of a sample; 0: the model takes images
  int64_t vocabulary = 0;
};

/// Opens the data set of a recipe; null for `synthetic`, which has none. Throws UserError.
std::shared_ptr<const Dataset> open_training_data(const DataConfig& data, const ModelNeeds& model, uint64_t seed,
                                                  std::shared_ptr<DataFiles> files = nullptr);
/// `paths`: evaluation.path. Null if there is no evaluation data. Class labels are those of `training`.
std::shared_ptr<const Dataset> open_evaluation_data(const DataConfig& data, const ModelNeeds& model,
                                                    const std::optional<DataPaths>& paths, const Dataset* training,
                                                    std::shared_ptr<DataFiles> files = nullptr);

}  // namespace trainopt
