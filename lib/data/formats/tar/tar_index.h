// The samples of a tar file by WebDataset's convention: members with the same name up to the first dot after the last
// slash, next to each other, are one sample. Its image is the member that ends in jpg, jpeg or png, its label the
// number in the one that ends in cls; others are ignored. Members without an ending, and those that macOS adds
// (._NAME), belong to no sample. Without libtorch.
#pragma once

#include "data/formats/tar/tar_members.h"
#include "storage/data_file.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

struct TarSample {
  int64_t offset = 0, bytes = 0;  ///< the image's place in the tar file
  int64_t label = 0;
  std::string name;  ///< the image member's name
  bool operator==(const TarSample&) const = default;
};

struct TarIndex {
  std::vector<TarSample> samples;
  std::string comment;  ///< the comment of the file's pax global header
  LeftOut left_out;     ///< members of no sample
};

/// Reads all headers. Throws as read_tar(), and UserError(data) with file, offset and member for a sample without image
/// or label, with two of them, with a label that is no number below kMostClasses, or that comes again later.
TarIndex tar_index(int64_t size, const TarBytes& bytes, const std::string& file);
TarIndex tar_index(std::string_view tar, const std::string& file);  ///< the index of a tar file in memory

/// The index of `tar`. A local file's comes from the file `path`.index, if that was made of the same file: size and
/// version are compared. Else writes it, so that the next opening need not read a header for every image; on a folder
/// without permission, goes on without. A remote file is read through, once if a disk cache keeps it.
TarIndex stored_tar_index(const DataFile& tar);

/// The stored form, and back; nullopt if `text` is damaged, or is the index of a file of another size or version.
std::string index_text(const TarIndex& index, int64_t tar_bytes, const std::string& version);
std::optional<TarIndex> parse_index(std::string_view text, int64_t tar_bytes, const std::string& version);

}  // namespace trainopt
