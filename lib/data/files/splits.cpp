#include "data/files/splits.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>

#include <fnmatch.h>

namespace trainopt {
namespace {

struct Words {
  Split split;
  std::string_view words;  ///< with a space around each
};
constexpr std::array kWords = {
    Words{Split::train, " train training trainval trainset traindata "},
    Words{Split::validation, " val valid dev validation validate valset validset devset valdata holdout heldout "},
    Words{Split::test, " test testing eval evaluation testset testdata evalset "}};

std::optional<Split> split_of_word(const std::string& word) {
  if (word.empty()) return std::nullopt;
  for (const Words& each : kWords)
    if (each.words.find(" " + word + " ") != std::string_view::npos) return each.split;
  return std::nullopt;
}

size_t common_prefix(const std::string& a, const std::string& b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

/// A path that names these files among `all`: one, or a pattern; a folder if they are all those of one.
std::string path_to(const std::vector<std::string>& files, const std::vector<std::string>& all) {
  const size_t slash = files.front().find('/');
  const std::string folder = files.front().substr(0, slash == std::string::npos ? 0 : slash + 1);
  const auto is_in_folder = [&](const std::string& file) { return file.starts_with(folder); };
  if (!folder.empty() && split_of(folder) && std::all_of(files.begin(), files.end(), is_in_folder))
    return folder.substr(0, folder.size() - 1);
  if (files.size() == 1) return files.front();
  size_t head = files.front().size(), tail = head;
  for (const std::string& file : files) {
    head = std::min(head, common_prefix(files.front(), file));
    tail = std::min(tail, common_prefix({files.front().rbegin(), files.front().rend()}, {file.rbegin(), file.rend()}));
  }
  // The number that differs is replaced as a whole.
  const std::string& first = files.front();
  const auto is_digit = [&](size_t at) { return std::isdigit(static_cast<unsigned char>(first[at])) != 0; };
  while (head > 0 && is_digit(head - 1)) --head;
  tail = std::min(tail, first.size() - head);
  while (tail > 0 && is_digit(first.size() - tail)) --tail;
  std::string pattern = first.substr(0, head) + "*" + first.substr(first.size() - tail);
  const auto matches = std::count_if(all.begin(), all.end(), [&](const std::string& file) {
    return ::fnmatch(pattern.c_str(), file.c_str(), FNM_PATHNAME) == 0;
  });
  return matches == std::ssize(files) ? pattern : "";
}

/// For a pattern's folder, whose name may have a pattern's characters.
std::string escaped(const std::string& folder) {
  std::string text;
  for (const char c : folder)
    text += std::string_view("*?[").find(c) == std::string_view::npos ? std::string(1, c) : fmt::format("[{}]", c);
  return text;
}

}  // namespace

std::optional<Split> split_of(std::string_view path) {
  std::optional<Split> found;
  std::string word;
  const auto end_word = [&] {
    const auto split = split_of_word(word);
    word.clear();
    if (split && found && *split != *found) return false;
    if (split) found = split;
    return true;
  };
  for (const char c : path) {
    if (std::isalpha(static_cast<unsigned char>(c)) != 0)
      word += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    else if (!end_word())
      return std::nullopt;
  }
  return end_word() ? found : std::nullopt;
}

bool is_split_name(std::string_view name) {
  std::string letters;
  for (const char c : name)
    if (std::isdigit(static_cast<unsigned char>(c)) == 0)
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return split_of_word(letters).has_value();
}

std::optional<SplitPaths> splits_in(const std::string& folder, const std::vector<std::string>& files) {
  std::vector<std::string> training, validation, test;
  for (const std::string& file : files)
    if (const auto split = split_of(file))
      (*split == Split::train ? training : *split == Split::validation ? validation : test).push_back(file);
  if (training.empty() || (validation.empty() && test.empty())) return std::nullopt;
  const std::string before = folder.empty() || folder.ends_with('/') ? folder : folder + "/";
  const auto written = [&](const std::vector<std::string>& of_split) {
    const std::string path = path_to(of_split, files);
    if (!path.empty()) return (path.find('*') == std::string::npos ? before : escaped(before)) + path;
    constexpr size_t kMost = 20;
    std::vector<std::string> paths;
    for (size_t i = 0; i < std::min(kMost, of_split.size()); ++i) paths.push_back('"' + before + of_split[i] + '"');
    return fmt::format("[{}{}]", fmt::join(paths, ","), of_split.size() > kMost ? ",..." : "");
  };
  return SplitPaths{written(training), written(validation.empty() ? test : validation)};
}

}  // namespace trainopt
