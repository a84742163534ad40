// What the readers of a trace share: numbers exactly as written, and errors as sentences.
#pragma once

#include "base/error.h"
#include "trace/byte_source.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace trainopt::trace {

using SaxJson = nlohmann::json;

/// Receives a file's values. Derived classes override what they need.
class SaxHandler : public nlohmann::json_sax<SaxJson> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t value) override { return number(std::to_string(value)); }
  bool number_unsigned(number_unsigned_t value) override { return number(std::to_string(value)); }
  bool number_float(number_float_t, const string_t& text) override { return number(text); }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool parse_error(size_t byte, const std::string&, const SaxJson::exception&) override {
    problem_at_ = byte;
    return false;
  }
  size_t problem_at() const { return problem_at_; }

 protected:
  virtual bool number(const std::string& text) = 0;  ///< any number, as written

 private:
  size_t problem_at_ = 0;
};

/// "4628404622663.864" µs in nanoseconds. A double would lose digits: traces count from the Unix epoch. Throws
/// std::invalid_argument if it is not a number.
int64_t nanoseconds_of(std::string_view microseconds);

/// The number in Kineto's µs, "4628404622663.864", always with three decimals.
std::string microseconds_text(int64_t nanoseconds);

/// Parses the file with `handler`. Throws UserError(data) for text that is not JSON or ends too early, and what
/// `handler` throws.
void parse_trace_file(const std::filesystem::path& path, SaxHandler& handler, int64_t most_bytes = kMostJsonBytes);

/// Throws UserError(data): "`problem`: `path`".
[[noreturn]] void refuse_trace(const std::filesystem::path& path, const std::string& problem);

}  // namespace trainopt::trace
