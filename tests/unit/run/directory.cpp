// Which run directory a recipe gets.
#include "run/directory.h"

#include "base/files/files.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace trainopt;

namespace {

Recipe recipe_in(const TemporaryFolder& folder) {
  Recipe recipe;
  recipe.name = "job";
  recipe.output_dir = folder.path().string();
  return recipe;
}

/// A folder that a run has written to, with a checkpoint after its fifth step.
std::filesystem::path used_directory(const TemporaryFolder& folder) {
  const auto run = folder.path() / "run";
  create_folders(run / "checkpoints/step-00000005");
  write_file(run / "recipe.yaml", "name: job\n");
  return run;
}

}  // namespace

TEST_CASE("two runs of one second get folders of their own") {
  const TemporaryFolder folder;
  const auto first = make_run_directory(recipe_in(folder)), second = make_run_directory(recipe_in(folder));
  CHECK(first != second);
  CHECK_THAT(first.filename().string(), ContainsSubstring("job-"));
  CHECK(std::filesystem::is_directory(second));
}

TEST_CASE("a directory that was written to is not taken for a new run") {
  const TemporaryFolder folder;
  Recipe recipe = recipe_in(folder);
  recipe.run_dir = used_directory(folder).string();
  CHECK_THROWS_WITH(choose_run_directory(recipe, false), ContainsSubstring("exists and is not empty"));
  CHECK_NOTHROW(require_unused(folder.path() / "new"));
}

TEST_CASE("a lock, a log and temporary files of a run that never started do not make a directory used") {
  const TemporaryFolder folder;
  for (const char* name : {".lock", "run.log", "plan.json.tmp"}) write_file(folder.path() / name, "");
  CHECK_NOTHROW(require_unused(folder.path()));
  write_file(folder.path() / "metrics.jsonl", "");
  CHECK_THROWS_AS(require_unused(folder.path()), UserError);
}

TEST_CASE("resume: auto goes on in place, and begins where nothing is") {
  const TemporaryFolder folder;
  Recipe recipe = recipe_in(folder);
  recipe.checkpoint.resume = "auto";
  recipe.run_dir = used_directory(folder).string();
  const RunFolder again = choose_run_directory(recipe, false);
  CHECK(again.continues);
  CHECK(again.own);
  CHECK_FALSE(again.from);
  recipe.run_dir = (folder.path() / "fresh").string();
  CHECK_FALSE(choose_run_directory(recipe, false).continues);
}

TEST_CASE("a checkpoint of another run begins a new directory, and one's own goes on in place") {
  const TemporaryFolder folder;
  Recipe recipe = recipe_in(folder);
  const auto checkpoint = used_directory(folder) / "checkpoints/step-00000005";
  recipe.checkpoint.resume = checkpoint.string();
  recipe.run_dir = (folder.path() / "other").string();
  const RunFolder other = choose_run_directory(recipe, false);
  CHECK_FALSE(other.continues);
  recipe.run_dir = (folder.path() / "run").string();
  const RunFolder own = choose_run_directory(recipe, false);
  CHECK(own.continues);
  CHECK(own.own);
  recipe.checkpoint.resume = (folder.path() / "none").string();
  CHECK_THROWS_WITH(choose_run_directory(recipe, false), ContainsSubstring("no such checkpoint"));
}

TEST_CASE("a checkpoint belongs to its run, whatever links lead to either") {
  const TemporaryFolder folder;
  const auto run = used_directory(folder);
  std::filesystem::create_directory_symlink(run, folder.path() / "link");
  CHECK(is_checkpoint_of(folder.path() / "link", run / "checkpoints/step-00000005"));
  CHECK(is_checkpoint_of(run, folder.path() / "link/checkpoints/step-00000005"));
  CHECK_FALSE(is_checkpoint_of(folder.path(), run / "checkpoints/step-00000005"));
}

TEST_CASE("a file in the place of the run directory or of a parent is named") {
  const TemporaryFolder folder;
  write_file(folder.path() / "file", "");
  Recipe recipe = recipe_in(folder);
  recipe.run_dir = (folder.path() / "file/run").string();
  CHECK_THROWS_WITH(choose_run_directory(recipe, false), ContainsSubstring("file is not a folder"));
}
