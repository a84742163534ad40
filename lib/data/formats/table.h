// The data formats that a recipe can name, each with what is known of it before it is opened. Checks, advice and
// messages ask for these traits, never for a format by name. How each is opened is a second list, in dataset.cpp.
#pragma once

#include "base/error.h"
#include "config/describe.h"

#include <array>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

enum class DatasetKind { fake_cifar10, cifar10, image_folder, packed, tar, parquet, tokens, documents, synthetic };

inline constexpr std::string_view kPackEnding = ".pack", kTarEnding = ".tar", kParquetEnding = ".parquet";

struct DataFormat {
  DatasetKind kind;
  std::string_view word;            ///< in recipes
  std::string_view where = {};      ///< what data.path names
  std::string_view ending = {};     ///< how its files' names end, if that tells the format
  bool files = false;               ///< it is in files, which determine its size; otherwise it is made up
  bool one_file = false;            ///< it may be one file, as well as a folder
  bool remote = false;              ///< it may be in object storage
  bool text = false;                ///< its samples are tokens; otherwise images
  bool decodes = false;             ///< its images are, or may be, JPEG and PNG files
  bool pads = false;                ///< its samples differ in length
  bool caches_decoded = false;      ///< data.cache: memory keeps its decoded images
  bool row_groups = false;          ///< it is read in runs, of which data.cache: memory keeps some
  bool has_samples = true;          ///< false: batches are drawn on the device, without samples that are loaded
  std::string_view test_file = {};  ///< the file of its folder with data to evaluate on, if it has one of its own
};

inline constexpr std::array kDataFormats = {
    DataFormat{.kind = DatasetKind::fake_cifar10, .word = "fake_cifar10"},
    DataFormat{.kind = DatasetKind::cifar10,
               .word = "cifar10",
               .where = "its folder",
               .files = true,
               .test_file = "test_batch.bin"},
    DataFormat{.kind = DatasetKind::image_folder,
               .word = "image_folder",
               .where = "its folder",
               .files = true,
               .decodes = true,
               .caches_decoded = true},
    DataFormat{.kind = DatasetKind::packed,
               .word = "packed",
               .where = "a file, or a folder of *.pack files",
               .ending = kPackEnding,
               .files = true,
               .one_file = true,
               .remote = true,
               .decodes = true},
    DataFormat{.kind = DatasetKind::tar,
               .word = "tar",
               .where = "a file, or a folder of *.tar files",
               .ending = kTarEnding,
               .files = true,
               .one_file = true,
               .remote = true,
               .decodes = true},
    DataFormat{.kind = DatasetKind::parquet,
               .word = "parquet",
               .where = "a file, or a folder of *.parquet files",
               .ending = kParquetEnding,
               .files = true,
               .one_file = true,
               .remote = true,
               .decodes = true,
               .row_groups = true},
    DataFormat{.kind = DatasetKind::tokens,
               .word = "tokens",
               .where = "a file of tokens, or a folder of *.bin or *.npy files",
               .files = true,
               .one_file = true,
               .remote = true,
               .text = true},
    DataFormat{.kind = DatasetKind::documents,
               .word = "documents",
               .where = "a file of tokens with the documents' ends next to it, or a folder of texts",
               .files = true,
               .one_file = true,
               .text = true,
               .pads = true},
    DataFormat{.kind = DatasetKind::synthetic, .word = "synthetic", .has_samples = false}};

constexpr const DataFormat& format_of(DatasetKind kind) {
  for (const DataFormat& format : kDataFormats)
    if (format.kind == kind) return format;
  throw BrokenInvariant("a data format that is not in the table");
}

/// "tar and parquet": the words of the formats that have the trait, or of those that do not.
inline std::string formats_with(bool DataFormat::*trait, bool has = true) {
  std::vector<std::string_view> words;
  for (const DataFormat& format : kDataFormats)
    if (format.*trait == has) words.push_back(format.word);
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text.append(i == 0 ? "" : i + 1 == words.size() ? " and " : ", ").append(words[i]);
  return text;
}

/// "cifar10: its folder. [...]": what data.path names, for each format that is in files.
inline const std::string& data_path_text() {
  static const std::string text = [] {
    std::string all = "Where the data set is. ";
    for (const DataFormat& format : kDataFormats)
      if (format.files) all.append(format.word).append(": ").append(format.where).append(". ");
    const std::string several = formats_with(&DataFormat::remote);
    return all + several +
           " may be in object storage (s3://bucket/key), and for them this may be a list, or a pattern "
           "such as train-*.parquet.";
  }();
  return text;
}

template <>
struct Choices<DatasetKind> {
  static constexpr auto all = [] {
    std::array<Choice<DatasetKind>, kDataFormats.size()> choices{};
    for (size_t i = 0; i < kDataFormats.size(); ++i) choices[i] = {kDataFormats[i].word, kDataFormats[i].kind};
    return choices;
  }();
};

}  // namespace trainopt
