// Tables as terminals and Markdown pages show them.
#include "compare/output/table.h"

#include "support/catch.h"

using namespace trainopt;

namespace {

Table some_table() {
  Table table({"switch", "alone"}, 1);
  table.add({{"amp"}, {"+4.1 % ±0.8", kGreen}});
  table.add({{"a|b"}});
  return table;
}

}  // namespace

TEST_CASE("columns are as wide as their widest cell, counted in characters") {
  CHECK(some_table().text(false) ==
        "  switch   alone      \n"
        "  amp      +4.1 % ±0.8\n"
        "  a|b");
}

TEST_CASE("colour codes enclose a cell and its padding") {
  CHECK(some_table().text(true) ==
        "  switch   alone      \n"
        "  amp      \x1b[32m+4.1 % ±0.8\x1b[0m\n"
        "  a|b");
}

TEST_CASE("columns without room follow in further tables with the first column") {
  Table table({"", "one", "two", "three"}, 1);
  table.add({{"amp"}, {"1234567890"}, {"1234567890"}, {"1234567890"}});
  CHECK(table.text({false, 34}) ==
        "        one          two       \n"
        "  amp   1234567890   1234567890\n"
        "\n"
        "        three     \n"
        "  amp   1234567890");
  CHECK(table.text({false, 31}) == table.text({false, 34}));
  CHECK(table.text({false, 1}).find("1234567890   1234567890") == std::string::npos);  // one beside the first
  CHECK(table.text({false, 44}) == table.text(false));
}

TEST_CASE("a line that is too long is broken between words and indented") {
  CHECK(wrapped("one two three", 8) == "one two\nthree");
  CHECK(wrapped("one two three", 100) == "one two three");
  CHECK(wrapped("± ± ±", 3) == "± ±\n±");
  CHECK(wrapped("incomprehensible word", 4) == "incomprehensible\nword");
  CHECK(wrapped("a  b", 100) == "a  b");
  CHECK(wrapped("", 10).empty());
  const TextStyle narrow(false, 40);
  CHECK(labelled("measured", "eight blocks of four turns", narrow) ==
        "  measured      eight blocks of four\n"
        "                turns\n");
  CHECK(labelled("measured", "eight blocks of four turns", {}) == "  measured      eight blocks of four turns\n");
}

TEST_CASE("Markdown right-aligns numbers and escapes bars") {
  CHECK(some_table().markdown() ==
        "| switch | alone |\n"
        "|---|--:|\n"
        "| amp | +4.1 % ±0.8 |\n"
        "| a\\|b |  |");
}
