// Reads a text file line by line in bounded memory.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

namespace trainopt::report {

/// A longer line is an error: no file that trainopt writes has one.
inline constexpr size_t kMaxLineBytes = size_t{64} << 20;

/// Calls `use` with each complete line, without its newline, and with the number of bytes from the line's beginning
/// that may be read: at least `padding` more than the line has. False: the file ends in the middle of a line, for which
/// `use` was not called. A file that does not exist has no lines. Throws UserError(data) naming the file.
bool read_lines(const std::filesystem::path& path, size_t padding,
                const std::function<void(std::string_view line, size_t readable)>& use);

}  // namespace trainopt::report
