// Recipes: an accepted recipe must be equal after writing and reading it again. Lines of a single % separate the first
// file, a second file and overrides.
#include "config/load.h"
#include "data/transform_config.h"
#include "recipe/recipe.h"
#include "support.h"

#include <memory>
#include <vector>

using namespace trainopt;

namespace {

std::vector<std::string_view> parts_of(std::string_view text) {
  constexpr std::string_view kSeparator = "\n%\n";
  std::vector<std::string_view> parts;
  for (size_t at; (at = text.find(kSeparator)) != std::string_view::npos; text.remove_prefix(at + kSeparator.size()))
    parts.push_back(text.substr(0, at));
  parts.push_back(text);
  return parts;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto parts = parts_of(as_text(data, size));
  std::vector<std::unique_ptr<MemoryFile>> files;
  Sources sources;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i < 2)
      sources.files.push_back(files.emplace_back(std::make_unique<MemoryFile>(parts[i]))->path());
    else
      sources.overrides.emplace_back(parts[i]);
  }
  std::string written;
  try {
    written = to_yaml(load<Recipe>(sources).config);
  } catch (const RecipeErrors& errors) {
    FUZZ_CHECK(!errors.problems().empty() && *errors.what() != '\0');
    return 0;
  }
  const MemoryFile again(written);
  FUZZ_CHECK(to_yaml(load<Recipe>({{again.path()}, {}}).config) == written);
  return 0;
}
