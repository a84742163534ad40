#include "config/leads.h"
#include "config/suggest.h"
#include "support.h"

#include <set>

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("edit distance counts swaps as one edit and ignores case and hyphens") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("form", "from") == 1);
  CHECK(edit_distance("Batch-Size", "batch_size") == 0);
  CHECK(edit_distance("abc", "abc") == 0);
}

TEST_CASE("C3: an unknown key gets a suggestion from its own level") {
  CHECK(error_of("optimizer:\n  lerning_rate: 1\n") ==
        "r.yaml:2:3: optimizer.lerning_rate: unknown key (did you mean 'learning_rate'?)");
  CHECK(error_of("dta: {}\n") == "r.yaml:1:1: dta: unknown key (did you mean 'data'?)");
  CHECK(error_of("data: {batch-size: 1}\n") == "r.yaml:1:8: data.batch-size: unknown key (did you mean 'batch_size'?)");
  CHECK(error_of("optimizations: {amp: {dtyp: x}}\n") ==
        "r.yaml:1:23: optimizations.amp.dtyp: unknown key (did you mean 'dtype'?)");
  CHECK(error_of("qqqqqq: 1\n") == "r.yaml:1:1: qqqqqq: unknown key");
  CHECK_THAT(error_of("data: {size:5}\n"), ContainsSubstring("a space must follow the colon"));
}

TEST_CASE("a prefix is completed unless another name is one letter off") {
  const std::vector<std::string_view> keys{"data.path", "data.cache", "data.batch_size", "data.batch_size_of_all",
                                           "data.bitch"};
  CHECK(closest_match("data.batch_", keys) == "data.batch_size");
  CHECK(closest_match("data.Batch-s", keys) == "data.batch_size");
  CHECK(closest_match("data.batch", keys) == "data.bitch");
  CHECK(closest_match("da", keys).empty());
  CHECK(error_of("data: {shuf: true}\n") == "r.yaml:1:8: data.shuf: unknown key (did you mean 'shuffle'?)");
}

TEST_CASE("C3: a key of another section or another tool gets a suggestion with the full path") {
  const auto hint = [](const std::string& text, const std::string& suggestion) {
    CHECK_THAT(error_of(text), ContainsSubstring("unknown key (did you mean " + suggestion + "?"));
  };
  hint("learning_rate: 0.1\n", "'optimizer.lr'");
  hint("train: {batch_size: 8}\n", "'data.batch_size' or 'evaluation.batch_size'");
  hint("train: {num_workers: 8}\n", "'data.num_workers'");
  hint("batchsize: 8\n", "'data.batch_size'");
  hint("fp16: true\n", "'optimizations.amp: {dtype: float16}'");
  hint("in_memory: true\n", "'data.cache: memory'");  // no guess from letters, such as pin_memory
  hint("train: {bf16: true}\n", "'optimizations.amp: {dtype: bfloat16}'");
  hint("mixed_precision: fp16\n", "'optimizations.amp'");
  hint("torch_compile: true\n", "'optimizations.fused_kernels'");
  hint("compile: true\n", "'optimizations.fused_kernels'");
  hint("optimizer: {adam_beta1: 0.9}\n", "'optimizer.betas'");
  hint("max_stps: 3\n", "'train.max_steps'");
  CHECK_THAT(error_of("auto_find_batch_size: true\n"),
             ContainsSubstring("unknown key (no equivalent: the command trainopt find batch"));
  CHECK_THAT(error_of("train: {mixup: 0.2}\n"), ContainsSubstring("unknown key (no equivalent: batches are not mixed"));
}

TEST_CASE("no word is in the table of leads twice, and every word leads somewhere") {
  std::set<std::string> theirs;
  for (const Lead& lead : all_leads()) {
    INFO(lead.theirs);
    CHECK(theirs.insert(lead.theirs).second);
    const bool is_value = lead.theirs.find('=') != std::string::npos;
    CHECK((is_value ? lead.paths.empty() : lead.theirs == folded(lead.theirs)));
    CHECK((!lead.paths.empty() || !lead.value.empty() || !lead.note.empty()));
  }
  CHECK(theirs.size() > 3000);
}

TEST_CASE("a word of one section goes before the word alone, and that before a beginning") {
  CHECK(lead_of_key("checkpoint", "interval")->paths == std::vector<std::string>{"checkpoint.every_n_steps"});
  CHECK(lead_of_key("a.checkpoint", "Interval") == lead_of_key("checkpoint", "interval"));
  CHECK(lead_of_key("", "wandb_anything")->theirs == "wandb_*");
  CHECK(lead_of_key("", "never heard of") == nullptr);
  CHECK(lead_of_value("train.max_steps", "-1")->value == "null");
  CHECK(lead_of_value("train.max_steps", "7") == nullptr);
}

TEST_CASE("values of other trainers lead to what to write") {
  CHECK_THAT(error_of("train: {max_steps: -1}\n"), ContainsSubstring("-1 (did you mean 'null'?)"));
  CHECK_THAT(error_of("optimizations: {amp: bf16}\n"), ContainsSubstring("bf16 (did you mean 'true'?)"));
  CHECK_THAT(error_of("optimizer: {momentum: None}\n"),
             ContainsSubstring("None (did you mean 'null'? the default; without momentum: 0)"));
  CHECK_THAT(error_of("everything: {maybe: None}\n"), ContainsSubstring("None (did you mean 'null'?)"));
  CHECK_THAT(error_of("everything: {maybe: -1}\n"), ContainsSubstring("-1 (did you mean 'null'?)"));
  CHECK_THAT(error_of("scheduler: linear_with_warmup\n"), ContainsSubstring("'scheduler.name: linear_with_warmup'"));
  // A later override of a key in the section would hide it.
  CHECK_THAT(error_of("{}", {"optimizer=adam", "optimizer.lr=0.1"}),
             ContainsSubstring("must be a map of options: adam"));
}

TEST_CASE("the keys of an unknown section lead on, too, unless they need only move with it") {
  const auto lines = errors_of({"trainer: {max_steps: 3, precision: 16, zzz: 1}\n"});
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[0], ContainsSubstring("trainer: unknown key (did you mean 'train'?)"));
  CHECK_THAT(lines[1], ContainsSubstring("trainer.precision: unknown key (did you mean 'optimizations.amp"));
  CHECK(errors_of({"qqqqqq: {zzz: 1}\n"}).size() == 2);
}

TEST_CASE("a whole recipe of another trainer gets a line that says whose it seems to be") {
  const auto lines = errors_of({"sched: cosine\nreprob: 0.25\nwarmup_lr: 0.1\n"});
  REQUIRE(lines.size() == 4);
  CHECK_THAT(lines[0], ContainsSubstring("r.yaml:1:1: this looks like a recipe of timm;") &&
                           ContainsSubstring("start from configs/image_folder.yaml"));
  CHECK(errors_of({"reprob: 0.25\n"}).size() == 1);
}
