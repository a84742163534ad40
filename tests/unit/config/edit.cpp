#include "config/edit.h"

#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

namespace {

std::string edited_text(const std::string& text, const std::vector<std::string>& changes,
                        const std::map<std::string, std::string>& comments = {}) {
  Recipe recipe;
  const auto result = edited(text, changes, comments, outline_of(recipe));
  if (!result) return "not edited";
  CHECK(to_yaml(load_text(*result)) == to_yaml(load_text(text, changes)));  // as if the changes were overrides
  return *result;
}

}  // namespace

TEST_CASE("a value is replaced where it stands, and nothing else changes") {
  const std::string text =
      "# mine\nname: a   # kept\n\ndata:\n  batch_size: 8  # small\n  num_workers: 0\noptimizer: {lr: 0.1, name: "
      "sgd}\n";
  CHECK(edited_text(text, {"data.batch_size=16"}) ==
        "# mine\nname: a   # kept\n\ndata:\n  batch_size: 16  # small\n  num_workers: 0\noptimizer: {lr: 0.1, name: "
        "sgd}\n");
  CHECK_THAT(edited_text(text, {"optimizer.lr=0.25", "data.num_workers=4"}),
             ContainsSubstring("optimizer: {lr: 0.25, name: sgd}") && ContainsSubstring("  num_workers: 4\n"));
  CHECK_THAT(edited_text("data: {micro_batch_size: 8}\n", {"data.batch_size=4"}),
             ContainsSubstring("{micro_batch_size: 4}"));
  CHECK_THAT(edited_text("name: 'ä b'\nseed: 1\n", {"name=c"}), ContainsSubstring("name: c\n"));
  CHECK_THAT(edited_text("everything: {widths: [1, 2], text: x}\n", {"everything.widths=[3]"}),
             ContainsSubstring("{widths: [3], text: x}"));
}

TEST_CASE("a key that is not there is added to its section, or at the end") {
  CHECK(edited_text("data:\n  batch_size: 8\n", {"data.num_workers=2"}) ==
        "data:\n  num_workers: 2\n  batch_size: 8\n");
  CHECK(edited_text("data: {batch_size: 8}\n", {"data.num_workers=2"}) == "data: {num_workers: 2, batch_size: 8}\n");
  CHECK(edited_text("data: {}\n", {"data.num_workers=2"}) == "data: {num_workers: 2}\n");
  CHECK(edited_text("seed: 1", {"optimizations.amp.dtype=float16", "optimizations.fused_kernels=true"}) ==
        "seed: 1\noptimizations:\n  fused_kernels: true\n  amp:\n    dtype: float16\n");
  CHECK(edited_text("optimizations: {amp: true}\n", {"optimizations.amp.dtype=float16"}) ==
        "optimizations: {amp: {dtype: float16}}\n");
  CHECK(edited_text("{seed: 1}\n", {"name=x"}) == "{name: x, seed: 1}\n");
}

TEST_CASE("a comment stands above a changed line") {
  CHECK(edited_text("data:\n  batch_size: 8\n", {"data.batch_size=9", "seed=2"},
                    {{"data.batch_size", "faster"}, {"seed", "why not"}}) ==
        "data:\n  # faster\n  batch_size: 9\n# why not\nseed: 2\n");
}

TEST_CASE("what spans lines is not edited") {
  Recipe recipe;
  const Outline outline = outline_of(recipe);
  CHECK_FALSE(edited("data:\n  batch_size:\n", {"data.batch_size=9"}, {}, outline));
  CHECK_FALSE(edited("everything: {widths: [1,\n 2]}\n", {"everything.widths=[9]"}, {}, outline));
  CHECK_FALSE(edited("data:\n", {"data.batch_size=9"}, {}, outline));
}
