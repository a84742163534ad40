// Writes images to a Parquet file as Hugging Face's datasets does: a struct image {bytes, path}, and a label.
#pragma once

#include "data/formats/parquet/parquet_output.h"
#include "data/formats/shards.h"

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trainopt {

class ParquetShardWriter : public ShardWriter {
 public:
  /// `comment`: for the metadata. Throws UserError(data) without Arrow.
  ParquetShardWriter(File& file, std::string comment);
  void add(int64_t sample, std::span<const uint8_t> bytes, int64_t label) override;
  void finish(const std::vector<std::string>& class_names) override;

 private:
  std::string comment_;
  std::unique_ptr<ParquetOutput> output_;
};

}  // namespace trainopt
