#include "report/lines.h"

#include "base/files/files.h"
#include "support/temporary_folder.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <map>

using namespace trainopt;
using namespace trainopt::report;

namespace {

using Row = std::map<std::string, double>;

struct ReadFile {
  LinesRead read;
  std::vector<Row> rows;
};

ReadFile read_text(const std::string& text) {
  const TemporaryFolder folder;
  write_file(folder.path() / "lines.jsonl", text);
  ReadFile result;
  result.read = read_number_lines(folder.path() / "lines.jsonl", [&](const NumberLine& line) {
    Row row;
    for (size_t i = 0; i < line.values.size(); ++i)
      if (line.values[i]) row[line.names[i]] = *line.values[i];
    result.rows.push_back(row);
  });
  return result;
}

}  // namespace

TEST_CASE("lines of numbers are read by name") {
  const auto [read, rows] = read_text(
      "{\"step\":1,\"loss\":2.5,\"grad_norm\":null,\"text\":\"x\"}\n"
      "{\"loss\":-1e-3,\"step\":2,\"new\":7}\n");
  CHECK(read.lines == 2);
  CHECK(read.note("lines.jsonl").empty());
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == Row{{"step", 1}, {"loss", 2.5}});
  CHECK(rows[1] == Row{{"step", 2}, {"loss", -1e-3}, {"new", 7}});
}

TEST_CASE("numbers of an array are fields, nested objects are not") {
  const auto [read, rows] =
      read_text("{\"busy_ms\":[1,2.5,null],\"ranks\":{\"step_ms\":9},\"step\":3}\n{\"step\":4,\"busy_ms\":[5]}\n");
  REQUIRE(rows.size() == 2);
  CHECK(rows[0] == Row{{"busy_ms.0", 1}, {"busy_ms.1", 2.5}, {"step", 3}});
  CHECK(rows[1] == Row{{"busy_ms.0", 5}, {"step", 4}});
}

TEST_CASE("numbers that are not finite are read as trainopt writes them") {
  const auto [read, rows] = read_text("{\"a\":\"NaN\",\"b\":\"Infinity\",\"c\":\"-Infinity\"}\n");
  REQUIRE(rows.size() == 1);
  CHECK(std::isnan(rows[0].at("a")));
  CHECK(rows[0].at("b") == INFINITY);
  CHECK(rows[0].at("c") == -INFINITY);
}

TEST_CASE("a file that ends in the middle of a line is read up to there") {
  const auto [read, rows] = read_text("{\"step\":1}\n{\"step\":2");
  CHECK(rows.size() == 1);
  CHECK(read.cut_off);
  CHECK(read.note("metrics.jsonl") == "metrics.jsonl: the last line is cut off and was left out");
}

TEST_CASE("lines that are not objects are left out and counted") {
  const auto [read, rows] = read_text("{\"step\":1}\n[1]\n\n{\"step\":tru}\n{\"step\":2}\n\xff\n{\"st");
  CHECK(rows.size() == 2);
  CHECK(read.unreadable == 3);
  CHECK(read.note("m") ==
        "m: 3 lines could not be read and were left out, the first in line 2; the last line is cut off");
}

TEST_CASE("lines longer than the buffer are read whole") {
  std::string line = "{\"step\":1,\"text\":\"" + std::string(3'000'000, 'x') + "\",\"loss\":4}\n";
  const auto [read, rows] = read_text(line + line + "{\"step\":2}\n");
  REQUIRE(rows.size() == 3);
  CHECK(rows[1] == Row{{"step", 1}, {"loss", 4}});
  CHECK(rows[2] == Row{{"step", 2}});
}

TEST_CASE("a file that is not there has no lines") {
  CHECK(read_number_lines("/nonexistent/lines.jsonl", [](const NumberLine&) { FAIL(); }).lines == 0);
}
