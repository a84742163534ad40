#include "base/checksum.h"
#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/files/file_kind.h"
#include "base/progress.h"
#include "base/units.h"
#include "config/tree.h"
#include "data/formats/text/document_ends.h"
#include "data/formats/text/documents.h"
#include "data/files/real_paths.h"
#include "data/files/splits.h"
#include "data/identity.h"

#include <xxhash.h>

#include <algorithm>
#include <filesystem>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kByteValues = 256, kMaxCharacterBytes = 4;

/// Files of UTF-8 text, whose tokens are their bytes.
class TextFolder : public Documents {
 public:
  TextFolder(const fs::path& root, const TextOptions& options) : Documents(options.context), root_(root) {
    if (options.vocabulary < kByteValues)
      throw UserError(fmt::format("the texts in {} are read as bytes, so model.vocabulary must be at least {}: {}",
                                  root.string(), kByteValues, options.vocabulary),
                      ExitCode::data);
    if (options.token_bits)
      throw UserError(fmt::format("data.token_bits is about token files, and {} is a folder of texts; remove the key",
                                  root.string()));
    list();
    if (files_.empty()) throw UserError(fmt::format("the folder contains no files: {}", root.string()), ExitCode::data);
    std::sort(files_.begin(), files_.end(), [](const Text& a, const Text& b) { return a.name < b.name; });
    require_one_split_of_texts();
    refuse_pointer(0);
    for (const Text& text : files_)
      if (text.bytes < kMinDocumentTokens)
        throw UserError(fmt::format("{} has nothing to predict, which takes {} bytes; remove it: {}",
                                    (root_ / text.name).string(), kMinDocumentTokens, text.bytes),
                        ExitCode::data);
    measure();
  }

  int64_t size() const override { return static_cast<int64_t>(files_.size()); }
  std::vector<uint64_t> file_hashes() const override {
    RealPaths real;
    std::vector<uint64_t> hashes;
    for (int64_t sample = 0; sample < size(); ++sample) hashes.push_back(real.hash_of(name_of(sample)));
    return hashes;
  }
  std::string summary() const override { return fmt::format("{} of bytes", counted(size(), "file")); }
  std::string name_of(int64_t sample) const override {
    return (root_ / files_[static_cast<size_t>(sample)].name).string();
  }

  void read(int64_t sample, std::span<int64_t> tokens) const override {
    // What is cut off may begin within a character.
    const int64_t wanted = std::min(tokens_of(sample), static_cast<int64_t>(tokens.size()) + kMaxCharacterBytes - 1);
    std::string bytes(static_cast<size_t>(wanted), '\0');
    if (File::open(name_of(sample), ExitCode::data).read_at(0, bytes.data(), bytes.size()) < bytes.size())
      throw UserError(
          fmt::format("{} became shorter while it was read: it had {} bytes", name_of(sample), tokens_of(sample)),
          ExitCode::data);
    refuse_pointer(bytes, sample);
    for (size_t at = 0; at < tokens.size();) {
      const size_t length = utf8_length(std::string_view(bytes).substr(at));
      if (length == 0)
        throw UserError(fmt::format("{} is not UTF-8 text: at byte {}", name_of(sample), at), ExitCode::data);
      at += length;
    }
    std::transform(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(tokens.size()), tokens.begin(),
                   [](char byte) { return static_cast<uint8_t>(byte); });
  }

 private:
  struct Text {
    std::string name;  ///< path in the folder
    int64_t bytes;
    int64_t changed;  ///< a time
  };

  DataIdentity find_identity() const override {
    uint64_t hash = 0;
    Checksum changed;
    std::vector<BlockFile> files;
    for (const Text& text : files_) {
      hash = XXH3_64bits_withSeed(text.name.data(), text.name.size(), hash + static_cast<uint64_t>(text.bytes));
      changed.add(&text.changed, sizeof(text.changed));
      files.push_back({(root_ / text.name).string(), text.bytes});
    }
    DataIdentity identity{"documents", size(), kByteValues, fmt::format("{:016x}", hash)};
    identity.blocks = hash_of_blocks(draw_blocks(files, block_key(identity)));
    identity.versions = hex(changed.value());
    return identity;
  }

  int64_t tokens_of(int64_t sample) const override { return files_[static_cast<size_t>(sample)].bytes; }

  /// A Git LFS pointer is text, too.
  void refuse_pointer(std::string_view start, int64_t sample) const {
    if (const auto kind = what_it_is(start); kind.starts_with("a Git LFS pointer"))
      throw UserError(fmt::format("{} is {}", name_of(sample), kind), ExitCode::data);
  }
  void refuse_pointer(int64_t sample) const {
    std::string start(kKindBytes, '\0');
    start.resize(File::open(name_of(sample), ExitCode::data).read_at(0, start.data(), start.size()));
    refuse_pointer(start, sample);
  }

  /// A folder of texts is read as a whole, so the splits must be in folders of their own.
  void require_one_split_of_texts() const {
    std::vector<std::string> named;
    for (const Text& text : files_)
      if (is_split_name(fs::path(*fs::path(text.name).begin()).stem().string())) named.push_back(text.name);
    const auto splits = splits_in(root_.string(), named);
    if (!splits) return;
    if (kind_of(splits->training) == PathKind::folder) require_one_split(root_.string(), named);
    throw UserError(
        fmt::format("training texts are beside others; put the texts of each split in a folder of their own: "
                    "{}, {}",
                    splits->training, splits->evaluation),
        ExitCode::data);
  }

  void list() {
    std::error_code error;
    fs::path at = root_;
    for (fs::recursive_directory_iterator entry(root_, error), end; !error && entry != end; entry.increment(error)) {
      at = entry->path();
      note_progress();
      if (entry->is_directory(error)) {
        if (!entry->is_symlink(error)) continue;  // a link may lead back to where it is, so it is not followed
        throw UserError(
            fmt::format("a link to a folder, whose texts would not be read: {}; train on the folder itself, "
                        "or copy it there",
                        at.string()),
            ExitCode::data);
      }
      if (!error && !entry->is_regular_file(error) && !error)
        throw UserError(fmt::format("not a regular file: {}", at.string()), ExitCode::data);
      if (error) break;
      const auto bytes = static_cast<int64_t>(entry->file_size(error));
      if (error) break;
      const int64_t changed = entry->last_write_time(error).time_since_epoch().count();
      if (error) break;
      files_.push_back({at.lexically_relative(root_).string(), bytes, changed});
    }
    if (error)
      throw UserError(fmt::format("cannot list the folder {}: {}: {}", root_.string(), at.string(), error.message()),
                      ExitCode::data);
  }

  fs::path root_;
  std::vector<Text> files_;
};

}  // namespace

std::shared_ptr<const TextDataset> open_text_folder(const std::string& path, const TextOptions& options) {
  return std::make_shared<TextFolder>(path, options);
}

}  // namespace trainopt
