#include "support.h"
#include "support/sanitized.h"

#include <sys/resource.h>

#include <ctime>

using namespace trainopt;
using namespace trainopt::config_test;

namespace {

/// Checks that loading takes less than a second of CPU time and fails with one short problem that contains `message`.
void check_rejected(const std::string& text, const std::string& message) {
  const std::clock_t start = std::clock();
  const std::string error = error_of(text);
  CHECK_THAT(error, ContainsSubstring(message));
  CHECK(error.size() < 1000);
  CHECK(std::clock() - start < CLOCKS_PER_SEC);
}

}  // namespace

TEST_CASE("C1: errors for a missing file, a folder and an unreadable path name the path and the reason") {
  const auto error = [](const std::string& path) {
    try {
      load<Recipe>({{path}, {}});
    } catch (const UserError& e) {
      CHECK(e.code() == ExitCode::recipe);
      return std::string(e.what());
    }
    return std::string();
  };
  CHECK(error("/nowhere/recipe.yaml") == "cannot read /nowhere/recipe.yaml: No such file or directory");
  CHECK(error("/tmp") == "cannot read /tmp: Is a directory");
  CHECK_THAT(error("/dev/null/recipe.yaml"), ContainsSubstring("Not a directory"));
}

TEST_CASE("C2: a syntax error names file, line and column") {
  CHECK(error_of("seed: 1\ndata: {size: 1\n") == "r.yaml:3:1: not valid YAML: end of map flow not found");
  CHECK_THAT(error_of("seed: 1\nname: a: b\n"), ContainsSubstring("r.yaml:2:"));
  CHECK_THAT(error_of("name: *nowhere\n"), ContainsSubstring("r.yaml:1:7: not valid YAML"));
  CHECK_THAT(error_of("- a\nseed: 1\n"), ContainsSubstring("r.yaml:2:1: this does not continue the lines above"));
}

TEST_CASE("C4: a duplicate key names both lines") {
  CHECK(error_of("seed: 1\nname: a\nseed: 2\n") == "r.yaml:3:1: the key seed is given twice, first in line 1");
  CHECK(error_of("data: {size: 1, size: 2}\n") == "r.yaml:1:17: the key size is given twice, first in line 1");
}

TEST_CASE("C9: hostile and broken files are rejected quickly, with a reason") {
  std::string bomb = "a: &a [x, x, x, x, x, x, x, x, x, x]\n";
  for (char c = 'b'; c <= 'i'; ++c) {
    bomb += fmt::format("{}: &{} [", c, c);
    for (int i = 0; i < 10; ++i) bomb += fmt::format("{}*{}", i ? ", " : "", static_cast<char>(c - 1));
    bomb += "]\n";
  }
  check_rejected(bomb, "with aliases expanded");
  check_rejected("a: &a " + std::string(900'000, 'x') + "\nb: [*a, *a, *a, *a, *a, *a]\n", "bytes of text");
  check_rejected(std::string(1 << 20, '['), "brackets, commas and colons");
  check_rejected("{" + std::string(190'000, ','), "r.yaml:");
  std::string shells;  // each anchor contains all those inside it
  for (int i = 0; i < 60; ++i) shells += fmt::format("&a{} [", i);
  for (int i = 0; i < 50'000; ++i) shells += "1,";
  check_rejected("a: " + shells + std::string(60, ']'), "with aliases expanded");
  check_rejected("name: &a [*a]\n", "an alias inside the value that it refers to");
  check_rejected("name: " + std::string(10'000, '['), "nested more than 64 levels deep");
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  check_rejected(deep, "nested more than 64 levels deep");
  check_rejected("a:\n  " + std::string(20'000, '-'), "unknown key");
  check_rejected(std::string((1 << 20) + 1, '#'), "is too large");
  check_rejected(std::string("seed: 1\nname: a\0b\n", 17), "r.yaml:2:8: control byte 0x00");
  check_rejected("name: \"a\\0b\"\n", "NUL");
  check_rejected("name: \"a\\N\"\n", "r.yaml:1:7: an escape produces a byte that is not UTF-8: 0x85");
  check_rejected("\"a\\_\": 1\n", "an escape produces a byte that is not UTF-8: 0xA0");
  check_rejected("seed: 1\nname: \xC3(\n", "r.yaml:2:7: is not UTF-8: byte 0xC3");
  check_rejected("name: \xED\xA0\x80\n", "is not UTF-8");
  check_rejected(std::string("\xFF\xFE"
                             "a\0:\0",
                             6),
                 "is UTF-16");
  check_rejected("seed: 1\n---\nseed: 2\n", "r.yaml:2:1: a second document starts here");
  check_rejected("", "r.yaml: is empty");
  check_rejected("# only a comment\n", "is empty");
  check_rejected("~\n", "is empty");
  check_rejected("[1, 2]\n", "a recipe must be a map");
  check_rejected("just words\n", "a recipe must be a map");
}

TEST_CASE("a file with many unknown keys is rejected quickly and briefly") {
  std::string text;
  for (int i = 0; i < 45'000; ++i) text += fmt::format("k{}: 1\n", i);
  const std::clock_t start = std::clock();
  TemporaryFile file(text);
  try {
    load<Recipe>({{file.path()}, {}});
    FAIL("45,000 unknown keys were accepted");
  } catch (const RecipeErrors& errors) {
    CHECK(errors.problems().size() == 45'000);
    CHECK_THAT(errors.what(), ContainsSubstring("and 44800 more"));
  }
  if (kSanitized) return;
  CHECK(std::clock() - start < CLOCKS_PER_SEC);
  struct rusage usage {};
  getrusage(RUSAGE_SELF, &usage);
  CHECK(usage.ru_maxrss < 100 * 1024);  // KiB; the peak of all tests so far
}

TEST_CASE("merge keys, tags and keys that are not plain words are rejected") {
  check_rejected("a: &a {seed: 1}\ndata:\n  <<: *a\n", "merge keys (<<) are not allowed");
  check_rejected("name: !!str 12\n", "r.yaml:1:7: tags are not allowed in a recipe: !!str");
  check_rejected("name: !!str null\n", "tags are not allowed");
  check_rejected("name: ! x\n", "tags are not allowed");
  check_rejected("name: &anchor ! x\n", "tags are not allowed");
  check_rejected("data: !!python/object {}\n", "tags are not allowed");
  check_rejected("? [a, b]\n: 1\n", "a key must be a plain word");
  check_rejected("{[a]: 1, {b: c}: d, e: f}\n", "r.yaml:1:2: a key must be a plain word");
  check_rejected("name: &n x\n*n : 1\n", "a key must be a plain word");
  check_rejected("~: 1\n", "a key is missing or null");
}

TEST_CASE("CRLF, a UTF-8 byte order mark, anchors and aliases are accepted") {
  CHECK(load_text("seed: 3\r\nname: x\r\n").seed == 3);
  CHECK(load_text("seed: 3\r\nname: x\r\n").name == "x");
  CHECK(load_text("\xEF\xBB\xBFseed: 4\n").seed == 4);
  const Recipe recipe = load_text("seed: &n 7\ndata: {size: *n}\neverything: {widths: &w [1, 2], text: \"&w\"}\n");
  CHECK(recipe.data.size == 7);
  CHECK(recipe.everything.widths == std::vector<int64_t>{1, 2});
  CHECK(load_text("name: Größe\n").name == "Größe");
  CHECK(load_text("{}\n").seed == 0);
  CHECK(load_text("---\nseed: 2\n...\n").seed == 2);
}
