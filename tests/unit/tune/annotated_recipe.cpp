// Comments at the changed lines of a recipe.
#include "tune/tuner.h"

#include "recipe/recipe_io.h"

#include <catch2/catch.hpp>

namespace trainopt {

TEST_CASE("a changed line gets its comment, and no other") {
  const std::string yaml =
      "name: x\ndata:\n  num_workers: 2\n  transforms:\n    - {resize: 8}\n    - crop: {size: 8}\n"
      "optimizations:\n  amp:\n    dtype: bfloat16\n  num_workers: 3\n";
  const std::string text = annotated(yaml, {{"data.num_workers", "threads: +31 %"}, {"optimizations.amp", "16 bits"}});
  CHECK(text ==
        "name: x\ndata:\n  num_workers: 2  # threads: +31 %\n  transforms:\n    - {resize: 8}\n    - crop: {size: 8}\n"
        "optimizations:\n  amp:  # 16 bits\n    dtype: bfloat16\n  num_workers: 3\n");
}

TEST_CASE("every option of a resolved recipe can be annotated, and the recipe stays the same") {
  Recipe recipe;
  recipe.optimizations.amp.on = true;
  recipe.optimizations.fused_kernels = true;
  const std::string yaml = recipe_yaml(recipe);
  const std::string text = annotated(yaml, {{"optimizations.amp", "a"},
                                            {"optimizations.fused_kernels", "b"},
                                            {"data.batch_size", "c"},
                                            {"train.gradient_accumulation_steps", "d"},
                                            {"evaluation.every_n_steps", "e"},
                                            {"parallel.bucket_cap_mb", "f"}});
  for (const char* comment : {"# a", "# b", "# c", "# d", "# e", "# f"}) {
    INFO(comment);
    CHECK(text.find(comment) != std::string::npos);
  }
}

}  // namespace trainopt
