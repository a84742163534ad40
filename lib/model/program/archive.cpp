#include "model/program/archive.h"

#include "base/error.h"
#include "base/files/file_kind.h"

#include <zip.h>

#include <fstream>
#include <memory>

namespace trainopt {
namespace {

constexpr uint64_t kMostText = uint64_t{1} << 30;  // a Llama of 80 layers has a graph of 40 MiB

/// What a file that is no ZIP archive probably is.
std::string other_kind(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string start(kKindBytes, '\0');
  file.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(std::max<std::streamsize>(0, file.gcount())));
  if (start.starts_with("PK")) return "a ZIP archive that is cut off or damaged";
  const std::string_view kind = what_it_is(start);
  return kind.empty() ? "no ZIP archive, as torch.export.save writes them" : std::string(kind);
}

}  // namespace

ProgramArchive::ProgramArchive(std::filesystem::path path) : path_(std::move(path)) {
  std::error_code error;
  const auto status = std::filesystem::status(path_, error);
  if (!std::filesystem::exists(status)) refuse("there is no such file");
  if (!std::filesystem::is_regular_file(status)) refuse("it is no file");
  const uint64_t bytes = std::filesystem::file_size(path_, error);
  int code = 0;
  file_ = error ? nullptr : zip_open(path_.c_str(), ZIP_RDONLY, &code);
  if (file_ == nullptr) {
    if (code == ZIP_ER_OPEN || code == ZIP_ER_READ) refuse("it cannot be read");
    refuse("this is " + other_kind(path_));
  }
  try {
    list_members(bytes);
    require_program();
  } catch (...) {
    zip_discard(file_);
    throw;
  }
}

ProgramArchive::~ProgramArchive() { zip_discard(file_); }

void ProgramArchive::list_members(uint64_t file_bytes) {
  const auto count = static_cast<uint64_t>(std::max<zip_int64_t>(0, zip_get_num_entries(file_, 0)));
  for (uint64_t index = 0; index < count; ++index) {
    zip_stat_t about;
    zip_stat_init(&about);
    constexpr uint64_t kNeeded = ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD;
    if (zip_stat_index(file_, index, 0, &about) != 0 || (about.valid & kNeeded) != kNeeded)
      refuse("its list of members is damaged");
    const std::string name = about.name;
    if (name.ends_with('/')) continue;
    if (about.comp_method != ZIP_CM_STORE || about.size != about.comp_size || about.size > file_bytes)
      refuse(fmt::format("its member {} is compressed or larger than the file; torch.export.save does neither", name));
    const size_t folder = name.find('/');
    const std::string own = folder == std::string::npos ? name : name.substr(folder + 1);
    if (!members_.emplace(own, Member{index, about.size}).second)
      refuse(fmt::format("its member {} is there twice", name));
  }
}

void ProgramArchive::require_program() const {
  if (has("archive_format") && text_of("archive_format") == "pt2") {
    if (has("byteorder") && text_of("byteorder") != "little") refuse("it was saved on a big-endian machine");
    if (!names_in("models/").empty()) return;
    if (!names_in("data/aotinductor/").empty())
      refuse("this is a package of AOTInductor, compiled for inference; save the program with torch.export.save");
    refuse("it has no program in models/");
  }
  if (has("constants.pkl") || !names_in("code/").empty())
    refuse("this is a TorchScript file; export the model with torch.export and save it with torch.export.save");
  if (has("data.pkl"))
    refuse("torch.save wrote this; export the model with torch.export and save it with torch.export.save");
  if (has("serialized_exported_program.json"))
    refuse("a torch before 2.8 saved this program; save it again with a newer one");
  refuse("this is a ZIP archive, but none of torch.export.save");
}

std::vector<std::string> ProgramArchive::names_in(const std::string& folder) const {
  std::vector<std::string> names;
  for (auto member = members_.lower_bound(folder); member != members_.end() && member->first.starts_with(folder);
       ++member)
    names.push_back(member->first.substr(folder.size()));
  return names;
}

uint64_t ProgramArchive::size_of(const std::string& name) const {
  const auto member = members_.find(name);
  if (member == members_.end()) refuse(fmt::format("it has no member {}", name));
  return member->second.bytes;
}

std::string ProgramArchive::text_of(const std::string& name) const {
  const uint64_t bytes = size_of(name);
  if (bytes > kMostText) refuse(fmt::format("its member {} is larger than 1 GiB", name));
  std::string text(bytes, '\0');
  read(name, {reinterpret_cast<uint8_t*>(text.data()), text.size()});
  return text;
}

void ProgramArchive::read(const std::string& name, std::span<uint8_t> into) const {
  TRAINOPT_CHECK(size_of(name) == into.size());
  const auto close = [](zip_file_t* file) { zip_fclose(file); };
  const std::unique_ptr<zip_file_t, decltype(close)> file(zip_fopen_index(file_, members_.at(name).index, 0), close);
  // libzip compares the checksum when it finds the end, so it has to be asked for one byte more.
  uint8_t more = 0;
  uint64_t done = 0;
  while (file && done < into.size()) {
    const zip_int64_t got = zip_fread(file.get(), into.data() + done, into.size() - done);
    if (got <= 0) break;
    done += static_cast<uint64_t>(got);
  }
  if (!file || done != into.size() || zip_fread(file.get(), &more, 1) != 0)
    refuse(fmt::format("its member {} is damaged", name));
}

void ProgramArchive::refuse(const std::string& why) const {
  constexpr size_t kLongest = 600;
  std::string shown = why.size() > kLongest ? why.substr(0, kLongest) + "…" : why;
  for (char& letter : shown)
    if (static_cast<unsigned char>(letter) < 0x20 || letter == 0x7f) letter = '?';
  throw UserError(fmt::format("{}: {}", path_.string(), shown), ExitCode::checkpoint);
}

}  // namespace trainopt
