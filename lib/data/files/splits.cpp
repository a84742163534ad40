#include "data/files/splits.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include <fnmatch.h>

namespace trainopt {
namespace {

constexpr std::array kWords = {
    std::pair{std::string_view("train"), Split::train},    std::pair{std::string_view("training"), Split::train},
    std::pair{std::string_view("val"), Split::validation}, std::pair{std::string_view("valid"), Split::validation},
    std::pair{std::string_view("dev"), Split::validation}, std::pair{std::string_view("validation"), Split::validation},
    std::pair{std::string_view("test"), Split::test},      std::pair{std::string_view("testing"), Split::test},
    std::pair{std::string_view("eval"), Split::test},      std::pair{std::string_view("evaluation"), Split::test}};

std::optional<Split> split_of_word(const std::string& word) {
  const auto* found = std::find_if(kWords.begin(), kWords.end(), [&](const auto& each) { return each.first == word; });
  return found == kWords.end() ? std::nullopt : std::optional(found->second);
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
    return path.empty() ? fmt::format("[{0}{1}, ...]", before, of_split.front()) : before + path;
  };
  return SplitPaths{written(training), written(validation.empty() ? test : validation)};
}

}  // namespace trainopt
