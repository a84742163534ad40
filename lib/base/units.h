// Sizes and durations in recipe notation, and shares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace trainopt {

struct Bytes {
  int64_t count = 0;
  bool operator==(const Bytes&) const = default;
};
struct Duration {
  double seconds = 0;
  bool operator==(const Duration&) const = default;
};

/// "4GiB", "512 MiB", "1GB", "4096"; nullopt if it is not a size.
std::optional<Bytes> parse_bytes(std::string_view text);
/// "90s", "15m", "2h", "100ms"; a bare number is seconds; nullopt if it is not a duration.
std::optional<Duration> parse_duration(std::string_view text);

/// "1%" or "0.01", within (0, 1); nullopt if it is not such a share.
std::optional<double> parse_share(std::string_view text);

/// Text that parses back to the same value (a duration: up to rounding): "4GiB", "1536MiB", "100ms", "15m".
std::string to_text(Bytes bytes);
std::string to_text(Duration duration);
inline double mib(int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; }
/// Rounded, for display: "11.3 GiB", "512 B".
std::string human_bytes(double bytes);

// "1 thread", "2 threads", "10,000 samples".

std::string with_commas(int64_t number);

/// `noun` is singular; `plural` is appended unless `number` is 1.
std::string counted(int64_t number, std::string_view noun, std::string_view plural = "s");

}  // namespace trainopt
