#include "base/print.h"

#include "base/status_line.h"

#include <cstdio>

namespace trainopt {
namespace {

/// Bytes of the character at the beginning of `text` if it is well-formed UTF-8 (RFC 3629) and no control character; 0
/// otherwise.
size_t printable_bytes(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
  const auto continues = [&](size_t at) { return (byte(at) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80) return (first >= 0x20 && first != 0x7F) || first == '\n' || first == '\t' ? 1 : 0;
  if (first >= 0xC2 && first < 0xE0)
    return continues(1) && !(first == 0xC2 && byte(1) < 0xA0) ? 2 : 0;  // U+0080 to U+009F are control characters
  if (first >= 0xE0 && first < 0xF0) {
    const bool overlong = first == 0xE0 && byte(1) < 0xA0, surrogate = first == 0xED && byte(1) >= 0xA0;
    return continues(1) && continues(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first >= 0xF0 && first < 0xF5) {
    const bool overlong = first == 0xF0 && byte(1) < 0x90, too_large = first == 0xF4 && byte(1) >= 0x90;
    return continues(1) && continues(2) && continues(3) && !overlong && !too_large ? 4 : 0;
  }
  return 0;
}

/// Bytes of the colour ("\x1b[1;31m") at the beginning of `text`; 0: there is none.
size_t color_bytes(std::string_view text) {
  if (!text.starts_with("\x1b[")) return 0;
  const size_t end = text.find_first_not_of("0123456789;", 2);
  return end != text.npos && text[end] == 'm' ? end + 1 : 0;
}

/// How control characters are shown, and whether colours are left.
enum class Kind { text, colored, json };

/// The control character, or the byte, at the beginning of `text`; removes it.
std::string escaped(std::string_view& text, Kind kind) {
  const auto first = static_cast<unsigned char>(text[0]);
  const bool two = kind == Kind::json && first == 0xC2 && text.size() > 1;  // U+0080 to U+009F; JSON's text is UTF-8
  const auto code = two ? static_cast<unsigned char>(text[1]) : first;
  text.remove_prefix(two ? 2 : 1);
  return kind == Kind::json ? fmt::format("\\u{:04x}", code) : fmt::format("\\x{:02x}", code);
}

std::string shown(std::string_view text, Kind kind) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    size_t bytes = printable_bytes(text);
    if (bytes == 0 && kind == Kind::colored) bytes = color_bytes(text);
    if (bytes == 0) {
      result += escaped(text, kind);
      continue;
    }
    result += text.substr(0, bytes);
    text.remove_prefix(bytes);
  }
  return result;
}

void write_out(const std::string& text) {
  const StatusLineRemoved removed;
  std::fwrite(text.data(), 1, text.size(), stdout);
}

}  // namespace

std::string printable(std::string_view text) { return shown(text, Kind::text); }

void print_text(std::string_view text) { write_out(printable(text)); }

void print_colored(std::string_view text) { write_out(shown(text, Kind::colored)); }

void print_json_text(std::string_view json) { write_out(shown(json, Kind::json)); }

void print_error(std::string_view sentence) {
  const StatusLineRemoved removed;
  std::fprintf(stderr, "trainopt: %s\n", printable(sentence).c_str());
}

}  // namespace trainopt
