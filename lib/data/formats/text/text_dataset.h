// Data sets of text for language models: a sample is a piece of text, and the model predicts each of its tokens from
// those before it.
#pragma once

#include "data/dataset.h"

#include <memory>
#include <optional>
#include <span>
#include <string>

namespace trainopt {

class TextDataset : public Dataset {
 public:
  /// Most tokens that the model can see at once; longer samples are cut.
  virtual int64_t context() const = 0;
  /// Tokens of the sample that are predicted: all but its first, at most context(). At least 1.
  virtual int64_t target_tokens(int64_t sample) const = 0;
  /// Every sample's target_tokens(), if they do not differ.
  virtual std::optional<int64_t> uniform_tokens() const = 0;
  /// The most target tokens that a sample has.
  virtual int64_t longest() const = 0;
  /// Number of samples that are cut.
  virtual int64_t cut_samples() const = 0;
  /// Where the text comes from, for people: "2 files, 16-bit".
  virtual std::string summary() const = 0;
  /// Writes the sample's first target_tokens() + 1 tokens, as many as `tokens` has. Throws UserError(data), naming file
  /// and offset, if they cannot be read or a token is outside the vocabulary.
  virtual void read(int64_t sample, std::span<int64_t> tokens) const = 0;

  /// Writes all but the last token as input, all but the first as target; input 0 and target kNoTarget to the end of
  /// the rows.
  void write(int64_t sample, uint64_t key, const Pipeline& pipeline, const SamplePlace& place,
             LoadScratch& scratch) const final;
};

struct TextOptions {
  int64_t context = 1024;
  int64_t vocabulary = 50257;
  std::optional<int64_t> token_bits;           ///< data.token_bits
  std::shared_ptr<DataFiles> files = nullptr;  ///< null: local ones
};

/// data.dataset: tokens. `paths`: token files (token_file.h), or folders of *.bin or *.npy files. A sample is a window
/// of context + 1 tokens that begins where the previous one's targets end; windows do not cross files, and the tokens
/// after a file's last window are not used. Throws UserError(data) for a file without a window, and as TokenFile.
std::shared_ptr<const TextDataset> open_token_windows(const DataPaths& paths, const TextOptions& options);

/// data.dataset: documents. `paths`: a token file, with the documents' ends in the file of the same name that ends in
/// .ends (document_ends.h); or a folder, each file in which is a document of UTF-8 text, taken in bytewise order of
/// their paths, whose tokens are its bytes. Throws UserError(data) for a document of fewer than two tokens.
std::shared_ptr<const TextDataset> open_documents(const DataPaths& paths, const TextOptions& options);

}  // namespace trainopt
