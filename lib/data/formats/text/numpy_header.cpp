#include "data/formats/text/numpy_header.h"

#include "base/error.h"

#include <charconv>
#include <cstring>

namespace trainopt {
namespace {

[[noreturn]] void refuse_array(const std::string& sentence) { throw UserError(sentence, ExitCode::data); }

/// The text after 'KEY': in the header's dictionary.
std::string_view value_of(std::string_view header, const std::string& key, const std::string& name) {
  const size_t at = header.find("'" + key + "':");
  if (at == std::string_view::npos) refuse_array(fmt::format("{} has a damaged NumPy header, without {}", name, key));
  std::string_view value = header.substr(at + key.size() + 3);
  while (value.starts_with(' ')) value.remove_prefix(1);
  return value;
}

}  // namespace

NumpyArray numpy_array(std::string_view start, const std::string& name) {
  constexpr size_t kVersionAt = 6, kLengthAt = 8;
  if (start.size() < kLengthAt + 4) refuse_array(fmt::format("{} ends within its NumPy header", name));
  const bool is_first_version = start[kVersionAt] == 1;
  uint32_t length = 0;
  std::memcpy(&length, start.data() + kLengthAt, is_first_version ? 2 : 4);
  const size_t begin = kLengthAt + (is_first_version ? 2 : 4);
  if (start.size() < begin + length)
    refuse_array(fmt::format("{} ends within its NumPy header, or that is too long: {} bytes", name, length));
  const std::string_view header = start.substr(begin, length);

  const std::string_view described = value_of(header, "descr", name);
  const std::string_view type = described.substr(0, described.find(','));  // '<u2'
  const auto is_one_of = [&](size_t at, std::string_view known) {
    return known.find(type[at]) != std::string_view::npos;
  };
  if (type.size() != 5 || !is_one_of(1, "<|") || !is_one_of(2, "ui") || !is_one_of(3, "1248"))
    refuse_array(fmt::format("{} holds no little-endian integers, as tokens must be: its dtype is {}", name, type));
  const std::string_view shape = value_of(header, "shape", name);
  const size_t end = shape.starts_with('(') ? shape.find(')') : std::string_view::npos;
  int64_t count = 0;
  const std::string_view inside = end == std::string_view::npos ? std::string_view() : shape.substr(1, end - 1);
  const auto [after, error] = std::from_chars(inside.data(), inside.data() + inside.size(), count);
  const bool is_list = end != std::string_view::npos && error == std::errc() && after < shape.data() + end;
  if (!is_list || std::string_view(after, static_cast<size_t>(shape.data() + end - after)) != "," || count < 0)
    refuse_array(fmt::format("{} must have one dimension, with one token after the other: its shape is {}", name,
                             shape.substr(0, end + 1)));
  return {.bits = 8 * (type[3] - '0'),
          .is_signed = type[2] == 'i',
          .count = count,
          .data_offset = static_cast<int64_t>(begin + length)};
}

}  // namespace trainopt
