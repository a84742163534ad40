#include "report/page.h"

#include "report/charts.h"

#include "parsing.h"

#include <cmath>

namespace trainopt::report {

TEST_CASE("a page loads nothing and escapes its titles", "[report]") {
  const std::string text = draw(Page{.title = "<run> & co",
                                     .headline = "<p>first</p>",
                                     .sections = {{"loss", "Loss < 1", "<p>x</p>"}},
                                     .footer = "a & b",
                                     .reload_s = {}});
  CHECK(text.find("<title>&lt;run&gt; &#38; co</title>") != std::string::npos);
  CHECK(text.find("<a href=\"#loss\">Loss &lt; 1</a>") != std::string::npos);
  CHECK(text.find("<section id=\"loss\"") != std::string::npos);
  CHECK(text.find("default-src 'none'") != std::string::npos);
  CHECK(text.find("http-equiv=\"refresh\"") == std::string::npos);
  for (const char* loading : {" src=", "@import", "url(http", "fetch(", "<link"})
    CHECK(text.find(loading) == std::string::npos);
  CHECK(count_of(text, "</script>") == 1);
}

TEST_CASE("a page of a run that goes on reloads itself", "[report]") {
  const std::string text = draw(Page{.title = "t", .headline = {}, .sections = {}, .footer = {}, .reload_s = 5});
  CHECK(text.find("data-reload-s=\"5\"") != std::string::npos);
  CHECK(text.find("<noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>") != std::string::npos);
}

TEST_CASE("twenty series of 1024 columns fit into 2 MB", "[report]") {
  LineChart chart{.key = "k", .title = "T", .x_title = "step"};
  for (int s = 0; s < 20; ++s) {
    Columns columns;
    for (int i = 0; i < 65536; ++i) columns.add(i, std::sin(i * 0.37 + s) * 3.1);
    chart.series.push_back({"series " + std::to_string(s), columns.columns(), columns.count()});
    REQUIRE(chart.series.back().columns.size() == 1024);
  }
  const Html html = draw(chart);
  CHECK(embedded(html)["series"][19]["low"].size() == 1024);
  CHECK(draw(Page{.title = "t", .headline = {}, .sections = {{"s", "S", html}}, .footer = {}, .reload_s = {}}).size() <
        2000000);
}

}  // namespace trainopt::report
