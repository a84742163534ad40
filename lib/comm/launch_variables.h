// Reads environment variables strictly and remembers which were read, so that messages can show them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trainopt {

/// Parses 1 to 18 decimal digits and nothing else; nullopt otherwise.
std::optional<int64_t> parse_count(std::string_view text);

class LaunchVariables {
 public:
  explicit LaunchVariables(const std::map<std::string, std::string>& environment) : environment_(environment) {}

  bool has(const std::string& name) const { return environment_.contains(name); }
  /// nullopt if the variable is not set. Throws UserError if it is empty.
  std::optional<std::string> text(const std::string& name);
  /// Throws UserError unless the variable is unset or a number of at least `minimum`.
  std::optional<int64_t> number(const std::string& name, int64_t minimum = 0);

  /// "RANK=0" …, in reading order.
  const std::vector<std::string>& read() const { return read_; }
  /// Throws UserError: the sentence, then all variables read so far.
  [[noreturn]] void refuse(const std::string& sentence) const;

 private:
  const std::map<std::string, std::string>& environment_;
  std::vector<std::string> read_;
};

}  // namespace trainopt
