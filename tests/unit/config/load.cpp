#include "support.h"

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("C8: all errors of all sources are reported at once, in order") {
  const auto lines = errors_of({"seed: x\ndata:\n  batch_size: 0\n  shufle: true\n", "train: {epochs: 1.5}\n"},
                               {"optimizer.lr=fast", "nme=x"});
  CHECK(lines ==
        std::vector<std::string>{"r.yaml:1:7: seed: must be a whole number: x",
                                 "r.yaml:3:15: data.batch_size: must be between 1 and 16777216: 0",
                                 "r.yaml:4:3: data.shufle: unknown key (did you mean 'shuffle'?)",
                                 "r2.yaml:1:17: train.epochs: must be a whole number, written in digits only: 1.5",
                                 "command line 'nme=x': nme: unknown key (did you mean 'name'?)",
                                 "command line 'optimizer.lr=fast': optimizer.lr: must be a number: fast"});
  CHECK(errors_of({"seed: [\n", "seed: x\n"}).size() == 2);
}

TEST_CASE("C10: an error in an override names the override") {
  CHECK(error_of("{}\n", {"data.batch_size=0"}) ==
        "command line 'data.batch_size=0': data.batch_size: must be between 1 and 16777216: 0");
  CHECK(error_of("{}\n", {"--data.batchsize=8"}) ==
        "command line '--data.batchsize=8': data.batchsize: unknown key (did you mean 'data.batch_size'?)");
  CHECK(error_of("{}\n", {"data.batch_size"}) == "command line 'data.batch_size': an override is written key=value");
  CHECK(error_of("{}\n", {"seed="}) ==
        "command line 'seed=': no value; write 'seed=null' for the default or 'seed=\"\"' for an empty string");
  CHECK(error_of("{}\n", {"data..size=1"}) == "command line 'data..size=1': a part of the key is empty");
  CHECK(error_of("{}\n", {"=1"}) == "command line '=1': a part of the key is empty");
  CHECK(error_of("{}\n", {"seed={a"}) == "command line 'seed={a': not valid YAML: end of map flow not found");
  CHECK(error_of("{}\n", {"seed=!!int 3"}) == "command line 'seed=!!int 3': tags are not allowed in a recipe: !!int");
  CHECK(error_of("{}\n", {"everything.widths=1,2"}) ==
        "command line 'everything.widths=1,2': everything.widths: must be a list of whole number: 1,2 (write [1,2])");
}

TEST_CASE("C7, C12: problems of checks across fields are reported with the others, where the keys were set") {
  TemporaryFile file("data:\n  pin_memory: yes\n  non_blocking: true\nscheduler: {name: cosine}\n");
  const auto validate = [](const Recipe& recipe, const Origins& origins) {
    std::vector<Problem> problems;
    if (recipe.data.non_blocking && !recipe.data.pin_memory) {
      problems.push_back(problem_at(origins, "data.non_blocking", "needs data.pin_memory"));
      problems.push_back(problem_at(origins, "data.pin_memory", "would be reported twice"));
    }
    problems.push_back(problem_at(origins, "scheduler.total_steps", "cosine needs it"));
    problems.push_back(problem_at(origins, "seed", "no source set it"));
    return problems;
  };
  try {
    load<Recipe>({{file.path()}, {}}, validate);
    FAIL("accepted");
  } catch (const RecipeErrors& errors) {
    const std::string path = file.path().string();
    CHECK(errors.code() == ExitCode::recipe);
    CHECK(std::string(errors.what()) == path + ":2:15: data.pin_memory: must be true or false (write true): yes\n" +
                                            path + ":3:17: data.non_blocking: needs data.pin_memory\n" + path +
                                            ":4:12: scheduler.total_steps: cosine needs it\n" +
                                            "seed: no source set it");
  }
}

TEST_CASE("every type is read") {
  const Everything e = load_text(R"(
everything:
  flag: true
  number: 42
  share: 5e-1
  text: 12
  size: 4 GiB
  time: 1.5h
  mode: never
  pair: [1, .5]
  maybe: 0
  maybe_text: "null"
  widths: []
  words: [a, "b c", 3]
  modes: [true, auto]
)")
                           .everything;
  CHECK(e.flag);
  CHECK(e.count == 42);
  CHECK(e.share == 0.5);
  CHECK(e.text == "12");
  CHECK(e.size.count == int64_t{4} << 30);
  CHECK(e.time.seconds == 5400);
  CHECK(e.mode == Mode::off);
  CHECK(e.pair == std::array<double, 2>{1, 0.5});
  CHECK(e.maybe == 0);
  CHECK(e.maybe_text == "null");
  CHECK(e.widths.empty());
  CHECK(e.words == std::vector<std::string>{"a", "b c", "3"});
  CHECK(e.modes == std::vector<Mode>{Mode::on, Mode::automatic});
}

TEST_CASE("origins record where each key was set") {
  TemporaryFile file("seed: 3\ndata: {workers: 2}\n");
  const auto loaded = load<Recipe>({{file.path()}, {"train.max_steps=5"}});
  const std::string path = file.path().string();
  CHECK(loaded.origins.at("seed") == path + ":1:7");
  CHECK(loaded.origins.at("data.num_workers") == path + ":2:17");
  CHECK(loaded.origins.at("train.max_steps") == "command line 'train.max_steps=5'");
  CHECK(loaded.origins.count("data.size") == 0);
}

TEST_CASE("options of another alternative in the same file are errors") {
  CHECK(error_of("optimizer: {name: adamw, nesterov: true}\n") ==
        "r.yaml:1:26: optimizer.nesterov: an option of sgd, lars and muon, but optimizer.name is adamw");
  CHECK(error_of("optimizer: {betas: [0.9, 0.99]}\n") ==
        "r.yaml:1:13: optimizer.betas: an option of adam, adamw, nadam, lion and lamb, but optimizer.name is sgd");
  CHECK(error_of("optimizer: {name: adamm, betas: [0.9, 0.99]}\n") ==
        "r.yaml:1:19: optimizer.name: must be one of sgd, adam, adamw, nadam, rmsprop, adagrad, lion, lars, lamb, "
        "muon: adamm (did you mean 'adam'?)");
  CHECK(error_of("optimizer: {name: adamw, fancy: 1}\n") == "r.yaml:1:26: optimizer.fancy: unknown key");
  const Recipe recipe = load_text("optimizer: {betas: [0.5, 0.6], learning_rate: 0.2, name: adamw}\n");
  REQUIRE(std::holds_alternative<AdamWConfig>(recipe.optimizer));
  CHECK(std::get<AdamWConfig>(recipe.optimizer).betas[1] == 0.6);
  CHECK(std::get<AdamWConfig>(recipe.optimizer).lr == 0.2);
}
