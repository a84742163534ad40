#include "tuning/annotated_recipe.h"

#include <sstream>
#include <vector>

namespace trainopt {

std::string annotated(const std::string& yaml, const std::map<std::string, std::string>& comments) {
  std::istringstream lines(yaml);
  std::string text;
  std::vector<std::string> path;  // of the line, one name for each two spaces of indentation
  for (std::string line; std::getline(lines, line);) {
    const size_t indent = line.find_first_not_of(' '), colon = line.find(':');
    if (indent == line.npos || line[indent] == '-' || colon == line.npos) {
      text += line + "\n";
      continue;
    }
    path.resize(indent / 2);
    path.push_back(line.substr(indent, colon - indent));
    std::string key;
    for (const std::string& name : path) key += (key.empty() ? "" : ".") + name;
    const auto comment = comments.find(key);
    text += line + (comment == comments.end() ? "" : "  # " + comment->second) + "\n";
  }
  return text;
}

}  // namespace trainopt
