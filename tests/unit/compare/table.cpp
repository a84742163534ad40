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

TEST_CASE("Markdown right-aligns numbers and escapes bars") {
  CHECK(some_table().markdown() ==
        "| switch | alone |\n"
        "|---|--:|\n"
        "| amp | +4.1 % ±0.8 |\n"
        "| a\\|b |  |");
}
