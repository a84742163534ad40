#include "trace/sax.h"

#include "trace/byte_source.h"

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <istream>
#include <stdexcept>

namespace trainopt::trace {

namespace {

constexpr size_t kStartBytes = 16;         // a file that is wrong this early was never JSON
constexpr double kMaxMicroseconds = 4e15;  // 127 years; start plus duration fits into 64 bits

}  // namespace

int64_t nanoseconds_of(std::string_view text) {
  int64_t whole = 0;
  const char *end = text.data() + text.size(), *at = text.data();
  const auto parsed = std::from_chars(at, end, whole);
  const bool fits = parsed.ec == std::errc() && std::abs(static_cast<double>(whole)) < kMaxMicroseconds;
  if (fits && parsed.ptr == end) return whole * 1000;
  const bool plain = fits && *parsed.ptr == '.' && text.find_first_of("eE") == std::string_view::npos;
  if (!plain) {  // 1.5e3, and what does not fit
    const double number = std::stod(std::string(text));
    if (!(std::abs(number) < kMaxMicroseconds)) throw std::invalid_argument("time out of range");
    return std::llround(number * 1000);
  }
  int64_t fraction = 0;
  at = parsed.ptr + 1;
  for (int digit = 0; digit < 3; ++digit) fraction = fraction * 10 + (at < end ? *at++ - '0' : 0);
  if (at < end && *at >= '5') ++fraction;
  return whole * 1000 + (text.front() == '-' ? -fraction : fraction);
}

std::string microseconds_text(int64_t nanoseconds) {
  const char* sign = nanoseconds < 0 ? "-" : "";
  const int64_t size = std::abs(nanoseconds);
  return fmt::format("{}{}.{:03}", sign, size / 1000, size % 1000);
}

void refuse_trace(const std::filesystem::path& path, const std::string& problem) {
  throw UserError(problem + ": " + path.string(), ExitCode::data);
}

void parse_trace_file(const std::filesystem::path& path, SaxHandler& handler, int64_t most_bytes) {
  ByteSource bytes(path, most_bytes);
  std::istream stream(&bytes);
  if (SaxJson::sax_parse(stream, &handler)) return;
  // The parser reads to the end of the file only if it expects more there.
  if (stream.eof()) refuse_trace(path, "the trace is truncated: its JSON ends too early");
  if (handler.problem_at() <= kStartBytes) refuse_trace(path, "not a trace: neither JSON nor gzip");
  refuse_trace(path, fmt::format("not a trace: its JSON is invalid at byte {}", handler.problem_at()));
}

}  // namespace trainopt::trace
