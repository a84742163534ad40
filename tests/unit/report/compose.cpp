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
  void add(double samples_per_s, double noise_pct, std::optional<std::pair<double, double>> against_previous,
           const char* warning = nullptr) {
    const auto rung = folder_.path() / fmt::format("{}-rung", rungs_++);
    create_folders(rung);
    const Json warnings = warning ? Json{warning} : Json::array();
    write_file(rung / "summary.json", json_text({{"samples_per_s", samples_per_s},
                                                 {"status", "done"},
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

TEST_CASE("runs that were not compared are told apart by their noise", "[report]") {
  Ladder apart, alike;
  for (const double noise_pct : {2., 30.}) {
    Ladder& ladder = noise_pct < 10 ? apart : alike;
    ladder.add(100, noise_pct, {});
    ladder.add(120, noise_pct, {});
  }
  CHECK(contains(apart.headline(), "The fastest is <strong>1-rung</strong>."));
  CHECK(contains(alike.headline(), "<strong>1-rung</strong> has the highest throughput, and is not told apart from"));
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
