#include "compare/finished_runs.h"

#include "base/files/files.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <random>

using namespace trainopt;

namespace {

/// A run of 200 steps of 32 samples; the first ten are excluded and much slower.
void write_run(const std::filesystem::path& folder, double step_ms, uint64_t seed) {
  create_folders(folder);
  write_file(folder / "summary.json", R"({"left_out_steps": 10})");
  std::mt19937_64 random(seed);
  std::string lines;
  for (int step = 1; step <= 200; ++step)
    lines += Json{{"step", step},
                  {"samples", 32 * step},
                  {"loss", 2.0},
                  {"step_ms", step <= 10 ? 1000 : step_ms * (1 + 0.02 * std::normal_distribution<double>()(random))}}
                 .dump() +
             "\n";
  write_file(folder / "metrics.jsonl", lines);
}

}  // namespace

TEST_CASE("finished runs have a ratio that excludes their warm-up, and no verdict") {
  const TemporaryFolder folder;
  write_run(folder / "a", 10, 1);
  write_run(folder / "b", 8, 2);
  const auto faster = compare_runs(read_finished_run(folder / "a"), read_finished_run(folder / "b"), 0.95);
  CHECK(faster.ratio == Approx(1.25).epsilon(0.01));
  CHECK(faster.interval->contains(1.25));
  CHECK(to_json(faster).at("paired") == false);
  CHECK(to_json(faster).at("verdict").is_null());
  const std::string text = runs_text(faster);
  CHECK(text.find("not paired") != std::string::npos);
  CHECK(text.find("no verdict: B's throughput against A's is +2") != std::string::npos);
  for (const char* word : {"pays", "costs", "no effect"}) CHECK(text.find(word) == std::string::npos);
}

TEST_CASE("a run that logged few steps is compared over all measured steps") {
  const TemporaryFolder folder;
  for (const auto& [name, step_ms] : {std::pair("a", 10.0), std::pair("b", 8.0)}) {
    write_run(folder / name, 100, 1);
    write_file(folder / name / "summary.json", R"({"measured_steps": 380, "loss": {"first": 3, "last": 1.5}})");
    std::mt19937_64 random(7);
    std::string pieces = "samples,seconds\n";
    for (int i = 0; i < 190; ++i)
      pieces += fmt::format("64,{}\n", 2e-3 * step_ms * (1 + 0.02 * std::normal_distribution<double>()(random)));
    write_file(folder / name / "step_times.csv", pieces);
  }
  const auto faster = compare_runs(read_finished_run(folder / "a"), read_finished_run(folder / "b"), 0.95);
  CHECK(faster.ratio == Approx(1.25));
  CHECK(faster.interval->contains(1.25));
  CHECK_THAT(runs_text(faster), Catch::Contains("over 380 steps, last loss 1.5000"));
  write_file(folder / "a" / "step_times.csv", "samples,seconds\n64,0.1\n64;0.1\n");
  CHECK_THROWS_WITH(read_finished_run(folder / "a"),
                    Catch::Contains("step_times.csv, line 3") && Catch::Contains("64;0.1"));
}

TEST_CASE("two short runs have no interval") {
  const TemporaryFolder folder;
  write_run(folder / "a", 10, 1);
  FinishedRun a = read_finished_run(folder / "a"), b = a;
  a.steps.resize(59);
  const auto compared = compare_runs(a, b, 0.95);
  CHECK_FALSE(compared.interval);
  CHECK(runs_text(compared).find("fewer than 60 measured steps") != std::string::npos);
}

TEST_CASE("a folder that is not a finished run is refused, naming the file") {
  const TemporaryFolder folder;
  CHECK_THROWS_WITH(read_finished_run(folder / "none"), Catch::Contains("summary.json"));
  create_folders(folder / "half");
  write_file(folder / "half" / "summary.json", "{}");
  write_file(folder / "half" / "metrics.jsonl", "");
  CHECK_THROWS_WITH(read_finished_run(folder / "half"), Catch::Contains("no measured steps"));
  write_file(folder / "half" / "metrics.jsonl", "{\"step\": 1}\n");
  CHECK_THROWS_WITH(read_finished_run(folder / "half"), Catch::Contains("not a step record"));
  write_file(folder / "half" / "metrics.jsonl", "oops\n");
  CHECK_THROWS_WITH(read_finished_run(folder / "half"), Catch::Contains("not JSON"));
}
