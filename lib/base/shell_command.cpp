#include "base/shell_command.h"

#include <algorithm>
#include <string_view>

namespace trainopt {

std::string shell_quoted(const std::string& word) {
  constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./=,:@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

std::string shell_command(const std::vector<std::string>& words, const std::vector<std::string>& without,
                          const std::vector<std::string>& more, int64_t ranks) {
  std::string command = ranks > 1 ? "trainopt launch -n " + std::to_string(ranks) + " --" : "trainopt";
  const auto is_left_out = [&](const std::string& word) {
    return std::find(without.begin(), without.end(), word.substr(0, word.find('='))) != without.end();
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_left_out(words[i]))
      command += " " + shell_quoted(words[i]);
    else if (words[i].find('=') == std::string::npos)
      ++i;  // its value
  }
  for (const std::string& word : more) command += " " + shell_quoted(word);
  return command;
}

}  // namespace trainopt
