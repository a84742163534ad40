// A small GPT-2 and text for it.
#pragma once

#include "recipe/recipe.h"
#include "support/temporary_folder.h"

#include <cstdint>
#include <fstream>

namespace trainopt::test {

/// A file of 16-bit tokens below 29, created once. A token depends on the one before, so that there is something to
/// learn.
inline std::string small_token_file() {
  static const TemporaryFolder folder;
  static const std::string path = [] {
    std::ofstream file(folder / "tokens.bin", std::ios::binary);
    uint32_t state = 1;
    for (int i = 0; i < 1200; ++i) {
      state = state * 1664525 + 1013904223;
      const uint16_t token = static_cast<uint16_t>((state >> 28) % 3 + 9 * (i % 3) + i / 600);
      file.write(reinterpret_cast<const char*>(&token), sizeof token);
    }
    return (folder / "tokens.bin").string();
  }();
  return path;
}

/// 74 windows of sixteen tokens.
inline void use_gpt2(Recipe& recipe) {
  recipe.model = {.name = ModelKind::gpt2, .layers = 2, .heads = 2, .width = 24, .context = 16, .vocabulary = 29};
  recipe.data.dataset = DatasetKind::tokens;
  recipe.data.path = small_token_file();
  recipe.data.size = DataConfig().size;
  recipe.data.transforms.clear();
}

}  // namespace trainopt::test
