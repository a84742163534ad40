// What people of other trainers write: each word leads on, and whole recipes of theirs do.
#include "config/leads.h"

#include "base/files/files.h"
#include "config/tree.h"
#include "recipe/recipe_io.h"
#include "support/catch.h"

#include <set>

using namespace trainopt;

namespace leads_tests {

std::vector<Problem> problems_of(const Sources& sources) {
  try {
    load_recipe(sources, std::nullopt);
  } catch (const RecipeErrors& errors) {
    return errors.problems();
  }
  return {};
}

/// What is said about this override.
std::string answer_to(const std::string& override) {
  std::string all;
  for (const Problem& problem : problems_of({.files = {}, .overrides = {override}})) all += problem.message + "\n";
  return all;
}

struct Row {
  const char *written, *leads_to;
};

TEST_CASE("keys and sections of other trainers lead to those here, or say that there are none") {
  const std::vector<Row> rows{
      {"logging.folder=x", "'output_dir"},
      {"checkpoint.folder=x", "run_dir"},
      {"checkpoint.interval=3", "'checkpoint.every_n_steps'"},
      {"lr_scheduler={name: cosine}", "'scheduler'"},
      {"metrics=[acc]", "'evaluation'"},
      {"reprob=0.25", "no equivalent: there is no random erasing"},
      {"loss=x", "the model's task decides"},
      {"max_samples=7", "'data.size' or 'train.max_steps'"},
      {"dist={}", "'parallel'"},
      {"train_loader={}", "'data'"},
      {"parallelism={}", "'parallel'"},
      {"train_dataloader={}", "'data'"},
      {"fsdp_config={}", "'parallel'"},
      {"optimizer_in_bwd=true", "no equivalent"},
      {"opt_betas=[0.9, 0.99]", "'optimizer.betas'"},
      {"warmup_epochs=5", "'scheduler.warmup_steps'"},
      {"max_seq_len=7", "'model.context'"},
      {"use_cpu=true", "'device"},
      {"bce_loss=true", "no equivalent"},
      {"global_train_batch_size=7", "'data.global_batch_size'"},
      {"keep_latest_k=7", "'checkpoint.keep_last'"},
      {"d_model=7", "'model.width'"},
      {"model_name_or_path=gpt2", "'model.name' or 'model.weights'"},
      {"load_best_model_at_end=true", "no equivalent"},
      {"init_from=gpt2", "'model.weights'"},
      {"load_from=x", "'model.weights'"},
      {"global_seed=7", "'seed'"},
      {"decay_lr=true", "'scheduler.name"},
      {"group_by_length=true", "'data.padding: bucket'"},
      {"data_seed=7", "'seed'"},
      {"opt_eps=1", "'optimizer.eps'"},
      {"ckpt_path=x", "'checkpoint.resume'"},
      {"in_memory=true", "'data.cache: memory'"},
      {"save_strategy=steps", "'checkpoint.every_n_steps'"},
      {"eval_iters=200", "no equivalent"},
      {"wandb_log_anything=true", "logging.sinks"},
  };
  for (const auto& [written, leads_to] : rows) {
    INFO(written);
    CHECK_THAT(answer_to(written), ContainsSubstring("unknown key (") && ContainsSubstring(leads_to));
  }
}

TEST_CASE("values of other trainers lead to what to write") {
  const std::vector<Row> rows{
      {"optimizations.precision=bf16-mixed", "'optimizations.amp: true'"},
      {"optimizer.momentum=None", "(did you mean 'null'? the default"},
      {"optimizations.amp=bf16", "'true'"},
      {"train.max_steps=-1", "'null'"},
      {"scheduler=cosine", "'scheduler.name: cosine'"},
      {"optimizer=adamw", "'optimizer.name: adamw'"},
      {"train.max_grad_norm=0", "'null'"},
      {"parallel.sharding_strategy=fsdp", "'zero3'"},
      {"optimizer.name=adamw_torch", "'adamw'"},
      {"logging.sinks=[wandb]", "no equivalent"},
      {"checkpoint.resume=latest", "must be none, auto or a path: latest (did you mean 'auto'?"},
      {"evaluation.every_n_steps=None", "'null'"},
  };
  for (const auto& [written, leads_to] : rows) {
    INFO(written);
    CHECK_THAT(answer_to(written), ContainsSubstring(leads_to));
  }
  CHECK(load_recipe({.files = {}, .overrides = {"checkpoint.keep_last=null"}}).recipe.checkpoint.keep_last ==
        std::nullopt);
}

TEST_CASE("a mistyped key of ours is not taken for another trainer's word") {
  const std::vector<Row> rows{
      {"data.paths=x", "'path'"},           {"model.head=3", "'heads'"},
      {"model.layer=3", "'layers'"},        {"optimizers.lr=1", "'optimizer'"},
      {"dataset=cifar10", "data.dataset"},  {"precision=x", "'optimizations.precision'"},
      {"data.num_worker=2", "num_workers"}, {"train.max_step=2", "max_steps"},
  };
  for (const auto& [written, leads_to] : rows) {
    INFO(written);
    CHECK_THAT(answer_to(written), ContainsSubstring(leads_to));
  }
  for (const char* other : {"model.name=resnet152", "model.name=resnet26", "data.dataset=cifar100"}) {
    INFO(other);
    CHECK_THAT(answer_to(other), !ContainsSubstring("did you mean 'resnet18'") && !ContainsSubstring("'cifar10'?"));
  }
}

TEST_CASE("a recipe of ours with one mistake is not taken for another trainer's") {
  for (const char* override : {"scheduler.warmup=3", "model.layerz=3", "optimizer={params: 3}", "wandb=1"})
    for (const Problem& problem : problems_of({.files = {}, .overrides = {override}}))
      CHECK_THAT(problem.message, !ContainsSubstring("looks like a recipe of"));
}

/// The full path of each key in a map.
void collect_paths(const Value& value, const std::string& path, std::vector<std::string>& all) {
  for (size_t i = 0; i < value.items.size(); ++i) {
    const std::string inside = value.is_map() ? join_path(path, value.keys[i].name) : path;
    if (value.is_map()) all.push_back(inside);
    collect_paths(value.items[i], inside, all);
  }
}

TEST_CASE("of whole recipes of other trainers 95 of 100 keys lead on, and the first line names the trainer") {
  const auto [file, tool] = GENERATE(table<const char*, const char*>({{"accelerate", "Accelerate"},
                                                                      {"composer", "Composer"},
                                                                      {"deepspeed", "DeepSpeed"},
                                                                      {"ffcv", "FFCV"},
                                                                      {"huggingface", "Hugging Face's Trainer"},
                                                                      {"lightning", "Lightning"},
                                                                      {"llamafactory", "LLaMA-Factory"},
                                                                      {"mmengine", "MMEngine"},
                                                                      {"nanogpt", "nanoGPT"},
                                                                      {"timm", "timm"},
                                                                      {"torchtitan", "torchtitan"},
                                                                      {"torchtune", "torchtune"}}));
  const auto path = std::filesystem::path(OTHER_TOOLS) / fmt::format("{}.yaml", file);
  INFO(file);
  const std::vector<Problem> problems = problems_of({.files = {path}, .overrides = {}});
  REQUIRE_FALSE(problems.empty());
  CHECK_THAT(problems.front().message, ContainsSubstring(fmt::format("looks like a recipe of {};", tool)));
  std::vector<std::string> keys;
  collect_paths(parse_file(path), "", keys);
  int64_t lost = 0;
  for (const Problem& problem : problems)
    if (problem.message == "unknown key") {
      UNSCOPED_INFO("leads nowhere: " << problem.key);
      ++lost;
    }
  CHECK(std::ssize(keys) > 25);
  CHECK(lost * 20 <= std::ssize(keys));
}

}  // namespace leads_tests
