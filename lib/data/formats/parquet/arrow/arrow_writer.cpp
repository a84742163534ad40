// ParquetOutput by Arrow: the shared object's second function is at the end.
#include "data/formats/parquet/parquet_output.h"

#include <arrow/io/interfaces.h>
#include <arrow/result.h>
#include <arrow/util/key_value_metadata.h>
#include <parquet/column_writer.h>
#include <parquet/exception.h>
#include <parquet/file_writer.h>
#include <parquet/properties.h>
#include <parquet/schema.h>

#include <exception>
#include <stdexcept>

namespace trainopt {
namespace {

/// A row group ends when it has so much. Readers hold several at a time.
constexpr size_t kGroupBytes = size_t{8} << 20;
constexpr size_t kGroupRows = 1024;
/// Definition levels of {bytes} in an optional struct, and of an optional label.
constexpr int16_t kBytesPresent = 2, kPathMissing = 1, kLabelPresent = 1;

/// What the sink throws is kept for rethrow(), since no exception may pass through Arrow.
class SinkStream : public arrow::io::OutputStream {
 public:
  explicit SinkStream(ParquetSink sink) : sink_(std::move(sink)) {}

  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }
  using arrow::io::OutputStream::Write;
  arrow::Status Write(const void* data, int64_t bytes) override {
    try {
      sink_(data, static_cast<size_t>(bytes));
    } catch (...) {
      failure_ = std::current_exception();
      return arrow::Status::IOError("the file cannot be written");
    }
    written_ += bytes;
    return arrow::Status::OK();
  }
  arrow::Result<int64_t> Tell() const override { return written_; }
  arrow::Status Close() override {
    closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return closed_; }

 private:
  ParquetSink sink_;
  std::exception_ptr failure_;
  int64_t written_ = 0;
  bool closed_ = false;
};

std::shared_ptr<parquet::schema::GroupNode> schema() {
  using namespace parquet;
  using schema::GroupNode, schema::PrimitiveNode;
  const auto image =
      GroupNode::Make("image", Repetition::OPTIONAL,
                      {PrimitiveNode::Make("bytes", Repetition::OPTIONAL, Type::BYTE_ARRAY),
                       PrimitiveNode::Make("path", Repetition::OPTIONAL, LogicalType::String(), Type::BYTE_ARRAY)});
  const auto label = PrimitiveNode::Make("label", Repetition::OPTIONAL, Type::INT64);
  return std::static_pointer_cast<GroupNode>(GroupNode::Make("schema", Repetition::REQUIRED, {image, label}));
}

std::shared_ptr<parquet::WriterProperties> properties() {
  return parquet::WriterProperties::Builder()
      .compression(parquet::Compression::UNCOMPRESSED)  // JPEG and PNG files are compressed
      ->disable_dictionary("image.bytes")
      ->disable_statistics("image.bytes")
      ->enable_page_checksum()
      ->build();
}

class ArrowOutput : public ParquetOutput {
 public:
  explicit ArrowOutput(ParquetSink sink) : sink_(std::make_shared<SinkStream>(std::move(sink))) {
    guarded([&] { writer_ = parquet::ParquetFileWriter::Open(sink_, schema(), properties()); });
  }

  void add(std::span<const uint8_t> bytes, int64_t label) override {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
    ends_.push_back(bytes_.size());
    labels_.push_back(label);
    if (bytes_.size() >= kGroupBytes || labels_.size() >= kGroupRows) guarded([&] { write_group(); });
  }

  void finish(const Metadata& metadata) override {
    guarded([&] {
      if (!labels_.empty()) write_group();
      const auto pairs = std::make_shared<arrow::KeyValueMetadata>();
      for (const auto& [key, value] : metadata) pairs->Append(key, value);
      writer_->AddKeyValueMetadata(pairs);
      writer_->Close();
    });
  }

 private:
  template <class Action>
  void guarded(Action action) {
    try {
      action();
    } catch (const std::exception& error) {
      sink_->rethrow();
      throw std::runtime_error(error.what());  // Arrow's types are unknown to the program
    }
  }

  void write_group() {
    const auto rows = static_cast<int64_t>(labels_.size());
    std::vector<parquet::ByteArray> images;
    for (size_t row = 0; row < labels_.size(); ++row) {
      const size_t begin = row == 0 ? 0 : ends_[row - 1];
      images.emplace_back(static_cast<uint32_t>(ends_[row] - begin), bytes_.data() + begin);
    }
    const std::vector<int16_t> present(labels_.size(), kBytesPresent), missing(labels_.size(), kPathMissing),
        labelled(labels_.size(), kLabelPresent);
    parquet::RowGroupWriter* group = writer_->AppendRowGroup();
    static_cast<parquet::ByteArrayWriter*>(group->NextColumn())
        ->WriteBatch(rows, present.data(), nullptr, images.data());
    static_cast<parquet::ByteArrayWriter*>(group->NextColumn())->WriteBatch(rows, missing.data(), nullptr, nullptr);
    static_cast<parquet::Int64Writer*>(group->NextColumn())->WriteBatch(rows, labelled.data(), nullptr, labels_.data());
    group->Close();
    bytes_.clear(), ends_.clear(), labels_.clear();
  }

  std::shared_ptr<SinkStream> sink_;
  std::unique_ptr<parquet::ParquetFileWriter> writer_;
  std::vector<uint8_t> bytes_;  ///< images of the row group to come
  std::vector<size_t> ends_;    ///< each image's end in bytes_
  std::vector<int64_t> labels_;
};

}  // namespace
}  // namespace trainopt

extern "C" __attribute__((visibility("default"))) std::unique_ptr<trainopt::ParquetOutput> trainopt_create_parquet_1(
    trainopt::ParquetSink sink) {
  return std::make_unique<trainopt::ArrowOutput>(std::move(sink));
}
