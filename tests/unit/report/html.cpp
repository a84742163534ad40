#include "report/html.h"

#include "parsing.h"

#include <cmath>

namespace trainopt::report {

TEST_CASE("text is escaped", "[report]") {
  CHECK(escape("<script>alert('a & b')</script>") == "&lt;script&gt;alert(&#39;a &#38; b&#39;)&lt;/script&gt;");
  CHECK(escape("\"]]>") == "&quot;]]&gt;");
  CHECK(escape("ä – 日本 😀\tand\n") == "ä – 日本 😀\tand\n");
}

TEST_CASE("harmful characters are replaced", "[report]") {
  const std::string sign = "\xEF\xBF\xBD";
  CHECK(escape("a\xFF\xC3(b") == "a" + sign + sign + "(b");
  CHECK(escape("cut \xE2\x82") == "cut " + sign + sign);
  CHECK(escape(std::string("a\0b\x1b[31m\r\x7F", 10)) == "a" + sign + "b" + sign + "[31m" + sign + sign);
  CHECK(escape("\xC2\x85") == sign);                                                           // a C1 control
  CHECK(escape("exe.\u202Egnp \u2066x\u2069") == "exe." + sign + "gnp " + sign + "x" + sign);  // reordered text
  CHECK(escape("\xED\xA0\x80") == sign + sign + sign);                                         // a surrogate
}

TEST_CASE("elements escape their attributes only", "[report]") {
  CHECK(element("a", {{"href", "#\"><b>"}, {"title", "x"}}, "<b>y</b>") ==
        "<a href=\"#&quot;&gt;&lt;b&gt;\" title=\"x\"><b>y</b></a>");
  CHECK(element("p", "") == "<p></p>");
}

TEST_CASE("figures have the value of the source", "[report]") {
  CHECK(figure("loss", 0.1, "0.1") == "<data data-key=\"loss\" data-value=\"0.1\">0.1</data>");
  CHECK(figure("steps", 20000, "20,000") == "<data data-key=\"steps\" data-value=\"20000\">20,000</data>");
  CHECK(figure("name", "a \"b\"", "b") == "<data data-key=\"name\" data-value=\"a &quot;b&quot;\">b</data>");
  CHECK(figure("energy", nullptr, "") == "<data data-key=\"energy\" data-value=\"null\">–</data>");
  CHECK(figure("energy", nullptr, "unknown") == "<data data-key=\"energy\" data-value=\"null\">unknown</data>");
  CHECK(figure("loss", std::nan(""), "") == "<data data-key=\"loss\" data-value=\"null\">–</data>");
}

TEST_CASE("embedded JSON cannot end its script", "[report]") {
  const Json json{{"name", "</script><!--]]>&"}, {"value", 1.5}};
  const Html html = embedded_json(json);
  CHECK(count_of(html, "<") == 2);
  CHECK(count_of(html, "]]>") == 0);
  CHECK(embedded(html) == json);
}

TEST_CASE("all rows of a table are in the page", "[report]") {
  Table table{.caption = "Steps", .columns = {{"step", true}, {"<loss>"}}, .rows = {}, .shown = 10};
  for (int i = 0; i < 25; ++i) table.rows.push_back({std::to_string(i), "x"});
  const Html html = draw(table);
  CHECK(count_of(html, "<tr>") == 25 + 2);  // the folded rest has the titles again
  CHECK(count_of(html, "<details") == 1);
  CHECK(count_of(html, "15 more rows") == 1);
  CHECK(count_of(html, "&lt;loss&gt;") == 2);
  CHECK(count_of(html, "<td class=\"number\">24</td>") == 1);
  table.rows.resize(10);
  CHECK(count_of(draw(table), "<details") == 0);
  CHECK(count_of(draw(Table{}), "<table>") == 1);
}

}  // namespace trainopt::report
