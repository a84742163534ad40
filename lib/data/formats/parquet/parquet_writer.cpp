#include "data/formats/parquet/parquet_writer.h"

#include "base/json.h"
#include "data/formats/parquet/parquet_library.h"

namespace trainopt {
namespace {

/// What Hugging Face's datasets needs to know of the columns.
std::string features(const std::vector<std::string>& class_names) {
  const Json label = class_names.empty() ? Json{{"dtype", "int64"}, {"_type", "Value"}}
                                         : Json{{"names", class_names}, {"_type", "ClassLabel"}};
  return Json{{"info", {{"features", {{"image", {{"_type", "Image"}}}, {"label", label}}}}}}.dump(
      -1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ParquetShardWriter::ParquetShardWriter(File& file, std::string comment)
    : ShardWriter(file),
      comment_(std::move(comment)),
      output_(create_parquet([this](const void* data, size_t bytes) { append(data, bytes); })) {}

void ParquetShardWriter::add(int64_t, std::span<const uint8_t> bytes, int64_t label) { output_->add(bytes, label); }

void ParquetShardWriter::finish(const std::vector<std::string>& class_names) {
  output_->finish({{"huggingface", features(class_names)}, {std::string(kParquetComment), comment_}});
}

}  // namespace trainopt
