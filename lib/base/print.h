// The program's output: standard output for results, standard error for what went wrong. Names of files and classes,
// and what servers answer, may contain anything; what a terminal would obey is shown instead.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace trainopt {

/// The text with every control character but line feed and tab, and every byte that is not UTF-8, as \x1b and the like.
std::string printable(std::string_view text);

/// Writes printable(text) to standard output.
void print_text(std::string_view text);
template <class... Args>
void print_out(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Writes printable(text), but for colours.
void print_colored(std::string_view text);

/// Writes JSON to standard output, with control characters that JSON allows (DEL, U+0080 to U+009F) as \u007f and the
/// like.
void print_json_text(std::string_view json);

/// Writes "trainopt: " and the printable sentence as a line to standard error.
void print_error(std::string_view sentence);

}  // namespace trainopt
