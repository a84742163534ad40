#include "config/known_spellings.h"
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
    CHECK_THAT(error_of(text), ContainsSubstring("unknown key (did you mean " + suggestion + "?)"));
  };
  hint("learning_rate: 0.1\n", "'optimizer.lr'");
  hint("train: {batch_size: 8}\n", "'data.batch_size' or 'evaluation.batch_size'");
  hint("train: {num_workers: 8}\n", "'data.num_workers'");
  hint("batchsize: 8\n", "'data.batch_size'");
  hint("fp16: true\n", "'optimizations.amp: {dtype: float16}'");
  hint("train: {bf16: true}\n", "'optimizations.amp: {dtype: bfloat16}'");
  hint("mixed_precision: fp16\n", "'optimizations.amp'");
  hint("torch_compile: true\n", "'optimizations.fused_kernels'");
  hint("compile: true\n", "'optimizations.fused_kernels'");
  hint("optimizer: {adam_beta1: 0.9}\n", "'optimizer.betas: [0.9, 0.999]'");
  hint("max_stps: 3\n", "'train.max_steps'");
  CHECK_THAT(error_of("fp8: true\n"), ContainsSubstring("unknown key (no fp8 here)"));
  CHECK_THAT(error_of("auto_find_batch_size: true\n"),
             ContainsSubstring("unknown key (the command trainopt find batch"));
  CHECK_THAT(error_of("train: {mixup: 0.2}\n"), ContainsSubstring("unknown key (batches are not mixed"));
}

TEST_CASE("no spelling is in the tables twice") {
  std::set<std::string_view> theirs;
  for (const auto& spelling : kKnownSpellings) CHECK(theirs.insert(spelling.theirs).second);
  for (const auto& other : kUnsupportedOptions) CHECK(theirs.insert(other.theirs).second);
}
