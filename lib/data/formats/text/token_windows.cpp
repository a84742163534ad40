#include "base/error.h"
#include "base/log.h"
#include "base/units.h"
#include "data/files/open_files.h"
#include "data/formats/shards.h"
#include "data/formats/text/text_dataset.h"
#include "data/formats/text/token_file.h"
#include "data/identity.h"

#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <set>

namespace trainopt {
namespace {

class TokenWindows : public TextDataset {
 public:
  TokenWindows(const DataPaths& paths, const TextOptions& options) : options_(options) {
    if (!options_.files) options_.files = local_data_files();
    const auto& names = note(find_files(*options_.files, paths, kTokenEndings));
    auto opened = open_files(*options_.files, names, [&](std::unique_ptr<const DataFile> file) {
      return std::make_unique<TokenFile>(std::move(file), options_.token_bits);
    });
    for (auto& file : opened) add(std::move(file));
    constexpr int64_t kNarrow = 1 << 16;
    if (has_narrow_ && options_.vocabulary > kNarrow)
      log_warning(
          "model.vocabulary is {}, and tokens of 16 bits end at {}; files of wider ones without a header need "
          "data.token_bits: 32",
          options_.vocabulary, kNarrow - 1);
  }

  int64_t size() const override { return windows_; }
  int64_t context() const override { return options_.context; }
  int64_t target_tokens(int64_t) const override { return options_.context; }
  std::optional<int64_t> uniform_tokens() const override { return options_.context; }
  int64_t longest() const override { return options_.context; }
  int64_t cut_samples() const override { return 0; }
  std::string summary() const override {
    std::set<int64_t> bits;
    for (const Part& part : files_) bits.insert(part.tokens->bits());
    return fmt::format("{}, {}-bit", counted(static_cast<int64_t>(files_.size()), "file"), fmt::join(bits, "- and "));
  }

  void read(int64_t sample, std::span<int64_t> tokens) const override {
    const Part& part = part_of(sample);
    part.tokens->read((sample - part.first_window) * options_.context, tokens, options_.vocabulary);
  }
  int64_t samples_ahead() const override { return files_.front().tokens->reads_ahead(); }
  void expect(int64_t sample) const override {
    const Part& part = part_of(sample);
    part.tokens->expect((sample - part.first_window) * options_.context, options_.context + 1);
  }
  std::string name_of(int64_t sample) const override {
    const Part& part = part_of(sample);
    return fmt::format("{}, token {}", part.tokens->name(), (sample - part.first_window) * options_.context);
  }

 private:
  DataIdentity find_identity() const override {
    uint64_t hash = 0;
    std::vector<const DataFile*> files;
    for (const Part& part : files_) {
      const std::string name = std::filesystem::path(part.tokens->name()).filename().string();
      hash = XXH3_64bits_withSeed(name.data(), name.size(), hash + part.tokens->fingerprint());
      files.push_back(&part.tokens->file());
    }
    return with_files({"tokens", size(), options_.vocabulary, fmt::format("{:016x}", hash)}, files);
  }

  struct Part {
    std::unique_ptr<TokenFile> tokens;
    int64_t first_window;
  };

  void add(std::unique_ptr<TokenFile> file) {
    if (!file->caution().empty()) log_warning("{}", file->caution());
    has_narrow_ = has_narrow_ || (file->bits() == 16 && !options_.token_bits);
    const int64_t windows = (file->size() - 1) / options_.context;
    if (windows < 1)
      throw UserError(fmt::format("{} is shorter than one sample, which takes model.context and one token more: {} "
                                  "tokens, {}",
                                  file->name(), file->size(), options_.context + 1),
                      ExitCode::data);
    files_.push_back({std::move(file), windows_});
    windows_ += windows;
  }

  const Part& part_of(int64_t sample) const {
    const auto after = std::upper_bound(files_.begin(), files_.end(), sample,
                                        [](int64_t window, const Part& part) { return window < part.first_window; });
    return *std::prev(after);
  }

  TextOptions options_;
  std::vector<Part> files_;
  int64_t windows_ = 0;
  bool has_narrow_ = false;  ///< whether tokens of 16 bits were assumed or found
};

}  // namespace

std::shared_ptr<const TextDataset> open_token_windows(const DataPaths& paths, const TextOptions& options) {
  return std::make_shared<TokenWindows>(paths, options);
}

}  // namespace trainopt
