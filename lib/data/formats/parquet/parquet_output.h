// What trainopt writes of Parquet files; Arrow does it, in the shared object of parquet_reader.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

using Metadata = std::vector<std::pair<std::string, std::string>>;

/// A file of images with labels. Throws std::runtime_error with what Arrow says, and what the sink throws.
class ParquetOutput {
 public:
  virtual ~ParquetOutput() = default;
  /// `bytes`: a JPEG or PNG file.
  virtual void add(std::span<const uint8_t> bytes, int64_t label) = 0;
  virtual void finish(const Metadata& metadata) = 0;
};

using ParquetSink = std::function<void(const void* data, size_t bytes)>;
/// The shared object's function.
using CreateParquet = std::unique_ptr<ParquetOutput>(ParquetSink sink);
inline constexpr const char* kCreateParquet = "trainopt_create_parquet_1";

}  // namespace trainopt
