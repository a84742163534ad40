#include "support.h"

#include <cmath>

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("a written recipe reads back to an equal one, whatever the values") {
  Recipe recipe;
  recipe.name = "needs: quotes # and \"these\"\n\ttoo \\ \x01 é";
  recipe.seed = 9007199254740993;
  Everything& e = recipe.everything;
  e.flag = true;
  e.count = 99;
  e.share = 1.0 / 3;
  e.text = "true";
  e.size = Bytes{1537};
  e.time = Duration{0.0001234567};
  e.mode = Mode::on;
  e.pair = {1e-8, 123456789.125};
  e.maybe = 0;
  e.maybe_text = "";
  e.widths = {};
  e.words = {"",        "null", "12", "yes", "plain", "/a/b.c", "a, b", "~", "-", "0x10", "cuda:0",
             " space ", "[x]",  "{",  "*",   "&a",    "!t",     "%",    "@", "`", "'",    "\\n"};
  e.modes = {Mode::off, Mode::on, Mode::automatic};
  recipe.optimizer = AdamWConfig{{.lr = 3e-4, .weight_decay = 0.05, .eps = 1e-10, .betas = {0.8, 0.95}}};
  recipe.optimizations.amp = {true, {"float16", 0.1}};
  recipe.optimizations.fused_kernels.on = true;
  recipe.evaluation.transforms.emplace();

  const std::string text = to_yaml(recipe);
  INFO(text);
  Recipe back = load_text(text);
  CHECK(to_yaml(back) == text);
  CHECK(back.name == recipe.name);
  CHECK(back.seed == recipe.seed);
  const Everything& b = back.everything;
  CHECK(std::tuple(b.flag, b.count, b.share, b.text, b.size, b.time, b.mode) ==
        std::tuple(e.flag, e.count, e.share, e.text, e.size, e.time, e.mode));
  CHECK(std::tuple(b.pair, b.maybe, b.maybe_text, b.widths, b.words, b.modes) ==
        std::tuple(e.pair, e.maybe, e.maybe_text, e.widths, e.words, e.modes));
  const auto& adamw = std::get<AdamWConfig>(back.optimizer);
  CHECK(std::tuple(adamw.lr, adamw.weight_decay, adamw.eps, adamw.betas) ==
        std::tuple(3e-4, 0.05, 1e-10, std::array{0.8, 0.95}));
  CHECK(back.optimizations.amp.on);
  CHECK(back.optimizations.amp.options.dtype == "float16");
  CHECK(back.optimizations.amp.options.init_scale == 0.1);
  CHECK(back.optimizations.fused_kernels.on);
  REQUIRE(back.evaluation.transforms.has_value());
  CHECK(back.evaluation.transforms->empty());
}

TEST_CASE("durations of any length read back exactly") {
  for (const double seconds : {1e-9, 0.1, 0.3, 1.0 / 3, 90.0, 5400.0, 86400.0 * 400, 1e9 + 0.1}) {
    Recipe recipe;
    recipe.everything.time = Duration{seconds};
    CHECK(load_text(to_yaml(recipe)).everything.time.seconds == seconds);
  }
}

TEST_CASE("a recipe is written as YAML in the order of its options") {
  Recipe recipe;
  recipe.everything.modes = {Mode::off};
  recipe.data.transforms = {ResizeConfig{224, {0, 0}}, RandomHorizontalFlipConfig{}};
  const std::string text = to_yaml(recipe);
  CHECK_THAT(
      text,
      ContainsSubstring(
          "name: test\nseed: 0\neverything:\n  flag: false\n  count: 1\n  share: 0.25\n  text: plain\n  size: 1MiB\n"));
  CHECK_THAT(text, ContainsSubstring("  maybe: null\n"));
  CHECK_THAT(text, ContainsSubstring("  modes: [\"off\"]\n"));
  CHECK_THAT(text, ContainsSubstring("  transforms:\n    - {resize: 224}\n    - {random_horizontal_flip: 0.5}\n"));
  CHECK_THAT(text, ContainsSubstring("optimizer:\n  name: sgd\n  lr: 0.001\n"));
  CHECK_THAT(text, ContainsSubstring("optimizations:\n  amp: false\n  fused_kernels: false\n"));
}

TEST_CASE("the JSON of a recipe has numbers, booleans and null") {
  Recipe recipe;
  recipe.everything.text = "12";
  const Json json = to_json(recipe);
  CHECK(json["seed"] == 0);
  CHECK(json["everything"]["share"] == 0.25);
  CHECK(json["everything"]["text"] == "12");
  CHECK(json["everything"]["maybe"].is_null());
  CHECK(json["everything"]["widths"] == Json::array({512, 512}));
  CHECK(json["everything"]["size"] == "1MiB");
  CHECK(json["optimizations"]["amp"] == false);
  CHECK(json["optimizer"]["name"] == "sgd");
  CHECK(json.begin().key() == "name");
}
