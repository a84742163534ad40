// A small recipe with every kind of option and the sections that suggestions refer to, and helpers to load it from
// text.
#pragma once

#include "config/load.h"
#include "data/config.h"
#include "data/transform_config.h"
#include "support/catch.h"
#include "train/config.h"

#include <unistd.h>

#include <fstream>

namespace trainopt::config_test {

enum class Mode { automatic, on, off };
struct AmpOptions {
  std::string dtype = "bfloat16";
  double init_scale = 65536;
};
template <class V>
void describe(V& v, AmpOptions& c) {
  v.field("dtype", c.dtype, "Type.");
  v.field("init_scale", c.init_scale, "First scale.", above(0), alias("initial_scale"));
}
struct NoOptions {};
template <class V>
void describe(V&, NoOptions&) {}

struct OptimizationsPart {
  Switch<AmpOptions> amp;
  Switch<NoOptions> fused_kernels;
};
template <class V>
void describe(V& v, OptimizationsPart& c) {
  v.toggle("amp", c.amp, "16 bits.");
  v.toggle("fused_kernels", c.fused_kernels, "One pass.");
}

/// One option of every type.
struct Everything {
  bool flag = false;
  int64_t count = 1;
  double share = 0.25;
  std::string text = "plain";
  Bytes size{int64_t{1} << 20};
  Duration time{90};
  trainopt::config_test::Mode mode = Mode::automatic;
  std::array<double, 2> pair{0.9, 0.999};
  std::optional<int64_t> maybe;
  std::optional<std::string> maybe_text;
  std::vector<int64_t> widths{512, 512};
  std::vector<std::string> words;
  std::vector<Mode> modes;
};
template <class V>
void describe(V& v, Everything& c) {
  v.field("flag", c.flag, "A flag.");
  v.field("count", c.count, "A count.", in_range(1, 100), alias("number"));
  v.field("share", c.share, "A share.", half_open(0, 1));
  v.field("text", c.text, "A text.");
  v.field("size", c.size, "A size.", at_least(1));
  v.field("time", c.time, "A time.", above(0));
  v.field("mode", c.mode, "A mode.");
  v.field("pair", c.pair, "Two numbers.");
  v.field("maybe", c.maybe, "A count or null.", at_least(0));
  v.field("maybe_text", c.maybe_text, "A text or null.");
  v.field("widths", c.widths, "Counts.", at_least(1));
  v.field("words", c.words, "Texts.");
  v.field("modes", c.modes, "Modes.");
}

struct Recipe {
  std::string name = "test";
  int64_t seed = 0;
  Everything everything;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  SchedulerConfig scheduler;
  OptimizationsPart optimizations;
  EvaluationConfig evaluation;
};
template <class V>
void describe(V& v, Recipe& c) {
  v.field("name", c.name, "Name.", any(), alias("run_name"));
  v.field("seed", c.seed, "Seed.", at_least(0));
  v.section("everything", c.everything, "Every type.");
  v.section("data", c.data, "Data.");
  v.section("train", c.train, "Train.");
  v.section("optimizer", c.optimizer, "Update rule.");
  v.section("scheduler", c.scheduler, "Schedule.");
  v.section("optimizations", c.optimizations, "Switches.");
  v.section("evaluation", c.evaluation, "Evaluation.");
}

/// A recipe file that exists while the object lives.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() / fmt::format("recipe-{}-{}.yaml", ::getpid(), number++);
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

using Overrides = std::vector<std::string>;

inline Loaded<Recipe> load_texts(const std::vector<std::string>& texts, const Overrides& overrides = {}) {
  std::vector<std::unique_ptr<TemporaryFile>> files;
  Sources sources{{}, overrides};
  for (const auto& text : texts)
    sources.files.push_back(files.emplace_back(std::make_unique<TemporaryFile>(text))->path());
  return load<Recipe>(sources);
}
inline Recipe load_text(const std::string& text, const Overrides& overrides = {}) {
  return load_texts({text}, overrides).config;
}

/// The lines of the error, with the temporary files' names replaced by "r.yaml", "r2.yaml", …; empty if loading
/// succeeds.
inline std::vector<std::string> errors_of(const std::vector<std::string>& texts, const Overrides& overrides = {}) {
  std::vector<std::unique_ptr<TemporaryFile>> files;
  Sources sources{{}, overrides};
  for (const auto& text : texts)
    sources.files.push_back(files.emplace_back(std::make_unique<TemporaryFile>(text))->path());
  try {
    load<Recipe>(sources);
  } catch (const RecipeErrors& errors) {
    CHECK(errors.code() == ExitCode::recipe);
    std::vector<std::string> lines;
    for (const Problem& problem : errors.problems()) {
      std::string line = to_text(problem);
      for (size_t i = 0; i < sources.files.size(); ++i)
        for (size_t at; (at = line.find(sources.files[i].string())) != std::string::npos;)
          line.replace(at, sources.files[i].string().size(), i == 0 ? "r.yaml" : fmt::format("r{}.yaml", i + 1));
      lines.push_back(line);
    }
    return lines;
  }
  return {};
}
/// The only line of the error.
inline std::string error_of(const std::string& text, const Overrides& overrides = {}) {
  const auto lines = errors_of({text}, overrides);
  if (lines.size() != 1) return fmt::format("{} errors", lines.size());
  return lines[0];
}

}  // namespace trainopt::config_test

template <>
struct trainopt::Choices<trainopt::config_test::Mode> {
  using Mode = trainopt::config_test::Mode;
  static constexpr std::array all = {Choice<Mode>{"auto", Mode::automatic}, Choice<Mode>{"true", Mode::on},
                                     Choice<Mode>{"off", Mode::off}, Choice<Mode>{"never", Mode::off}};
};
