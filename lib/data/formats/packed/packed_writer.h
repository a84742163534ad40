// Writes a packed file (packed_file.h).
#pragma once

#include "data/formats/packed/packed_file.h"
#include "data/formats/shards.h"

namespace trainopt {

class PackedWriter : public ShardWriter {
 public:
  /// `about`: kind, size of the images, number of classes, source and shard.
  PackedWriter(File& file, const PackTrailer& about);
  void add(int64_t sample, std::span<const uint8_t> bytes, int64_t label) override;
  void finish(const std::vector<std::string>& class_names) override;

 private:
  PackTrailer trailer_;
  std::vector<PackEntry> entries_;
};

}  // namespace trainopt
