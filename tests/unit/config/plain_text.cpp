#include "config/plain_text.h"

#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("a section that is empty because its keys are not indented is noticed") {
  CHECK(error_of("optimizer:\nname: adamw\n") ==
        "r.yaml:1:1: optimizer: is empty, and name, which optimizer has too, follows at the same indentation; indent "
        "name, or remove optimizer");
  CHECK_THAT(error_of("data:\nbatch_size: 3\n"), ContainsSubstring("did you mean 'data.batch_size'"));
  CHECK(load_text("data:\nseed: 3\n").seed == 3);  // an empty section alone is the default
  CHECK(load_text("optimizer:\nseed: 3\nname: x\n").name == "x");
  CHECK(load_text("{}", {"optimizer=null", "name=x"}).name == "x");
  CHECK(load_text("optimizer: null\nname: x\n").name == "x");
  CHECK(load_text("optimizer: ~\nname: x\n").name == "x");
}

TEST_CASE("~ is the home folder at the beginning of a value, and nowhere else") {
  const TemporaryFile file("everything: {text: ~/x, words: [~/y, a~/b, ~z], maybe_text: ~}\n");
  const auto loaded = load<Recipe>({.files = {file.path()}, .overrides = {"name='~/n'"}, .home = "/srv/me"}).config;
  CHECK(loaded.everything.text == "/srv/me/x");
  CHECK(loaded.everything.words == std::vector<std::string>{"/srv/me/y", "a~/b", "~z"});
  CHECK_FALSE(loaded.everything.maybe_text);
  CHECK(loaded.name == "/srv/me/n");
  CHECK_THAT(error_of("name: ~/n\n"), ContainsSubstring("HOME is not set, so ~ stands for no folder: ~/n"));
}

TEST_CASE("tabs, and what only looks like a space, are named") {
  CHECK(error_of("data:\n\tbatch_size: 3\n") == "r.yaml:2:1: this line is indented with a tab; YAML takes spaces only");
  CHECK(error_of("data:\n  batch_size: 3\n  \tshuffle: true\n").find("indented with a tab") != std::string::npos);
  const std::string no_break = "\xC2\xA0";
  for (const std::string& text : {"data: {batch_size:" + no_break + " 3}\n", "seed: 3" + no_break + "\n",
                                  "data:\n " + no_break + "batch_size: 3\n"}) {
    INFO(text);
    CHECK_THAT(error_of(text), ContainsSubstring("a no-break space (U+00A0), which YAML takes for a letter"));
  }
  CHECK_NOTHROW(load_text("everything: {text: '5" + no_break + "km'}\n"));
}

TEST_CASE("variables are refused with their place, wherever they stand") {
  const auto refused = [](const std::string& text, const std::string& where) {
    INFO(text);
    CHECK_THAT(error_of(text), ContainsSubstring("recipes do not expand variables") && ContainsSubstring(where));
  };
  refused("everything: {text: ${LR}}\n", "r.yaml:1:20: ");
  refused("everything:\n  text: ${oc.env:HOME}/runs\n", "r.yaml:2:9: everything.text: ");
  refused("everything:\n  text: '${HOME}'\n", "everything.text=VALUE: \"${HOME}\"");
  refused("everything:\n  text: $HOME/runs\n", "everything.text=VALUE: $HOME/runs");
  refused("everything:\n  text: runs/$USER\n", "everything.text=VALUE: runs/$USER");
  refused("everything:\n  text: runs/$(date)\n", "everything.text=VALUE: runs/$(date)");
  refused("everything:\n  words: [a, b$, '${c}']\n", "everything.words[2]");
  CHECK_THROWS_WITH(load_text("{}", {"everything.text=${X}/y"}), ContainsSubstring("recipes do not expand variables"));
  CHECK(load_text("everything: {text: 'a$1$'}\n").everything.text == "a$1$");
  CHECK(errors_of({"seed: ${SEED}\nmystery: 1\n"}).size() == 2);
}
