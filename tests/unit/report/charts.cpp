#include "report/charts.h"

#include "report/charts/axis.h"

#include "parsing.h"

#include <cmath>
#include <limits>

namespace trainopt::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Series series_of(const std::string& name, const std::vector<double>& values, size_t limit = 1024) {
  Columns columns(limit);
  for (size_t i = 0; i < values.size(); ++i) columns.add(static_cast<double>(i), values[i]);
  return {.name = name, .columns = columns.columns(), .values = columns.count()};
}

/// Values that are hard to draw.
const std::vector<std::vector<double>> kHard = {
    {},           {1},          {5, 5, 5},      {-3, -2, -7},    {kNan, 1, kNan, 2},
    {1e12, 2e12}, {1e12, 1e12}, {1e-12, 2e-12}, {-1e308, 1e308}, {0, 0},
    {kNan}};

}  // namespace

TEST_CASE("line charts of hard values", "[report]") {
  for (const auto& values : kHard)
    for (const bool stacked : {false, true}) {
      LineChart chart{.key = "k", .title = "T", .x_title = "step"};
      chart.series = {series_of("a", values), series_of("b", values, 1)};
      chart.stacked = stacked;
      check_drawn(draw(chart));
    }
  CHECK(draw(LineChart{.key = "k", .title = "T"}).find("Nothing was measured") != std::string::npos);
}

TEST_CASE("the numbers of a line chart are those given", "[report]") {
  std::vector<double> values;
  for (int i = 0; i < 300; ++i) values.push_back(std::sin(i) * 1.23456789);
  LineChart chart{.key = "loss", .title = "Loss", .x_title = "step", .series = {}, .marks = {{7, "</script>"}}};
  chart.series = {series_of("fine", values), series_of("same places", values), series_of("merged", values, 64)};
  const Html html = draw(chart);
  const Json data = embedded(html);
  CHECK(data["marks"] == Json::array({Json::array({7, "</script>"})}));
  CHECK(count_of(html, "</script>") == 1);
  CHECK(data["places"].size() == 2);
  CHECK_FALSE(data["series"][0].contains("low"));  // equal to the means
  for (size_t s = 0; s < chart.series.size(); ++s) {
    const auto& columns = chart.series[s].columns;
    const Json& one = data["series"][s];
    const Json& place = data["places"][one["place"].get<size_t>()];
    REQUIRE(one["mean"].size() == columns.size());
    for (size_t i = 0; i < columns.size(); ++i) {
      CHECK(one["mean"][i].get<double>() == rounded(columns[i].mean()));
      CHECK(place["first"][i].get<double>() == columns[i].first);
      if (s < 2) continue;
      CHECK(one["low"][i].get<double>() == rounded(columns[i].low));
      CHECK(one["high"][i].get<double>() == rounded(columns[i].high));
      CHECK(place["last"][i].get<double>() == columns[i].last);
    }
  }
}

TEST_CASE("a line has a gap where nothing was measured", "[report]") {
  LineChart chart{.key = "k", .title = "T", .x_title = "s"};
  Columns columns;
  for (int i = 0; i < 10; ++i) columns.add(i, i);
  chart.series = {{.name = "a", .columns = columns.columns(), .values = 10}};
  const auto pieces = [&] {
    const Html html = draw(chart);
    const size_t line = html.find("<path class=\"line c0 d0\" d=\"M", html.find("class=\"shapes\""));
    const std::string data = html.substr(line, html.find("/>", line) - line);
    return 1 + count_of(data, "m");
  };
  CHECK(pieces() == 1);
  for (int i = 20; i < 30; ++i) columns.add(i, i);
  chart.series[0].columns = columns.columns();
  CHECK(pieces() == 2);
}

TEST_CASE("stacked series end at their sum", "[report]") {
  LineChart chart{.key = "k", .title = "T", .x_title = "step"};
  chart.series = {series_of("a", {10, 10, 10}), series_of("b", {20, 20, 20})};
  chart.stacked = true;
  const Html html = draw(chart);
  // Zero to 31.5: the sum of 30 is drawn at 180 · 1.5 / 31.5 = 8.6 from the top, the lower part at 122.9.
  CHECK(html.find("class=\"line c1 d1\" d=\"M0 8.6l") != std::string::npos);
  CHECK(html.find("class=\"line c0 d0\" d=\"M0 122.9l") != std::string::npos);
}

TEST_CASE("series differ without colour", "[report]") {
  LineChart chart{.key = "k", .title = "T", .x_title = "step"};
  for (int i = 0; i < 4; ++i) chart.series.push_back(series_of("series " + std::to_string(i), {1, 2}));
  const Html html = draw(chart);
  for (const char* dash : {"d0", "d1", "d2", "d3"}) CHECK(count_of(html, std::string(" ") + dash + "\"") == 2);
}

TEST_CASE("histograms", "[report]") {
  Histogram chart{.key = "k", .title = "T", .unit = "ms"};
  check_drawn(draw(chart));
  chart.bins = {{0, 1, 0}};
  check_drawn(draw(chart));
  chart.bins = {{3, 3, 5}};  // one value: no width
  check_drawn(draw(chart));
  chart.bins = {{1e12, 2e12, 1}, {2e12, 3e12, 1000000000000}};
  check_drawn(draw(chart));
  chart.bins = {{0, 1, 4}, {1, 2, 7}};
  chart.marks = {{1.2, "p50 1.2 ms"}, {kNan, "p95"}};
  chart.beyond = 3;
  const Html html = draw(chart);
  check_drawn(html);
  CHECK(embedded(html)["bins"] == Json::parse("[[0, 1, 4], [1, 2, 7]]"));
  CHECK(html.find("3 more beyond 2 ms.") != std::string::npos);
  CHECK(html.find(">p50 1.2 ms</text>") != std::string::npos);
}

TEST_CASE("bars", "[report]") {
  check_drawn(draw(Bars{.key = "k", .title = "T"}));
  for (const double value : {0.0, -3.0, 1e12, 1e-12, kNan, 1e308})
    check_drawn(
        draw(Bars{.key = "k", .title = "T", .unit = "", .rows = {{"a", {{"p", value, "v"}, {"q", value, "w"}}}}}));
  const Html html = draw(Bars{.key = "k",
                              .title = "T",
                              .unit = "",
                              .rows = {{"a", {{"p", 1, "1 B"}, {"q", 3, "3 B"}}}, {"b", {{"q", 2, "2 B"}}}}});
  CHECK(html.find("<title>p: 1 B</title><rect class=\"area\" x=\"0%\" y=\"4\" width=\"25%\"") != std::string::npos);
  CHECK(html.find("<title>q: 3 B</title><rect class=\"area\" x=\"25%\" y=\"4\" width=\"75%\"") != std::string::npos);
  CHECK(count_of(html, "hatch-1") == 2 + 1 + 2);  // drawn twice, once in the legend, twice with the texts
}

TEST_CASE("forests tell verdicts by shape", "[report]") {
  using Verdict = Forest::Verdict;
  Forest chart{.key = "k", .title = "T", .faster = "faster", .slower = "slower"};
  check_drawn(draw(chart));
  chart.rows = {{"a", 2, {{1.9, 2.1}}, Verdict::faster, ""},
                {"b", 0.5, {}, Verdict::slower, ""},
                {"c", 1, {{0.9, 1.1}}, Verdict::none, ""},
                {"d", kNan, {{0, 1e300}}, Verdict::undecided, "?"},
                {"e", 1.1, {{0.5, HUGE_VAL}}, Verdict::undecided, ""},
                {"f", -1, {}, Verdict::none, ""}};
  const Html html = draw(chart);
  check_drawn(html);
  CHECK(count_of(html, "M-5-6L7 0L-5 6z") == 1);
  CHECK(count_of(html, "M5-6L-7 0L5 6z") == 1);
  CHECK(count_of(html, "M-5-5h10v10h-10z") == 1);
  CHECK(count_of(html, "<circle") == 1);
}

TEST_CASE("waterfalls begin each row where the last ended", "[report]") {
  Waterfall chart{.key = "k", .title = "T", .unit = "u", .begin = 100, .begin_name = "plain", .end_name = "all"};
  check_drawn(draw(chart));
  chart.rows = {{"a", 2, {{1.9, 2}}, "2×"}, {"b", 0.5, {}, "0.5×"}};
  const Html html = draw(chart);
  check_drawn(html);
  CHECK(count_of(html, "x=\"50%\" y=\"4\" width=\"50%\"") == 2);  // up from 100 to 200 and down again
  CHECK(count_of(html, "100 u") == 2);
  chart.rows = {{"a", kNan, {{kNan, 2}}, ""}, {"b", 0, {}, ""}, {"c", 1e300, {}, ""}, {"d", HUGE_VAL, {}, ""}};
  check_drawn(draw(chart));
  chart.begin = kNan;
  check_drawn(draw(chart));
}

TEST_CASE("strips", "[report]") {
  check_drawn(draw(Strip{.key = "k", .title = "T"}));
  for (const auto& values : kHard) {
    Strip chart{.key = "k", .title = "T", .unit = "ms", .x_title = "step", .rows = {}};
    chart.rows = {{"rank 0", series_of("", values).columns}, {"a very long name of a machine: rank 1", {}}};
    check_drawn(draw(chart));
  }
  Strip chart{.key = "k", .title = "T", .unit = "ms", .x_title = "step", .rows = {}};
  chart.rows = {{"rank 0", series_of("", {1, 1}).columns}, {"rank 1", series_of("", {1, 9}).columns}};
  const Html html = draw(chart);
  const std::string shapes = html.substr(html.find("class=\"shapes\""));
  CHECK(count_of(shapes, "shade h7") == 1);  // the one long step
  CHECK(count_of(shapes, "shade h0") == 2);
  CHECK(embedded(html)["series"][1]["mean"] == Json::parse("[1, 9]"));
}

}  // namespace trainopt::report
