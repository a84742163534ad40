#include "base/files/file_kind.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

namespace trainopt {
namespace {

using namespace std::string_view_literals;

struct Magic {
  std::string_view bytes, what;
};
constexpr std::array kMagics = {
    Magic{"version https://git-lfs.github.com/spec/"sv, "a Git LFS pointer; fetch the file itself with `git lfs pull`"},
    Magic{"\xfd"
          "7zXZ\0"sv,
          "compressed with xz; unpack it"},
    Magic{"BZh"sv, "compressed with bzip2; unpack it"},
    Magic{"\x28\xb5\x2f\xfd"sv, "compressed with zstd; unpack it"},
    Magic{"PK\x03\x04"sv, "a zip archive; unpack it"},
    Magic{"7z\xbc\xaf\x27\x1c"sv, "a 7z archive; unpack it"},
    Magic{"\x93NUMPY"sv, "an array that NumPy saved"},
    Magic{"\x89HDF\r\n\x1a\n"sv, "an HDF5 file, which this program does not read"},
    Magic{"PAR1"sv, "a Parquet file"},
    Magic{"ARROW1"sv, "an Arrow file"},
    Magic{"TRNOPACK"sv, "a packed file of trainopt"},
    Magic{"GIF8"sv, "a GIF image"},
    Magic{"BM"sv, "a BMP image"},
    Magic{"II*\0"sv, "a TIFF image"},
    Magic{"MM\0*"sv, "a TIFF image"},
    Magic{"\x89PNG"sv, "a PNG image"},
    Magic{"\xff\xd8\xff"sv, "a JPEG image"},
    Magic{"\x80\x05\x95"sv, "a Python pickle, which this program does not read"},
    Magic{"\x80\x04\x95"sv, "a Python pickle, which this program does not read"},
    Magic{"GGUF"sv, "a GGUF file"},
    Magic{"SQLite format 3"sv, "an SQLite database"},
    Magic{"\x7f"
          "ELF"sv,
          "a program or library"},
    Magic{"\x1f\x8b\x08"sv, "compressed with gzip; unpack it"},
    Magic{"\x80\x02"sv, "a Python pickle, which this program does not read"},
    Magic{"MMIDIDX\0"sv, "an index of Megatron's, which belongs to a .bin file"},
};

/// A web page, as servers send it instead of a file.
bool is_html(std::string_view start) {
  std::string text;
  for (const char c : start.substr(0, 64))
    if (std::isspace(static_cast<unsigned char>(c)) == 0)
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text.starts_with("<!doctypehtml") || text.starts_with("<html");
}

}  // namespace

std::string_view what_it_is(std::string_view start, size_t least) {
  constexpr size_t kTarMagicAt = 257;  // behind a name, which may begin like another kind's magic number
  if (start.size() > kTarMagicAt && start.substr(kTarMagicAt).starts_with("ustar")) return "a tar file";
  constexpr size_t kWebpAt = 8;
  if (start.starts_with("RIFF") && start.substr(std::min(start.size(), kWebpAt)).starts_with("WEBP"))
    return "a WebP image";
  constexpr size_t kLengthBytes = 8;  // a header below 4 GiB leaves their upper half zero
  if (start.size() > kLengthBytes && start.substr(4, 4) == std::string_view("\0\0\0\0", 4) &&
      start.substr(kLengthBytes).starts_with("{\""))
    return "a safetensors file";
  for (const Magic& magic : kMagics)
    if (magic.bytes.size() >= least && start.starts_with(magic.bytes)) return magic.what;
  return is_html(start) ? "a web page in place of the file; download it again" : "";
}

std::string_view what_it_is(std::span<const uint8_t> start, size_t least) {
  return what_it_is(std::string_view(reinterpret_cast<const char*>(start.data()), start.size()), least);
}

}  // namespace trainopt
