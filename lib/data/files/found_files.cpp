#include "data/files/found_files.h"

#include "base/json.h"
#include "base/units.h"
#include "data/files/real_paths.h"
#include "data/formats/table.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <filesystem>
#include <unordered_set>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_paths(const std::string& sentence) { throw UserError(sentence, ExitCode::data); }

/// What a path of a data set is.
enum class Named { file, folder, pattern, nothing };
Named named(const std::string& path, std::span<const std::string_view> endings) {
  if (is_remote(path))
    return is_pattern(path) ? Named::pattern : has_ending(path, endings) ? Named::file : Named::folder;
  const PathKind kind = kind_of(path);
  if (kind == PathKind::folder) return Named::folder;
  if (kind != PathKind::absent) return Named::file;
  return is_pattern(path) ? Named::pattern : Named::nothing;
}

/// "*.bin or *.npy".
std::string words(std::span<const std::string_view> endings) { return fmt::format("*{}", fmt::join(endings, " or *")); }

constexpr int64_t kMostNames = 1'000'000;

/// {0000..0146}: all numbers, as wide as the first; {a,b}: each text. Null if `inside` is neither.
std::optional<std::vector<std::string>> alternatives(const std::string& inside) {
  std::vector<std::string> all;
  if (const size_t dots = inside.find(".."); dots != std::string::npos) {
    int64_t first = 0, last = 0;
    const auto is_number = [](std::string_view text, int64_t& number) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      return error == std::errc() && end == text.data() + text.size() && number >= 0;
    };
    if (!is_number(inside.substr(0, dots), first) || !is_number(inside.substr(dots + 2), last) || last < first)
      refuse_paths(fmt::format("braces must hold two numbers, such as {{0000..0146}}, or names: {{{}}}", inside));
    if (last - first >= kMostNames) refuse_paths(fmt::format("braces of more than {} names", with_commas(kMostNames)));
    for (int64_t number = first; number <= last; ++number) all.push_back(fmt::format("{:0{}}", number, dots));
    return all;
  }
  for (size_t begin = 0; begin <= inside.size();) {
    const size_t comma = std::min(inside.find(',', begin), inside.size());
    all.push_back(inside.substr(begin, comma - begin));
    begin = comma + 1;
  }
  return all.size() > 1 ? std::optional(all) : std::nullopt;
}

/// Adds the paths that one with braces stands for; itself without any, or if it is a file's name.
void add_without_braces(const std::string& path, std::vector<std::string>& all) {
  if (std::ssize(all) > kMostNames) refuse_paths(fmt::format("braces of more than {} names", with_commas(kMostNames)));
  const size_t open = path.find('{'), close = path.find('}', open);
  const bool is_name = close == std::string::npos || (!is_remote(path) && kind_of(path) != PathKind::absent);
  const auto each = is_name ? std::nullopt : alternatives(path.substr(open + 1, close - open - 1));
  if (!each) return all.push_back(path);
  for (const std::string& one : *each) add_without_braces(path.substr(0, open) + one + path.substr(close + 1), all);
}

class Finder {
 public:
  Finder(DataFiles& storage, std::span<const std::string_view> endings) : storage_(storage), endings_(endings) {}

  FoundFiles find(const DataPaths& paths) {
    std::vector<std::string> names;
    for (const std::string& path : paths.all) {
      const size_t before = names.size();
      add_without_braces(path, names);
      require_all_there(std::span(names).subspan(before));
    }
    for (const std::string& name : names) add(name);
    if (names.size() > 1) require_different();
    return std::move(found_);
  }

 private:
  void require_all_there(std::span<const std::string> paths) const {
    std::vector<std::string> missing;
    for (const std::string& path : paths)
      if (named(path, endings_) == Named::nothing) missing.push_back(path);
    if (missing.empty()) return;
    if (paths.size() == 1) require_path(missing.front());
    refuse_paths(fmt::format("{} of {} do not exist: {}", missing.size(), counted(std::ssize(paths), "file"),
                             first_of(missing)));
  }

  void add(const std::string& path) {
    switch (named(path, endings_)) {
      case Named::pattern:
        return add_matches(path);
      case Named::folder:
        return add_folder(path, false);
      default:
        found_.files.push_back(path);
    }
  }

  void add_matches(const std::string& pattern) {
    std::vector<std::string> files, folders, others;
    for (std::string& match : storage_.matching(pattern)) {
      if (belongs_to_others(match)) continue;
      (match.ends_with('/') ? folders : has_ending(match, endings_) ? files : others).push_back(std::move(match));
    }
    if (files.empty() && folders.empty() && others.empty()) {
      const bool may_be_name = is_remote(pattern) && pattern.find('*') == std::string::npos;  // an object's
      if (!may_be_name) refuse_pattern(pattern);
      return found_.files.push_back(pattern);
    }
    if (!others.empty())
      refuse_paths(fmt::format("the pattern must fit {} files only, and it fits {}: {}: {}", words(endings_),
                               counted(std::ssize(others), "other"), first_of(others), pattern));
    if (!files.empty() && !folders.empty())
      refuse_paths(
          fmt::format("the pattern fits files and folders, such as {} and {}: {}", files[0], folders[0], pattern));
    require_one_kind(files, pattern);
    require_one_split_below(pattern, files.empty() ? folders : files);
    for (std::string& file : files) found_.files.push_back(std::move(file));
    for (const std::string& folder : folders) add_folder(folder.substr(0, folder.size() - 1), true);
  }

  [[noreturn]] void refuse_pattern(const std::string& pattern) {
    const std::string what = fmt::format("nothing fits the pattern: {}", pattern);
    const size_t slash = pattern.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : pattern.substr(0, slash);
    if (is_remote(pattern) || kind_of(folder) != PathKind::folder) refuse_paths(what);
    LeftOut there;
    for (const std::string& entry : storage_.list(folder))
      entry.ends_with('/') ? there.add("folder", entry) : there.add_file(fs::path(entry).filename().string());
    refuse_paths(there.empty() ? what : fmt::format("{}; there are {}", what, there.text()));
  }

  static void require_one_split_below(const std::string& pattern, const std::vector<std::string>& matches) {
    const size_t slash = pattern.rfind('/', pattern.find_first_of(kPatternCharacters));
    const size_t begin = slash == std::string::npos ? 0 : slash + 1;
    std::vector<std::string> names;
    for (const std::string& match : matches) names.push_back(match.substr(begin));
    require_one_split(pattern.substr(0, begin), names);
  }

  void add_folder(const std::string& folder, bool is_one_of_several) {
    std::vector<std::string> files;
    LeftOut others;
    std::vector<std::string> folders;
    for (std::string& entry : storage_.list(folder)) {
      const bool is_folder = entry.ends_with('/');
      const std::string name = fs::path(is_folder ? entry.substr(0, entry.size() - 1) : entry).filename().string();
      if (is_folder) folders.push_back(entry);
      if (is_folder)
        others.add(name.starts_with('.') ? "hidden folder" : "folder", name);
      else if (name.starts_with('.') && !is_apple_double(name))
        others.add("hidden file", name);
      else if (has_ending(name, endings_) && !is_apple_double(name))
        files.push_back(std::move(entry));
      else if (!belongs_to_others(name))
        others.add_file(name);
    }
    if (files.empty()) refuse_empty(folder, others, is_one_of_several ? std::vector<std::string>() : folders);
    require_one_kind(files, folder);
    std::vector<std::string> names;
    for (const std::string& file : files) names.push_back(fs::path(file).filename().string());
    require_one_split(folder, names);
    found_.left_out.add(others);
    for (std::string& file : files) found_.files.push_back(std::move(file));
  }

  /// Files beside a data set's that are read with them, or that this program wrote.
  static bool belongs_to_others(const std::string& name) {
    return name.ends_with(".tar.index") || name.ends_with(".ends") || name.ends_with(".idx");
  }

  [[noreturn]] void refuse_empty(const std::string& folder, const LeftOut& others,
                                 const std::vector<std::string>& folders) {
    constexpr size_t kMostFolders = 16, kMostNamed = 3;
    std::vector<std::string> below;  // where the files are instead
    for (size_t i = 0; i < std::min(kMostFolders, folders.size()) && below.size() < kMostNamed; ++i) try {
        const auto inside = storage_.list(folders[i]);
        const auto count = std::count_if(inside.begin(), inside.end(),
                                         [&](const std::string& name) { return has_ending(name, endings_); });
        if (count > 0) below.push_back(fmt::format("{} has {}", folders[i].substr(0, folders[i].size() - 1), count));
      } catch (const UserError&) {  // it is not what the message is about
      }
    const std::string what = fmt::format("the folder contains no {} files: {}", words(endings_), folder);
    if (!below.empty()) refuse_paths(fmt::format("{}; {}", what, fmt::join(below, ", ")));
    refuse_paths(others.empty() ? what : fmt::format("{}; it has {}{}", what, others.text(), reader_hint(others)));
  }

  void require_one_kind(const std::vector<std::string>& files, const std::string& path) const {
    for (const std::string_view ending : endings_) {
      const auto other =
          std::find_if(files.begin(), files.end(), [&](const std::string& file) { return !has_ending(file, ending); });
      if (other == files.begin() || other == files.end()) continue;
      refuse_paths(fmt::format(
          "two kinds of files are there; name those of one with a pattern, such as {}: {}",
          (fs::path(is_pattern(path) ? fs::path(path).parent_path() : fs::path(path)) / fmt::format("*{}", ending))
              .string(),
          first_of({files.front(), *other})));
    }
  }

  void require_different() const {
    std::unordered_set<std::string> known;
    std::vector<std::string> twice;
    RealPaths real;
    for (const std::string& file : found_.files)
      if (!known.insert(real.of(file)).second) twice.push_back(file);
    if (!twice.empty())
      refuse_paths(fmt::format("{} named twice: {}",
                               twice.size() == 1 ? "a file is" : counted(std::ssize(twice), "file") + " are",
                               first_of(twice)));
  }

  DataFiles& storage_;
  std::span<const std::string_view> endings_;
  FoundFiles found_;
};

}  // namespace

std::string first_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > first.size() ? ", ..." : "");
}

PathKind require_path(const std::string& path) {
  std::error_code reason;
  const fs::file_status status = fs::status(path, reason);
  if (path.find("://") != std::string::npos && status.type() == fs::file_type::not_found)
    refuse_paths(fmt::format("of paths with ://, only s3:// is read: {}", path));
  if (status.type() == fs::file_type::not_found)
    refuse_paths(fmt::format("the data set does not exist (relative paths start at the current folder): {}", path));
  if (reason == std::errc::too_many_symbolic_link_levels) refuse_paths(fmt::format("a link leads to itself: {}", path));
  if (reason) refuse_paths(fmt::format("cannot look at the data set: {}: {}", reason.message(), path));
  return status.type() == fs::file_type::directory ? PathKind::folder
         : status.type() == fs::file_type::regular ? PathKind::file
                                                   : PathKind::other;
}

std::vector<std::string> names_at(DataFiles& storage, const std::string& path,
                                  std::span<const std::string_view> endings) {
  switch (named(path, endings)) {
    case Named::pattern:
      return storage.matching(path);
    case Named::folder:
      return storage.list(path);
    default:
      return {path};
  }
}

bool has_ending(std::string_view name, std::string_view ending) {
  return name.size() > ending.size() &&
         std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

bool has_ending(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return has_ending(name, ending); });
}

namespace {

/// KEY=VALUE as it is typed into a shell. `value`: a path, or a list of them in YAML's brackets.
std::string typed(const std::string& key, const std::string& value) {
  const auto is_any_of = [](std::string_view text, std::string_view characters) {
    return text.find_first_of(characters) != std::string_view::npos;
  };
  const bool is_list = value.starts_with('[') && value.ends_with(']');
  const bool is_plain_yaml = is_list || !is_any_of(value, ":#{}[],&!|>%@`\"'");
  std::string word = key + "=" + (is_plain_yaml || is_remote(value) ? value : Json(value).dump());
  if (!is_any_of(word, " \t*?[]{}()<>|&;$`\\\"'!#~")) return word;
  for (size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4) word.replace(at, 1, "'\\''");
  return "'" + word + "'";
}

}  // namespace

std::string words_for(const SplitPaths& splits) {
  return typed("data.path", splits.training) + " " + typed("evaluation.path", splits.evaluation);
}

std::string reader_hint(const LeftOut& others) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kTokens = {
      {{".bin", "tokens"}, {".npy", "tokens"}}};
  std::string hint;
  const auto add = [&](std::string_view ending, std::string_view word) {
    if (others.has(fmt::format("{} file", ending)))
      hint += fmt::format("; data.dataset: {} reads *{} files", word, ending);
  };
  for (const DataFormat& format : kDataFormats)
    if (!format.ending.empty()) add(format.ending, format.word);
  for (const auto& [ending, word] : kTokens) add(ending, word);
  return hint;
}

void require_one_split(const std::string& folder, const std::vector<std::string>& files) {
  if (const auto splits = splits_in(folder, files))
    refuse_paths(fmt::format("training files are beside others{}{}; name those of each split: {}",
                             folder.empty() ? "" : " in ", folder, words_for(*splits)));
}

FoundFiles find_files(DataFiles& storage, const DataPaths& paths, std::span<const std::string_view> endings) {
  return Finder(storage, endings).find(paths);
}

}  // namespace trainopt
