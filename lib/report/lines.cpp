#include "report/lines.h"

#include "base/error.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
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

}  // namespace trainopt::report
