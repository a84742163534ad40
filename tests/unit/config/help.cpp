#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

namespace {

OptionHelp option_called(const std::string& path) {
  for (const auto& option : options_of<Recipe>())
    if (option.path == path) return option;
  FAIL("no option " << path);
  return {};
}

}  // namespace

TEST_CASE("each option has its type, default, bounds, aliases and help") {
  const OptionHelp count = option_called("everything.count");
  CHECK(count.type == "whole number");
  CHECK(count.default_text == "1");
  CHECK(count.bounds == "between 1 and 100");
  CHECK(count.aliases == std::vector<std::string>{"number"});
  CHECK(count.help == "A count.");
  CHECK(option_called("everything.mode").type == "auto | true | off");
  CHECK(option_called("everything.maybe").type == "whole number | null");
  CHECK(option_called("optimizations.amp").type == "true | false | map");
  CHECK(option_called("optimizations.amp.dtype").default_text == "bfloat16");
  CHECK(option_called("optimizer.name").type ==
        "sgd | adam | adamw | nadam | rmsprop | adagrad | lion | lars | lamb | muon");
  CHECK(option_called("optimizer.lr").only_for == "optimizer.name sgd, adam, adamw, lamb, muon");  // as it is 0.001
  CHECK(option_called("optimizer.no_decay").only_for.empty());
  CHECK(option_called("optimizer.nesterov").only_for == "optimizer.name sgd, lars");  // muon's default is another
  CHECK(option_called("optimizer.alpha").only_for == "optimizer.name rmsprop");
}

TEST_CASE("options are found by section, key or path") {
  const auto all = options_of<Recipe>();
  CHECK(options_under(all, "scheduler.warmup_steps").size() == 1);
  CHECK(options_under(all, "scheduler").size() > 20);
  CHECK(options_under(all, "data.size").size() == 1);
  CHECK(options_under(all, "learning_rate").front().path == "optimizer.lr");
  CHECK(nearest_name(all, "schedular") == "scheduler");
}

TEST_CASE("the documented recipe loads to the defaults and names every option") {
  const std::string text = documented_yaml<Recipe>();
  INFO(text);
  CHECK(to_yaml(load_text(text)) == to_yaml(Recipe()));
  for (const auto& option : options_of<Recipe>()) {
    CHECK_THAT(text, ContainsSubstring(option.path.substr(option.path.rfind('.') + 1) + ": "));
    CHECK_THAT(text, ContainsSubstring(option.help));
  }
}

TEST_CASE("the schema describes what the reader accepts") {
  const Json schema = schema_of<Recipe>();
  CHECK(schema["$schema"] == "http://json-schema.org/draft-07/schema#");
  CHECK(schema["additionalProperties"] == false);
  const Json& everything = schema["properties"]["everything"]["properties"];
  CHECK(everything["count"]["type"] == "integer");
  CHECK(everything["count"]["minimum"] == 1);
  CHECK(everything["count"]["maximum"] == 100);
  CHECK(everything["count"]["default"] == 1);
  CHECK(everything["number"]["minimum"] == 1);
  CHECK(everything["share"]["exclusiveMaximum"] == 1);
  CHECK(everything["mode"]["enum"] == Json::array({"auto", "true", "off", "never"}));
  CHECK(everything["maybe"]["anyOf"][1]["type"] == "null");
  const Json& amp = schema["properties"]["optimizations"]["properties"]["amp"];
  CHECK(amp["anyOf"][0]["type"] == "boolean");
  CHECK(amp["anyOf"][1]["additionalProperties"] == false);
  const Json& optimizer = schema["properties"]["optimizer"]["oneOf"];
  REQUIRE(optimizer.size() == 10);
  CHECK_FALSE(optimizer[0].contains("required"));
  CHECK(optimizer[1]["required"] == Json::array({"name"}));
  CHECK(optimizer[2]["properties"]["name"]["const"] == "adamw");
  CHECK_FALSE(optimizer[2]["properties"].contains("nesterov"));
}
