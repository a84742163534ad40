// Programs of torch.export for recipes of tests. MODEL_FILES: the folder that make_programs.py writes them to.
#pragma once

#include "support/small_gpt2.h"

namespace trainopt::test {

inline void use_program(Recipe& recipe, const std::string& name) {
  recipe.model = {.name = ModelKind::exported, .path = std::string(MODEL_FILES) + "/" + name + ".pt2"};
}

/// Images of 16×16.
inline void use_images_of_16(Recipe& recipe) {
  recipe.data.transforms = {ResizeConfig{.shorter_side = 16}, RandomHorizontalFlipConfig{}, NormalizeConfig{}};
}

/// Stem, residual block and head of a ResNet.
inline void use_residual(Recipe& recipe) {
  use_program(recipe, "residual");
  use_images_of_16(recipe);
}

/// Convolutions with biases, then attention and GELU that are written out.
inline void use_mixed(Recipe& recipe) {
  use_program(recipe, "mixed");
  use_images_of_16(recipe);
}

/// Texts of eight tokens below 29.
inline void use_program_of_text(Recipe& recipe, const std::string& name) {
  use_gpt2(recipe);
  use_program(recipe, name);
}

/// A transformer's block; the head is its embedding.
inline void use_text(Recipe& recipe) { use_program_of_text(recipe, "text"); }

/// Causal attention, GELU and transposed linear layers that are written out.
inline void use_written(Recipe& recipe) { use_program_of_text(recipe, "written"); }

}  // namespace trainopt::test
