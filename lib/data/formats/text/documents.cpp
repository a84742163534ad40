#include "base/error.h"
#include "base/files/files.h"
#include "base/log.h"
#include "data/formats/text/document_ends.h"
#include "data/formats/text/documents.h"
#include "data/formats/text/text_dataset.h"
#include "data/formats/text/token_file.h"
#include "data/identity.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

namespace trainopt {

namespace fs = std::filesystem;

namespace {

/// Documents in a token file.
class TokenDocuments : public Documents {
 public:
  TokenDocuments(const fs::path& path, const TextOptions& options)
      : Documents(options.context), vocabulary_(options.vocabulary), file_(path, options.token_bits) {
    const fs::path ends = ends_path(path);
    if (std::error_code error; fs::exists(ends, error) && !fs::is_regular_file(ends, error))  // a pipe would block
      throw UserError(fmt::format("not a regular file: {}", ends.string()), ExitCode::data);
    if (!file_.caution().empty()) log_warning("{}", file_.caution());
    note({.files = {path.string()}, .left_out = {}});
    ends_ = document_ends(read_file(ends, ExitCode::data), file_.size(), ends.string());
    measure();
  }

  int64_t size() const override { return static_cast<int64_t>(ends_.size()); }
  std::string summary() const override { return fmt::format("1 file, {}-bit", file_.bits()); }
  void read(int64_t sample, std::span<int64_t> tokens) const override {
    file_.read(begin(sample), tokens, vocabulary_);
  }
  std::string name_of(int64_t sample) const override { return fmt::format("{}, document {}", file_.name(), sample); }

 private:
  DataIdentity find_identity() const override {
    const uint64_t hash = XXH3_64bits_withSeed(ends_.data(), ends_.size() * sizeof(ends_[0]), file_.fingerprint());
    return with_files({"documents", size(), vocabulary_, fmt::format("{:016x}", hash)}, {&file_.file()});
  }

  int64_t begin(int64_t sample) const { return sample == 0 ? 0 : ends_[static_cast<size_t>(sample - 1)]; }
  int64_t tokens_of(int64_t sample) const override { return ends_[static_cast<size_t>(sample)] - begin(sample); }

  int64_t vocabulary_;
  TokenFile file_;
  std::vector<int64_t> ends_;
};

}  // namespace

int64_t Documents::target_tokens(int64_t sample) const { return std::min(tokens_of(sample) - 1, context_); }

void Documents::measure() {
  for (int64_t sample = 0; sample < size(); ++sample) {
    longest_ = std::max(longest_, target_tokens(sample));
    cut_ += tokens_of(sample) - 1 > context_ ? 1 : 0;
  }
}

std::shared_ptr<const TextDataset> open_documents(const DataPaths& paths, const TextOptions& options) {
  const std::string& path = paths.only("documents");
  std::error_code unreadable;  // reading the file will say why
  if (fs::is_directory(path, unreadable)) return open_text_folder(path, options);
  return std::make_shared<TokenDocuments>(path, options);
}

}  // namespace trainopt
