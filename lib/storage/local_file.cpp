#include "base/files/mapped_file.h"
#include "storage/data_file.h"

namespace trainopt {
namespace {

class LocalFile : public DataFile {
 public:
  explicit LocalFile(std::unique_ptr<const MappedFile> file)
      : DataFile(file->path().string(), file->size(), std::to_string(file->changed_ns())), file_(std::move(file)) {}

  std::span<const uint8_t> read(int64_t offset, int64_t bytes, std::vector<uint8_t>&) const override {
    TRAINOPT_CHECK(offset >= 0 && bytes >= 0 && bytes <= size() - offset);
    file_->require_whole();
    return file_->bytes().subspan(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  }
  bool is_mapped() const override { return true; }

 private:
  std::unique_ptr<const MappedFile> file_;
};

}  // namespace

std::unique_ptr<const DataFile> open_local_file(const std::filesystem::path& path) {
  return std::make_unique<LocalFile>(std::make_unique<MappedFile>(path, ExitCode::data));
}

}  // namespace trainopt
