// The bytes of TensorBoard's event files, without TensorFlow or a protobuf library: records framed as TFRecords, each a
// protobuf `Event`. Field numbers are those of tensorboard/compat/proto/{event,summary,tensor}.proto and
// tensorboard/plugins/hparams/plugin_data.proto (tensorboard 2.21).
#pragma once

#include "base/json.h"
#include "metrics/line_file.h"
#include "metrics/sinks.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// CRC-32C (Castagnoli), as in RFC 3720, appendix B.4.
uint32_t crc32c(std::string_view bytes);

/// One record of a TFRecord file: length, checksum of the length, `payload`, checksum of the payload.
std::string framed(std::string_view payload);
/// The payload of the record at the start of `bytes`; nullopt if it is incomplete or a checksum is wrong.
std::optional<std::string_view> unframed(std::string_view bytes);
/// Bytes that framed() adds to a payload.
inline constexpr size_t kFrameBytes = 16;

/// A tag's first part, up to a slash, is its section in TensorBoard.
struct TaggedScalar {
  std::string tag;
  double value = 0;  ///< stored as a float
};

/// The values are those of tensorboard/plugins/hparams/api.proto.
enum class SessionStatus : uint8_t { success = 1, failure = 2 };

/// Tag of session_ended().
inline constexpr std::string_view kSessionEndTag = "_hparams_/session_end_info";

/// Makes events. `wall_s`: seconds since 1970.
class EventMaker {
 public:
  EventMaker(double wall_s, int64_t step) : wall_s_(wall_s), step_(step) {}

  /// Must be the first event of a file.
  std::string file_version() const;
  /// Makes TensorBoard forget what earlier files of the run say about this step and later ones.
  std::string restarted() const;
  std::string scalars(const std::vector<TaggedScalar>& values) const;
  /// TensorBoard shows `markdown` on its TEXT page.
  std::string text(std::string_view tag, std::string_view markdown) const;
  /// `hyperparameters` is an object of booleans, numbers and strings.
  std::string session_started(const Json& hyperparameters) const;
  std::string session_ended(SessionStatus status) const;

 private:
  std::string event(uint32_t field, std::string_view content) const;
  std::string hparams(std::string_view tag, uint32_t field, std::string_view content) const;

  double wall_s_;
  int64_t step_;
};

// The sink `tensorboard`: an event file in the run directory, so that `tensorboard --logdir runs` shows and compares
// run directories.

/// The event files in `run_dir`, oldest first, which is the order in which TensorBoard reads them.
std::vector<std::filesystem::path> event_files(const std::filesystem::path& run_dir);

/// The recipe's values as hyperparameters, `section.key` each; null, lists and maps as JSON text. Sections that do not
/// influence the training's result or speed, and the folders, are left out.
Json hyperparameters(const Json& recipe);

class TensorboardSink : public Sink {
 public:
  /// Opens a new file. `resumed_after`: the step of the checkpoint that the run continues from; 0 for a new run.
  /// TensorBoard then forgets later steps, and the end of the earlier process is removed from its file, because
  /// TensorBoard keeps only a run's first end. Throws UserError(storage).
  TensorboardSink(const std::filesystem::path& run_dir, int64_t resumed_after);

  /// All metrics that have a value, each with the tag `section/name`.
  void write(const StepRecord& row) override;
  void flush() override { file_.flush(); }
  int64_t dropped_lines() const override { return file_.dropped_lines(); }

  /// Hyperparameters, and the recipe as text.
  void run_began(const Json& recipe, const std::string& recipe_yaml) override;
  /// The numbers of `evaluation`, with tags `eval/…`.
  void evaluated(int64_t step, const Json& evaluation) override;
  /// Tags `at_end/…`, which are the first columns of TensorBoard's HPARAMS page, and the receipts as text. A stopped
  /// run gets no end, because it may be resumed.
  void run_ended(const Json& summary) override;

 private:
  void add(const std::string& event) { file_.write(framed(event)); }

  LineFile file_;
  int64_t resumed_after_;
};

}  // namespace trainopt
