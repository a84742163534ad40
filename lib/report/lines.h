// Reads a text file line by line in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace trainopt::report {

/// A longer line is an error: no file that trainopt writes has one.
inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

/// Calls `use` with each complete line, without its newline, and with the number of bytes from the line's beginning
/// that may be read: at least `padding` more than the line has. False: the file ends in the middle of a line, for which
/// `use` was not called. A file that does not exist has no lines. Throws UserError(data) naming the file.
bool read_lines(const std::filesystem::path& path, size_t padding,
                const std::function<void(std::string_view line, size_t readable)>& use);

// Reads files of JSON lines whose objects hold numbers: metrics.jsonl, telemetry.jsonl, ranks.jsonl, evaluations.jsonl.
// A million lines of metrics.jsonl are close to a gigabyte, so one pass is made in bounded memory.

/// One line. The fields of a file keep their places from line to line; a new name gets the next place.
struct NumberLine {
  std::span<const std::string> names;
  /// By name. Null, text, or not in this line: nullopt. "NaN", "Infinity" and "-Infinity" are numbers. The numbers of
  /// an array are separate fields, `busy_ms.0`, `busy_ms.1`, …; other nested values are left out.
  std::span<const std::optional<double>> values;
};

/// What a reader should know about the file.
struct LinesRead {
  int64_t lines = 0;                        ///< that could be read
  int64_t unreadable = 0;                   ///< complete lines that are not JSON objects
  std::optional<int64_t> first_unreadable;  ///< counted from 1
  bool cut_off = false;                     ///< the file ends in the middle of a line, which was left out

  /// "metrics.jsonl: the last line is cut off and was left out"; empty if there is nothing to say.
  std::string note(const std::string& name) const;
};

/// Calls `use` with each line. A file that does not exist has no lines. Throws UserError(data) naming a file that
/// cannot be read.
LinesRead read_number_lines(const std::filesystem::path& path, const std::function<void(const NumberLine&)>& use);

}  // namespace trainopt::report
