#include "data/formats/tar/tar_index.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/files/files.h"
#include "base/json.h"
#include "data/formats/shards.h"
#include "data/formats/tar/tar_members.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <unordered_set>

namespace trainopt {
namespace {

constexpr std::string_view kFormat = "trainopt tar index 3";
/// The most bytes of a label: a number and white space.
constexpr int64_t kMostLabelBytes = 256;
constexpr int64_t kMostIndexBytes = int64_t{1} << 36;

struct SplitName {
  std::string key, ending;
};

SplitName split(const std::string& name) {
  const size_t slash = name.rfind('/'), dot = name.find('.', slash == std::string::npos ? 0 : slash + 1);
  if (dot == std::string::npos) return {name, ""};
  std::string ending = name.substr(dot + 1);
  for (char& c : ending) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return {name.substr(0, dot), std::move(ending)};
}

/// WebDataset takes no sample without a name before the first dot.
bool is_hidden(const std::string& name) { return name[name.rfind('/') + 1] == '.'; }

std::optional<int64_t> label_of(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  int64_t label = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), label);
  const bool fits = error == std::errc() && end == text.data() + text.size() && label >= 0 && label < kMostClasses;
  return fits ? std::optional(label) : std::nullopt;
}

/// A file that is read front to back, a few megabytes at a time. Samples later read other ranges, so a cache in memory
/// would keep these windows for nothing.
class FileWindow {
 public:
  explicit FileWindow(const DataFile& file) : file_(file) {}

  std::string_view at(int64_t offset, int64_t bytes) {
    if (bytes == 0) return {};
    const int64_t begin = offset / kWindow * kWindow;
    if (file_.is_mapped() || offset + bytes > begin + kWindow) return text_of(file_.read_once(offset, bytes, long_));
    if (begin != begin_) {
      window_ = text_of(file_.read_once(begin, bytes_from(begin), scratch_));
      begin_ = begin;
      if (bytes_from(begin + kWindow) > 0) file_.expect(begin + kWindow, bytes_from(begin + kWindow));
    }
    return window_.substr(static_cast<size_t>(offset - begin), static_cast<size_t>(bytes));
  }

 private:
  static constexpr int64_t kWindow = 4 << 20;

  static std::string_view text_of(std::span<const uint8_t> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  }
  int64_t bytes_from(int64_t begin) const { return std::clamp<int64_t>(file_.size() - begin, 0, kWindow); }

  const DataFile& file_;
  std::vector<uint8_t> scratch_, long_;
  std::string_view window_;
  int64_t begin_ = -1;
};

/// Collects members into samples.
class Samples {
 public:
  Samples(const TarBytes& bytes, const std::string& file, LeftOut& left_out)
      : bytes_(bytes), file_(file), left_out_(left_out) {}

  void add(const TarMember& member) {
    SplitName name = split(member.name);
    if (name.ending.empty() || is_hidden(member.name)) return left_out_.add_file(member.name);
    if (member.archive != archive_) {  // its samples may be named like those of the one before
      finish();
      keys_.clear();
      archive_ = member.archive;
    }
    if (!first_ || name.key != key_) {
      finish();
      if (!keys_.insert(name.key).second) refuse("the sample comes a second time", member);
      key_ = std::move(name.key);
      first_ = member;
    }
    if (name.ending == "jpg" || name.ending == "jpeg" || name.ending == "png") {
      if (image_) refuse("the sample has two images", member);
      image_ = member;
    } else if (name.ending == "cls") {
      if (label_) refuse("the sample has two labels", member);
      if (member.bytes <= kMostLabelBytes) label_ = label_of(bytes_(member.offset, member.bytes));
      if (!label_) refuse(fmt::format("a label must be a number from 0 to {}", kMostClasses - 1), member);
    } else {
      ignored_.push_back(name.ending);
    }
  }

  std::vector<TarSample> take() {
    finish();
    return std::move(samples_);
  }

 private:
  [[noreturn]] void refuse(const std::string& why, const TarMember& member) const {
    throw UserError(fmt::format("{}: member {} at byte {} of {}", why, member.name, member.header, file_),
                    ExitCode::data);
  }

  void finish() {
    if (!first_) return;
    if (!image_) refuse("the sample has no image (jpg, jpeg, png)" + others(), *first_);
    if (!label_) refuse("the sample has no label (cls)" + others(), *first_);
    samples_.push_back({image_->offset, image_->bytes, *label_, image_->name});
    first_.reset();
    image_.reset();
    label_.reset();
    ignored_.clear();
  }

  /// What the sample has instead, and why: a name with dots has another ending than one would think.
  std::string others() const {
    if (ignored_.empty()) return "";
    const bool has_dots = std::any_of(ignored_.begin(), ignored_.end(),
                                      [](const std::string& ending) { return ending.find('.') != std::string::npos; });
    return fmt::format(
        "; it has {}{}", fmt::join(ignored_, ", "),
        has_dots ? ", because an ending begins at a name's first dot, so names need others instead" : "");
  }

  const TarBytes& bytes_;
  const std::string& file_;
  LeftOut& left_out_;
  std::string key_;
  int64_t archive_ = 0;
  std::unordered_set<std::string> keys_;
  std::optional<TarMember> first_, image_;  ///< the current sample's members
  std::optional<int64_t> label_;
  std::vector<std::string> ignored_;  ///< endings of its other members
  std::vector<TarSample> samples_;
};

}  // namespace

TarIndex tar_index(int64_t size, const TarBytes& bytes, const std::string& file) {
  TarIndex index;
  Samples samples(bytes, file, index.left_out);
  const auto add = [&](const TarMember& member) { samples.add(member); };
  index.comment = read_tar(size, bytes, file, add, index.left_out);
  index.samples = samples.take();
  return index;
}

TarIndex tar_index(std::string_view tar, const std::string& file) {
  const auto part = [tar](int64_t offset, int64_t bytes) {
    return tar.substr(static_cast<size_t>(offset), static_cast<size_t>(bytes));
  };
  return tar_index(std::ssize(tar), part, file);
}

std::string index_text(const TarIndex& index, int64_t tar_bytes, const std::string& version) {
  Json samples = Json::array();
  for (const auto& sample : index.samples)
    samples.push_back(Json::array({sample.offset, sample.bytes, sample.label, sample.name}));
  const std::string text = Json{
      {"format", kFormat},
      {"bytes", tar_bytes},
      {"version", version},
      {"comment", index.comment},
      {"left_out", index.left_out.json()},
      {"samples",
       std::move(samples)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  Checksum checksum;
  checksum.add(text.data(), text.size());
  return fmt::format("{}\n{}\n", hex(checksum.value()), text);
}

std::optional<TarIndex> parse_index(std::string_view text, int64_t tar_bytes, const std::string& version) {
  const size_t line = text.find('\n');
  if (line == std::string_view::npos || !text.ends_with('\n')) return {};
  const std::string_view content = text.substr(line + 1, text.size() - line - 2);
  Checksum checksum;
  checksum.add(content.data(), content.size());
  if (hex(checksum.value()) != text.substr(0, line)) return {};
  try {
    const Json json = Json::parse(content);
    if (json.at("format") != kFormat || json.at("bytes") != tar_bytes || json.at("version") != version) return {};
    TarIndex index{.samples = {}, .comment = json.at("comment"), .left_out = left_out_from(json.at("left_out"))};
    for (const Json& each : json.at("samples")) {
      const TarSample sample{each.at(0), each.at(1), each.at(2), each.at(3)};
      const bool fits = sample.offset >= 0 && sample.bytes >= 0 && sample.bytes <= tar_bytes &&
                        sample.offset <= tar_bytes - sample.bytes && sample.label >= 0 && sample.label < kMostClasses;
      if (!fits) return {};
      index.samples.push_back(sample);
    }
    return index;
  } catch (const Json::exception&) {
    return {};
  }
}

TarIndex stored_tar_index(const DataFile& tar) {
  FileWindow window(tar);
  const TarBytes bytes = [&](int64_t offset, int64_t count) { return window.at(offset, count); };
  if (!tar.is_mapped()) return tar_index(tar.size(), bytes, tar.name());
  const std::filesystem::path path = tar.name() + ".index";
  try {
    const std::string text = read_file(path, ExitCode::data, kMostIndexBytes);
    if (auto index = parse_index(text, tar.size(), tar.version())) return *std::move(index);
  } catch (const UserError&) {  // there is none
  }
  TarIndex index = tar_index(tar.size(), bytes, tar.name());
  try {
    write_file(path, index_text(index, tar.size(), tar.version()));
  } catch (const UserError&) {  // no permission to write here, or a full disk
  }
  return index;
}

}  // namespace trainopt
