#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("maps merge recursively; lists and scalars replace; the command line comes last") {
  const auto loaded = load_texts({"seed: 1\ndata: {size: 10, num_workers: 1}\neverything: {widths: [1, 2, 3]}\n",
                                  "data: {num_workers: 2}\neverything: {widths: [4]}\n"},
                                 {"data.num_workers=3", "--everything.flag=true"});
  CHECK(loaded.config.seed == 1);
  CHECK(loaded.config.data.size == 10);
  CHECK(loaded.config.data.num_workers == 3);
  CHECK(loaded.config.everything.widths == std::vector<int64_t>{4});
  CHECK(loaded.config.everything.flag);
  CHECK(loaded.notes.empty());
}

TEST_CASE("the later of two overrides wins, and a value may be a map") {
  CHECK(load_text("{}\n", {"seed=1", "seed=2"}).seed == 2);
  const Recipe recipe =
      load_text("{}\n", {"optimizations.amp={dtype: float16}", "optimizations.amp.init_scale=4", "data={size: 5}"});
  CHECK(recipe.optimizations.amp.on);
  CHECK(recipe.optimizations.amp.options.dtype == "float16");
  CHECK(recipe.optimizations.amp.options.init_scale == 4);
  CHECK(recipe.data.size == 5);
}

TEST_CASE("null restores the default") {
  const auto loaded =
      load_texts({"seed: 5\ndata: {size: 7, num_workers: 2}\ntrain: {epochs: 3}\noptimizer: {name: adam, lr: 1}\n"},
                 {"seed=null", "data=null", "train.epochs=~", "optimizer=null"});
  CHECK(loaded.config.seed == 0);
  CHECK(loaded.config.data.size == 10000);
  CHECK(loaded.config.data.num_workers == 0);
  CHECK_FALSE(loaded.config.train.epochs.has_value());
  CHECK(std::get<SgdConfig>(loaded.config.optimizer).lr == 0.001);
  const auto reset =
      load_texts({"data: {size: 7, num_workers: 2}\n"}, {"data.num_workers=4", "data=null", "data.size=8"});
  CHECK(reset.config.data.size == 8);
  CHECK(reset.config.data.num_workers == 0);
  const auto together =  // overrides that belong together stay together
      load_texts({"optimizer: {name: sgd}\n"}, {"optimizer.betas=[0.8,0.9]", "seed=null", "optimizer.name=adam"});
  CHECK(std::get<AdamConfig>(together.config.optimizer).betas[0] == 0.8);
  CHECK(together.notes.empty());
  CHECK(load_texts({"data: {size: 7}\n", "data: null\n", "data: {num_workers: 2}\n"}).config.data.size == 10000);
}

TEST_CASE("a boolean replaces a map of options, and a map replaces a boolean") {
  const std::string with_options = "optimizations: {amp: {dtype: float16, init_scale: 2}}\n";
  const auto amp = [](const std::vector<std::string>& texts, const Overrides& overrides = {}) {
    return load_texts(texts, overrides).config.optimizations.amp;
  };
  CHECK(amp({with_options}).on);
  CHECK(amp({with_options, "optimizations: {amp: true}\n"}).options.dtype == "bfloat16");
  CHECK_FALSE(amp({with_options}, {"optimizations.amp=false"}).on);
  CHECK(amp({"optimizations: {amp: false}\n", with_options}).on);
  CHECK(amp({with_options}, {"optimizations.amp={dtype: bfloat16}"}).options.init_scale == 2);
  CHECK(amp({with_options}, {"optimizations.amp=false", "optimizations.amp.init_scale=8"}).options.dtype == "float16");
  CHECK(amp({"optimizations: {amp: {}}\n"}).on);
  CHECK(load_text("optimizations: {fused_kernels: true}\n").optimizations.fused_kernels.on);
}

TEST_CASE("an alias stands for its key: both in one source are an error; across sources the later one wins") {
  CHECK(error_of("data:\n  num_workers: 1\n  workers: 2\n") ==
        "r.yaml:3:3: data.num_workers: given twice: 'num_workers' (r.yaml:2:3) and 'workers' are the same option");
  CHECK_THAT(error_of("data: {workers: 1, dataloader_num_workers: 2}\n"),
             ContainsSubstring("'workers' (r.yaml:1:8) and 'dataloader_num_workers'"));
  CHECK_THAT(error_of("{}\n", {"data.workers=1", "data.num_workers=2"}), ContainsSubstring("are the same option"));
  CHECK(load_text("data: {workers: 1}\n", {"data.num_workers=2"}).data.num_workers == 2);
  CHECK(load_text("data: {num_workers: 1}\n", {"data.workers=2"}).data.num_workers == 2);
  CHECK(load_text("run_name: x\noptimizations: {amp: {initial_scale: 2}}\n").optimizations.amp.options.init_scale == 2);
  CHECK(error_of("data: {workers: x}\n") == "r.yaml:1:17: data.num_workers: must be auto or a whole number: x");
}

TEST_CASE("changing a variant's name drops its options from earlier sources, with a note") {
  const auto loaded =
      load_texts({"optimizer: {lr: 0.5, momentum: 0.8}\n"}, {"optimizer.lr=0.25", "optimizer.name=adamw"});
  REQUIRE(std::holds_alternative<AdamWConfig>(loaded.config.optimizer));
  CHECK(std::get<AdamWConfig>(loaded.config.optimizer).lr == 0.25);
  REQUIRE(loaded.notes.size() == 1);
  CHECK_THAT(loaded.notes[0], ContainsSubstring("command line 'optimizer.name=adamw': adamw replaces sgd"));
  CHECK_THAT(loaded.notes[0], ContainsSubstring("optimizer.lr"));
  CHECK_THAT(loaded.notes[0], ContainsSubstring("optimizer.momentum"));

  const auto same = load_texts({"optimizer: {name: sgd, momentum: 0.8}\n"}, {"optimizer.name=sgd"});
  CHECK(std::get<SgdConfig>(same.config.optimizer).momentum == 0.8);
  CHECK(same.notes.empty());

  const auto reset = load_texts({"optimizer: {name: adam, eps: 1}\n"}, {"optimizer.name=null"});
  CHECK(std::holds_alternative<SgdConfig>(reset.config.optimizer));
  CHECK(reset.notes.size() == 1);
}
