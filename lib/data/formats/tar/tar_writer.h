// Writes a tar file in WebDataset's convention: 00000000.jpg or .png and 00000000.cls for each sample.
#pragma once

#include "data/formats/shards.h"

namespace trainopt {

class TarWriter : public ShardWriter {
 public:
  /// `comment`: for a pax global header, which other readers skip.
  TarWriter(File& file, const std::string& comment);
  /// `bytes`: a JPEG or PNG file.
  void add(int64_t sample, std::span<const uint8_t> bytes, int64_t label) override;
  /// A tar file has no place for `class_names`.
  void finish(const std::vector<std::string>& class_names) override;

 private:
  void member(const std::string& name, std::string_view content);
};

}  // namespace trainopt
