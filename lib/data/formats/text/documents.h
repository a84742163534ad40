// Data sets whose samples are whole documents, and those of them that are files of a folder.
#pragma once

#include "data/formats/text/text_dataset.h"

namespace trainopt {

/// Documents of different lengths.
class Documents : public TextDataset {
 public:
  explicit Documents(int64_t context) : context_(context) {}
  int64_t context() const override { return context_; }
  int64_t target_tokens(int64_t sample) const override;
  std::optional<int64_t> uniform_tokens() const override { return std::nullopt; }
  int64_t longest() const override { return longest_; }
  int64_t cut_samples() const override { return cut_; }

 protected:
  /// All tokens of the document.
  virtual int64_t tokens_of(int64_t sample) const = 0;
  /// Call once the documents are known.
  void measure();

 private:
  int64_t context_, longest_ = 0, cut_ = 0;
};

/// See open_documents().
std::shared_ptr<const TextDataset> open_text_folder(const std::string& path, const TextOptions& options);

}  // namespace trainopt
