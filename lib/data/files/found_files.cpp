#include "data/files/found_files.h"

#include "base/units.h"
#include "data/files/splits.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <unordered_set>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse_paths(const std::string& sentence) { throw UserError(sentence, ExitCode::data); }

bool exists(const std::string& path) {
  std::error_code unreadable;  // reading it will say why
  return is_remote(path) || fs::exists(fs::symlink_status(path, unreadable));
}

/// "a.bin, b.bin, c.bin, ...".
std::string first_of(const std::vector<std::string>& names) {
  const std::vector<std::string> first(names.begin(), names.begin() + std::min<std::ptrdiff_t>(3, std::ssize(names)));
  return fmt::format("{}{}", fmt::join(first, ", "), names.size() > first.size() ? ", ..." : "");
}

/// "*.bin or *.npy".
std::string words(std::span<const std::string_view> endings) { return fmt::format("*{}", fmt::join(endings, " or *")); }

/// {0000..0146}: all numbers, as wide as the first; {a,b}: each text. Null if `inside` is neither.
std::optional<std::vector<std::string>> alternatives(const std::string& inside) {
  std::vector<std::string> all;
  if (const size_t dots = inside.find(".."); dots != std::string::npos) {
    int64_t first = 0, last = 0;
    const auto is_number = [](std::string_view text, int64_t& number) {
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
      return error == std::errc() && end == text.data() + text.size() && number >= 0;
    };
    constexpr int64_t kMost = 10'000'000;
    if (!is_number(inside.substr(0, dots), first) || !is_number(inside.substr(dots + 2), last) || last < first ||
        last - first >= kMost)
      return std::nullopt;
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

/// The paths that one with braces stands for; itself without any, or if it is a file's name.
std::vector<std::string> without_braces(const std::string& path) {
  const size_t open = path.find('{'), close = path.find('}', open);
  std::error_code unreadable;
  if (close == std::string::npos || (!is_remote(path) && fs::exists(path, unreadable))) return {path};
  const auto each = alternatives(path.substr(open + 1, close - open - 1));
  if (!each) return {path};
  std::vector<std::string> all;
  for (const std::string& one : *each)
    for (std::string& rest : without_braces(path.substr(0, open) + one + path.substr(close + 1)))
      all.push_back(std::move(rest));
  return all;
}

class Finder {
 public:
  Finder(DataFiles& storage, std::span<const std::string_view> endings) : storage_(storage), endings_(endings) {}

  FoundFiles find(const DataPaths& paths) {
    for (const std::string& path : paths.all) {
      const auto expanded = without_braces(path);
      require_all_exist(expanded);
      for (const std::string& each : expanded) add(each);
    }
    require_different();
    return std::move(found_);
  }

 private:
  static void require_all_exist(const std::vector<std::string>& paths) {
    std::vector<std::string> missing;
    for (const std::string& path : paths)
      if (!exists(path) && !is_pattern(path)) missing.push_back(path);
    if (missing.empty()) return;
    if (paths.size() == 1)
      refuse_paths(
          fmt::format("the data set does not exist (relative paths start at the current folder): {}", missing[0]));
    refuse_paths(fmt::format("{} of {} do not exist: {}", missing.size(), counted(std::ssize(paths), "file"),
                             first_of(missing)));
  }

  void add(const std::string& path) {
    if (is_pattern(path) && (is_remote(path) || !exists(path))) {
      add_matches(path);
    } else if (is_remote(path) ? !has_ending(path, endings_) : fs::is_directory(path)) {
      add_folder(path, false);
    } else {
      found_.files.push_back(path);
    }
  }

  void add_matches(const std::string& pattern) {
    std::vector<std::string> files, folders, others;
    for (std::string& match : storage_.matching(pattern))
      (match.ends_with('/') ? folders : has_ending(match, endings_) ? files : others).push_back(std::move(match));
    if (files.empty() && folders.empty() && others.empty()) {
      if (!is_remote(pattern)) refuse_paths(fmt::format("nothing fits the pattern: {}", pattern));
      return found_.files.push_back(pattern);  // an object may have such a name
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
    for (std::string& entry : storage_.list(folder)) {
      const bool is_folder = entry.ends_with('/');
      const std::string name = fs::path(is_folder ? entry.substr(0, entry.size() - 1) : entry).filename().string();
      if (is_folder)
        others.add(name.starts_with('.') ? "hidden folder" : "folder", name);
      else if (has_ending(name, endings_) && !is_apple_double(name))
        files.push_back(std::move(entry));
      else if (!belongs_to_others(name))
        others.add_file(name);
    }
    if (files.empty()) refuse_empty(folder, others, is_one_of_several);
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

  [[noreturn]] void refuse_empty(const std::string& folder, const LeftOut& others, bool is_one_of_several) {
    std::vector<std::string> below;  // where the files are instead
    for (const std::string& entry : is_one_of_several ? std::vector<std::string>() : storage_.list(folder)) {
      if (!entry.ends_with('/') || below.size() == 3) continue;
      const auto inside = storage_.list(entry);
      const auto count = std::count_if(inside.begin(), inside.end(),
                                       [&](const std::string& name) { return has_ending(name, endings_); });
      if (count > 0) below.push_back(fmt::format("{} has {}", entry.substr(0, entry.size() - 1), count));
    }
    const std::string what = fmt::format("the folder contains no {} files: {}", words(endings_), folder);
    if (!below.empty()) refuse_paths(fmt::format("{}; {}", what, fmt::join(below, ", ")));
    refuse_paths(others.empty() ? what : fmt::format("{}; it has {}", what, others.text()));
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
    if (found_.files.size() < 2) return;
    std::unordered_set<std::string> known;
    std::vector<std::string> twice;
    for (const std::string& file : found_.files) {
      std::error_code unreadable;
      const std::string real = is_remote(file) ? file : fs::weakly_canonical(file, unreadable).string();
      if (!known.insert(unreadable ? file : real).second) twice.push_back(file);
    }
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

bool has_ending(std::string_view name, std::string_view ending) {
  return name.size() > ending.size() &&
         std::equal(ending.begin(), ending.end(), name.end() - std::ssize(ending),
                    [](char a, char b) { return a == static_cast<char>(std::tolower(static_cast<unsigned char>(b))); });
}

bool has_ending(std::string_view name, std::span<const std::string_view> endings) {
  return std::any_of(endings.begin(), endings.end(), [&](std::string_view ending) { return has_ending(name, ending); });
}

void require_one_split(const std::string& folder, const std::vector<std::string>& files) {
  const auto splits = splits_in(folder, files);
  if (!splits) return;
  refuse_paths(
      fmt::format("training files are beside others{}{}; name those of each split: data.path={} evaluation.path={}",
                  folder.empty() ? "" : " in ", folder, splits->training, splits->evaluation));
}

FoundFiles find_files(DataFiles& storage, const DataPaths& paths, std::span<const std::string_view> endings) {
  return Finder(storage, endings).find(paths);
}

}  // namespace trainopt
