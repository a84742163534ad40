#include "report/compose.h"

#include "base/files/files.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>
#include <fmt/format.h>

using namespace trainopt;
using namespace trainopt::report;

namespace {

bool contains(const Html& html, const std::string& text) { return html.find(text) != std::string::npos; }

/// Runs in one folder, as scripts/sweep --ladder leaves them.
class Ladder {
 public:
  /// `against_previous`: the ends of the interval against the run before; none: it was not compared.
  /// `effective`: a switch that had an effect.
  void add(double samples_per_s, double noise_pct, std::optional<std::pair<double, double>> against_previous,
           const char* warning = nullptr, const char* effective = "amp") {
    const auto rung = folder_.path() / fmt::format("{}-rung", rungs_++);
    create_folders(rung);
    const Json warnings = warning ? Json{warning} : Json::array();
    write_file(rung / "summary.json", json_text({{"samples_per_s", samples_per_s},
                                                 {"status", "done"},
                                                 {"receipts", {{effective, {{"effective", true}}}}},
                                                 {"limit", {{"text", "compute"}, {"noise_pct", noise_pct}}},
                                                 {"warnings", warnings}}));
    if (against_previous)
      write_file(rung / "compare.json", json_text({{"ratio", against_previous->first},
                                                   {"interval", {against_previous->first, against_previous->second}},
                                                   {"verdict", "pays"}}));
  }
  Html headline() const { return compose(read_sources({folder_.path()}), {}).headline; }

 private:
  const TemporaryFolder folder_;
  int rungs_ = 0;
};

}  // namespace

TEST_CASE("the fastest of several runs is named if the comparisons tell it from all others", "[report]") {
  Ladder ladder;
  ladder.add(100, 50, {});
  ladder.add(120, 50, std::pair(1.1, 1.3));
  ladder.add(150, 50, std::pair(1.2, 1.4));
  CHECK(contains(ladder.headline(), "The fastest is <strong>2-rung</strong>."));
  ladder.add(152, 50, std::pair(0.99, 1.02));  // without effect
  CHECK(contains(ladder.headline(), "No run is shown to be the fastest: <strong>3-rung</strong>"));
  CHECK(contains(ladder.headline(), "is not told apart from <strong>2-rung</strong>."));
}

TEST_CASE("a rung that changes nothing is as fast as the one before, whatever was measured", "[report]") {
  Ladder ladder;
  ladder.add(100, 1, {});
  ladder.add(150, 1, std::pair(1.4, 1.6));
  ladder.add(170, 1, {});  // not compared: the same switches have an effect
  CHECK(contains(ladder.headline(),
                 "<strong>2-rung</strong> has the highest throughput, and is not told apart from "
                 "<strong>1-rung</strong>."));
  ladder.add(300, 1, {}, nullptr, "another");  // its comparison failed
  CHECK(contains(ladder.headline(),
                 "<strong>3-rung</strong> has the highest throughput, and is not told apart from "
                 "<strong>0-rung</strong>, <strong>1-rung</strong>, <strong>2-rung</strong>."));
}

TEST_CASE("runs side by side are told apart by their noise", "[report]") {
  const auto headline_of = [](double noise_pct) {
    const TemporaryFolder folder;
    std::vector<std::filesystem::path> runs;
    for (const double rate : {100., 120.}) {
      runs.push_back(folder.path() / fmt::format("at-{}", rate));
      create_folders(runs.back());
      write_file(runs.back() / "summary.json", json_text({{"samples_per_s", rate},
                                                          {"status", "done"},
                                                          {"limit", {{"text", "x"}, {"noise_pct", noise_pct}}}}));
    }
    return compose(read_sources(runs), {}).headline;
  };
  CHECK(contains(headline_of(2), "The fastest is <strong>at-120</strong>."));
  CHECK(contains(headline_of(30), "has the highest throughput, and is not told apart from <strong>at-100</strong>."));
}

TEST_CASE("a warning of many runs is said once, with how many there were", "[report]") {
  Ladder ladder;
  for (int i = 0; i < 5; ++i) ladder.add(100, 1, {}, i == 3 ? "of one run" : "of four runs");
  CHECK(contains(ladder.headline(), "4 runs: of four runs"));
  CHECK(contains(ladder.headline(), "3-rung: of one run"));
}

TEST_CASE("a switch's chip has the share of the table, or the gain that was measured", "[report]") {
  const TemporaryFolder folder;
  const Json gain = {{"ratio", 1.25}, {"interval", {1.2, 1.3}}, {"verdict", "pays"}};
  const Json none = {{"ratio", nullptr}, {"interval", nullptr}, {"verdict", nullptr}, {"reason", "no time was left"}};
  const auto row = [](const char* name, const Json& alone, const Json& in_stack, const Json& share) {
    return Json{{"name", name}, {"no_effect", ""}, {"alone", alone}, {"in_stack", in_stack}, {"share", share}};
  };
  write_file(folder.path() / "result.json",
             json_text({{"switches",
                         {row("whole", gain, gain, {{"ratio", 1.125}, {"interval", {1.1, 1.15}}}),
                          row("half", gain, none, nullptr), row("nothing", none, none, nullptr)}}}));
  const Html headline = compose(read_sources({folder.path()}), {}).headline;
  CHECK(contains(headline, "pays"));
  CHECK(contains(headline, "share "));
  CHECK(contains(headline, "+12.5 %"));
  CHECK(contains(headline, "alone "));
  CHECK(contains(headline, "no time was left"));
  CHECK_FALSE(contains(headline, "not measured"));
}
