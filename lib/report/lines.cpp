#include "report/lines.h"

#include "base/error.h"
#include "base/units.h"

#include <simdjson.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

namespace trainopt::report {

bool read_lines(const std::filesystem::path& path, size_t padding,
                const std::function<void(std::string_view line, size_t readable)>& use) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file && errno == ENOENT) return true;
  if (!file) throw UserError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)), ExitCode::data);
  std::vector<char> buffer(size_t{1} << 20);
  size_t filled = 0;
  for (;;) {
    const size_t room = buffer.size() - padding - filled;
    const size_t got = std::fread(buffer.data() + filled, 1, room, file.get());
    if (got == 0 && std::ferror(file.get()))
      throw UserError(fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)), ExitCode::data);
    if (got == 0) return filled == 0;
    const char* begin = buffer.data();
    const char* const end = begin + filled + got;
    const char* search = begin + filled;  // what was there before has no newline
    while (const void* found = std::memchr(search, '\n', static_cast<size_t>(end - search))) {
      const char* newline = static_cast<const char*>(found);
      use({begin, static_cast<size_t>(newline - begin)}, buffer.size() - static_cast<size_t>(begin - buffer.data()));
      begin = search = newline + 1;
    }
    filled = static_cast<size_t>(end - begin);
    std::memmove(buffer.data(), begin, filled);
    if (filled < buffer.size() - padding) continue;
    if (buffer.size() > kMaxLineBytes)
      throw UserError(
          fmt::format("cannot read {}: it has a line of more than {} MiB", path.string(), kMaxLineBytes >> 20),
          ExitCode::data);
    buffer.resize(2 * buffer.size());
  }
}

namespace {

namespace ondemand = simdjson::ondemand;

/// The places of a file's fields. Almost every line has the same names in the same order, so a name is first looked for
/// behind the one before.
class Places {
 public:
  size_t of(std::string_view name) {
    if (next_ >= names_.size() || names_[next_] != name) {
      next_ = static_cast<size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin());
      if (next_ == names_.size()) names_.emplace_back(name);
    }
    return next_++;
  }
  void begin_line() { next_ = 0; }
  const std::vector<std::string>& names() const { return names_; }

 private:
  std::vector<std::string> names_;
  size_t next_ = 0;
};

std::optional<double> not_finite(std::string_view text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

class LineParser {
 public:
  explicit LineParser(const std::function<void(const NumberLine&)>& use) : use_(use) {}

  /// Whether the line is a JSON object; only then it is used.
  bool parse(std::string_view line, size_t readable) {
    places_.begin_line();
    values_.assign(places_.names().size(), std::nullopt);
    try {
      ondemand::document document = parser_.iterate(simdjson::padded_string_view(line.data(), line.size(), readable));
      for (auto field : document.get_object()) {
        const std::string_view name = field.unescaped_key();
        add(name, field.value());
      }
      if (document.current_location().error() != simdjson::OUT_OF_BOUNDS) return false;  // something follows
    } catch (const simdjson::simdjson_error&) {
      return false;
    }
    use_({places_.names(), values_});
    return true;
  }

 private:
  void set(std::string_view name, std::optional<double> value) {
    const size_t place = places_.of(name);
    if (place >= values_.size()) values_.resize(place + 1);
    values_[place] = value;
  }

  void add(std::string_view name, ondemand::value value) {
    switch (value.type()) {
      case ondemand::json_type::number:
        return set(name, value.get_double());
      case ondemand::json_type::string:
        return set(name, not_finite(value.get_string()));
      case ondemand::json_type::array:
        return add_array(std::string(name), value.get_array());
      case ondemand::json_type::boolean: {
        [[maybe_unused]] const bool valid = value.get_bool();  // throws if it is neither true nor false
        return set(name, std::nullopt);
      }
      default:
        return set(name, std::nullopt);  // null, and objects, which are skipped
    }
  }

  void add_array(const std::string& name, ondemand::array array) {
    size_t index = 0;
    for (auto item : array) {
      ondemand::value value = item.value();
      const bool is_number = value.type() == ondemand::json_type::number;
      set(name + "." + std::to_string(index++), is_number ? std::optional(double(value.get_double())) : std::nullopt);
    }
  }

  const std::function<void(const NumberLine&)>& use_;
  ondemand::parser parser_;
  Places places_;
  std::vector<std::optional<double>> values_;
};

}  // namespace

std::string LinesRead::note(const std::string& name) const {
  std::string text;
  if (unreadable > 0)
    text = fmt::format("{}: {} could not be read and {} left out, the first in line {}", name,
                       counted(unreadable, "line"), unreadable == 1 ? "was" : "were", *first_unreadable);
  if (cut_off)
    text += text.empty() ? name + ": the last line is cut off and was left out" : "; the last line is cut off";
  return text;
}

LinesRead read_number_lines(const std::filesystem::path& path, const std::function<void(const NumberLine&)>& use) {
  LinesRead result;
  LineParser parser(use);
  int64_t number = 0;
  result.cut_off = !read_lines(path, simdjson::SIMDJSON_PADDING, [&](std::string_view line, size_t readable) {
    ++number;
    if (line.empty()) return;
    if (parser.parse(line, readable)) {
      ++result.lines;
    } else {
      ++result.unreadable;
      if (!result.first_unreadable) result.first_unreadable = number;
    }
  });
  return result;
}

}  // namespace trainopt::report
