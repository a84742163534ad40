#include "data/formats/tar/tar_members.h"

#include "base/error.h"
#include "base/units.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace trainopt {
namespace {

/// A header block. All fields are text, octal numbers among them.
struct Header {
  char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
      owner[32], group[32], major[8], minor[8], prefix[155], unused[12];
};
static_assert(sizeof(Header) == kTarBlock);

/// Longer names, and pax headers, are no names of images.
constexpr int64_t kMostHeaderBytes = 1 << 20;

template <size_t N>
std::string_view field(const char (&bytes)[N]) {
  const std::string_view all(bytes, N);
  return all.substr(0, all.find('\0'));
}

/// Octal digits with spaces around; nullopt for anything else.
std::optional<int64_t> octal(std::string_view text) {
  while (text.starts_with(' ')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\0')) text.remove_suffix(1);
  if (text.empty()) return 0;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number, 8);
  return error == std::errc() && end == text.data() + text.size() && number >= 0 ? std::optional(number) : std::nullopt;
}

/// A size may be binary, with the highest bit set: GNU tar's form for 8 GiB and more.
std::optional<int64_t> size_of(const Header& header) {
  const auto first = static_cast<uint8_t>(header.size[0]);
  if (first < 0x80) return octal({header.size, sizeof(header.size)});
  if (first != 0x80) return std::nullopt;  // negative, or beyond any disk
  int64_t number = 0;
  for (size_t i = 1; i < sizeof(header.size); ++i) {
    if (number >> 54 != 0) return std::nullopt;
    number = number << 8 | static_cast<uint8_t>(header.size[i]);
  }
  return number;
}

/// The sum of the header's bytes, with spaces in place of the sum itself.
int64_t sum_of(const Header& header) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(&header);
  int64_t sum = 0;
  for (int64_t i = 0; i < kTarBlock; ++i) sum += bytes[i];
  for (const char c : header.checksum) sum += ' ' - static_cast<uint8_t>(c);
  return sum;
}

bool has_fitting_sum(const Header& header) {
  return octal({header.checksum, sizeof(header.checksum)}) == sum_of(header);
}

bool is_empty(std::string_view block) {
  return std::all_of(block.begin(), block.end(), [](char c) { return c == 0; });
}

/// Reads the headers of one tar file.
class Reader {
 public:
  Reader(int64_t size, const TarBytes& bytes, const std::string& file, LeftOut& left_out)
      : size_(size), bytes_(bytes), file_(file), left_out_(left_out) {}

  std::string run(const std::function<void(const TarMember&)>& found) {
    for (archive_ = 0; archive_ == 0 || is_followed(); ++archive_) read_members(found);
    return comment_;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    throw UserError(fmt::format("{}: at byte {} of {}{}", why, header_at_, file_,
                                name_.empty() ? "" : fmt::format(", member {}", name_)),
                    ExitCode::data);
  }

  /// Up to the first empty block.
  void read_members(const std::function<void(const TarMember&)>& found) {
    while (true) {
      header_at_ = at_;
      const std::string_view block = next_block();
      if (is_empty(block)) return;
      Header header;
      std::memcpy(&header, block.data(), sizeof(header));
      take(header, found);
    }
  }

  /// Whether another tar file follows the empty blocks, of which there must be two at the end.
  bool is_followed() {
    for (bool is_second = true; is_second || size_ - at_ >= kTarBlock; is_second = false) {
      header_at_ = at_;
      const std::string_view block = next_block();
      if (is_empty(block)) continue;
      if (is_tar(block)) {
        at_ -= kTarBlock;
        return true;
      }
      constexpr size_t kMagicAt = 257;
      if (is_second || block.substr(kMagicAt).starts_with("ustar"))
        refuse("empty blocks within the tar file are followed by a damaged header, or by none");
      at_ -= kTarBlock;
      break;
    }
    if (at_ < size_)
      left_out_.add("tar file's tail",
                    fmt::format("{}, {} after its end at byte {}", file_, counted(size_ - at_, "byte"), at_));
    return false;
  }

  std::string_view next_block() {
    if (size_ - at_ < kTarBlock) refuse("the tar file was cut: it does not end with two empty blocks");
    at_ += kTarBlock;
    return bytes_(at_ - kTarBlock, kTarBlock);
  }

  /// The member's bytes, and the padding after them.
  void skip_content(int64_t bytes) {
    const int64_t left = size_ - at_;
    if (bytes > left) refuse(fmt::format("the tar file was cut: a member has {} bytes, and {} are left", bytes, left));
    at_ += std::min(left, (bytes + kTarBlock - 1) / kTarBlock * kTarBlock);
  }

  void take(const Header& header, const std::function<void(const TarMember&)>& found) {
    if (!has_fitting_sum(header)) refuse("a damaged tar header, or no tar file");
    const auto size = size_of(header);
    if (!size) refuse("a tar header with a size that is no number");
    switch (header.type) {
      case 'L':  // GNU: the next member's name
        next_name_ = field_of(next_header(*size));
        return;
      case 'K':
        next_header(*size);
        return;
      case 'x':
        read_pax(next_header(*size), false);
        return;
      case 'g':
        read_pax(next_header(*size), true);
        return;
      default:
        member(header, next_size_.value_or(*size), found);
    }
    next_name_.reset();
    next_size_.reset();
    name_.clear();
  }

  std::string_view next_header(int64_t bytes) {
    if (bytes > kMostHeaderBytes) refuse(fmt::format("a tar header of {} bytes", bytes));
    const int64_t begin = at_;
    skip_content(bytes);
    return bytes_(begin, bytes);
  }

  static std::string field_of(std::string_view text) { return std::string(text.substr(0, text.find('\0'))); }

  /// Records "LENGTH KEY=VALUE\n", where LENGTH counts all of them.
  void read_pax(std::string_view records, bool global) {
    while (!records.empty()) {
      size_t length = 0;
      const auto end = std::from_chars(records.data(), records.data() + records.size(), length).ptr;
      const auto digits = static_cast<size_t>(end - records.data());
      if (length < digits + 3 || length > records.size() || records[digits] != ' ' || records[length - 1] != '\n')
        refuse("a damaged pax header");
      const std::string_view record = records.substr(digits + 1, length - digits - 2);
      const size_t equals = record.find('=');
      if (equals == std::string_view::npos) refuse("a damaged pax header");
      take_pax(record.substr(0, equals), record.substr(equals + 1), global);
      records.remove_prefix(length);
    }
  }

  void take_pax(std::string_view key, std::string_view value, bool global) {
    if (key.starts_with("GNU.sparse")) refuse("a sparse file, which this program does not read");
    if (global && key == "comment") comment_ = value;
    if (global) return;
    if (key == "path") next_name_ = value;
    if (key != "size") return;
    int64_t size = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), size);
    if (error != std::errc() || end != value.data() + value.size() || size < 0) refuse("a damaged pax header");
    next_size_ = size;
  }

  void member(const Header& header, int64_t size, const std::function<void(const TarMember&)>& found) {
    const bool is_ustar = std::memcmp(header.magic, "ustar", 6) == 0;  // GNU's has a space there, and no prefix
    const std::string_view prefix = is_ustar ? field(header.prefix) : std::string_view();
    name_ = next_name_ ? *next_name_ : fmt::format("{}{}{}", prefix, prefix.empty() ? "" : "/", field(header.name));
    // '5' is a directory. Before the format had a type for them, a slash at the name's end told it.
    if (header.type == '5') return;
    if (header.type == '\0' && name_.ends_with('/')) return left_out_.add("old-style folder", name_);
    if (header.type == 'V') return left_out_.add("volume label", name_);
    if (header.type == 'S') refuse("a sparse file, which this program does not read");
    if (header.type != '0' && header.type != '\0' && header.type != '7')
      refuse(header.type == '1' || header.type == '2' ? "a link in a tar file"
                                                      : "neither a file nor a directory in a tar file");
    check_name();
    const int64_t offset = at_;
    skip_content(size);
    found({.name = name_, .header = header_at_, .offset = offset, .bytes = size, .archive = archive_});
  }

  void check_name() const {
    if (name_.empty() || name_.front() == '/') refuse("a member without a name, or with one from the root");
    if (name_.find('\0') != std::string::npos) refuse("a name with a zero byte");
    const std::string within = "/" + name_ + "/";
    if (within.find("/../") != std::string::npos) refuse("a name with `..`");
  }

  int64_t size_;
  const TarBytes& bytes_;
  const std::string& file_;
  LeftOut& left_out_;
  int64_t at_ = 0, header_at_ = 0, archive_ = 0;
  std::optional<std::string> next_name_;
  std::optional<int64_t> next_size_;
  std::string name_, comment_;
};

template <size_t N>
void put(char (&to)[N], std::string_view text) {
  TRAINOPT_CHECK(text.size() <= N);
  std::copy(text.begin(), text.end(), to);
}

std::string header_block(std::string_view name, int64_t bytes, char type) {
  Header header{};
  put(header.name, name);
  put(header.mode, "0000644");
  put(header.uid, "0000000");
  put(header.gid, "0000000");
  put(header.size, fmt::format("{:011o}", bytes));
  put(header.mtime, "00000000000");
  header.type = type;
  std::memcpy(header.magic, "ustar", sizeof(header.magic));
  std::memcpy(header.version, "00", sizeof(header.version));
  put(header.checksum, fmt::format("{:06o}", sum_of(header)));
  header.checksum[7] = ' ';
  return {reinterpret_cast<const char*>(&header), sizeof(header)};
}

}  // namespace

std::string read_tar(int64_t size, const TarBytes& bytes, const std::string& file,
                     const std::function<void(const TarMember&)>& found, LeftOut& left_out) {
  return Reader(size, bytes, file, left_out).run(found);
}

bool is_tar(std::string_view start) {
  Header header;
  if (start.size() < sizeof(header)) return false;
  std::memcpy(&header, start.data(), sizeof(header));
  return !is_empty(start.substr(0, sizeof(header))) && has_fitting_sum(header);
}

std::string read_tar(std::string_view tar, const std::string& file,
                     const std::function<void(const TarMember&)>& found) {
  const auto part = [tar](int64_t offset, int64_t bytes) {
    return tar.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  };
  LeftOut left_out;
  return read_tar(std::ssize(tar), part, file, found, left_out);
}

std::string tar_header(std::string_view name, int64_t bytes) { return header_block(name, bytes, '0'); }

std::string tar_comment(std::string_view comment) {
  const std::string record = fmt::format(" comment={}\n", comment);
  size_t length = record.size();
  while (std::to_string(length).size() + record.size() != length)
    length = std::to_string(length).size() + record.size();
  const std::string content = std::to_string(length) + record;
  const auto bytes = static_cast<int64_t>(content.size());
  return header_block("pax_global_header", bytes, 'g') + content + tar_padding(bytes);
}

std::string tar_padding(int64_t bytes) { return std::string(static_cast<size_t>(-bytes & (kTarBlock - 1)), '\0'); }

}  // namespace trainopt
