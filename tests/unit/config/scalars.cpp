#include "support.h"

#include <cmath>
#include <limits>

using namespace trainopt;
using namespace trainopt::config_test;

TEST_CASE("C5: whole numbers are decimal digits and nothing else") {
  CHECK(parse_integer("0") == 0);
  CHECK(parse_integer("+12") == 12);
  CHECK(parse_integer("-9223372036854775808") == std::numeric_limits<int64_t>::min());
  for (const char* bad : {"", "-", "010", "-01", "0x10", "0o7", "1e3", "1.0", "1_000", " 1", "1 ", "--1", "+-1",
                          "9223372036854775808", "true", "１"})
    CHECK_FALSE(parse_integer(bad).has_value());
}

TEST_CASE("C5: numbers are finite decimals") {
  CHECK(parse_number("1e-3") == 1e-3);
  CHECK(parse_number("1.") == 1.0);
  CHECK(parse_number(".5") == 0.5);
  CHECK(parse_number("-0.5E+2") == -50.0);
  CHECK(parse_number("+7") == 7.0);
  CHECK(parse_number("0.0") == 0.0);
  for (const char* bad : {"", ".", "-", ".nan", ".inf", "-.inf", "nan", "inf", "1e999", "010", "00.5", "0x1p3", "1e",
                          "1,5", "1_0", "1f", "+-1"})
    CHECK_FALSE(parse_number(bad).has_value());
}

TEST_CASE("C5: booleans are true and false; the error for words like yes says which to write") {
  CHECK(parse_boolean("true") == true);
  CHECK(parse_boolean("FALSE") == false);
  std::string reason;
  CHECK_FALSE(parse_boolean("yes", &reason).has_value());
  CHECK(reason == "must be true or false (write true)");
  CHECK_FALSE(parse_boolean("Off", &reason).has_value());
  CHECK(reason == "must be true or false (write false)");
}

TEST_CASE("C5: the message states the key, what was expected and what was found") {
  const auto everything = [](const std::string& option) { return error_of("everything: {" + option + "}\n"); };
  CHECK(everything("count: 010") == "r.yaml:1:21: everything.count: must be a whole number without leading zeros: 010");
  CHECK(everything("count: 1e3") ==
        "r.yaml:1:21: everything.count: must be a whole number, written in digits only: 1e3");
  CHECK(everything("count: 0x10") == "r.yaml:1:21: everything.count: must be a whole number: 0x10");
  CHECK(everything("count: 99999999999999999999") ==
        "r.yaml:1:21: everything.count: must be a whole number that a signed 64-bit integer can hold: "
        "99999999999999999999");
  CHECK(everything("count: \"5\"") == "r.yaml:1:21: everything.count: must be a whole number, without quotes: \"5\"");
  CHECK(everything("count: [5]") == "r.yaml:1:21: everything.count: must be a whole number: a list");
  CHECK(everything("share: .nan") == "r.yaml:1:21: everything.share: must be a finite number: .nan");
  CHECK(everything("share: 1e999") == "r.yaml:1:21: everything.share: must be a number that a double can hold: 1e999");
  CHECK(everything("flag: yes") == "r.yaml:1:20: everything.flag: must be true or false (write true): yes");
  CHECK(everything("flag: \"true\"") ==
        "r.yaml:1:20: everything.flag: must be true or false, without quotes: \"true\"");
  CHECK(everything("size: 4 GBit") == "r.yaml:1:20: everything.size: must be a size such as 512MiB or 4GiB: 4 GBit");
  CHECK(everything("time: soon") == "r.yaml:1:20: everything.time: must be a time such as 90s, 15m or 2h: soon");
  CHECK(everything("mode: neverr") ==
        "r.yaml:1:20: everything.mode: must be one of auto, true, off: neverr (did you mean 'never'?)");
  CHECK(everything("pair: [1]") == "r.yaml:1:20: everything.pair: must be a list of 2 × number: a list of 1");
  CHECK(everything("pair: 0.9") == "r.yaml:1:20: everything.pair: must be a list of 2 × number: 0.9");
  CHECK(everything("widths: 64").find("(write [64])") != std::string::npos);
  CHECK(everything("widths: [1, x]") == "r.yaml:1:26: everything.widths[1]: must be a whole number: x");
  CHECK(everything("text: {a: b}") == "r.yaml:1:20: everything.text: must be a string: a map");
  CHECK(error_of("data: 5\n") == "r.yaml:1:7: data: must be a map of options: 5");
  CHECK(error_of("optimizations: {amp: [1]}\n") ==
        "r.yaml:1:22: optimizations.amp: must be true, false or a map of options: a list");
  CHECK(error_of("optimizations: {amp: float16}\n").find("must be true, false or a map of options (dtype, ") !=
        std::string::npos);
  CHECK(error_of("optimizations: {amp: on}\n").find("(write true)") != std::string::npos);
  CHECK(everything("flag: float16") == "r.yaml:1:20: everything.flag: must be true or false: float16");
}

TEST_CASE("C6: the message states the bounds") {
  CHECK(error_of("data: {batch_size: 0}\n") == "r.yaml:1:20: data.batch_size: must be between 1 and 16777216: 0");
  CHECK(error_of("data: {num_workers: 1025}\n") ==
        "r.yaml:1:21: data.num_workers: must be auto or between 0 and 1024: 1025");
  CHECK(error_of("optimizer: {lr: -0.1}\n") == "r.yaml:1:17: optimizer.lr: must be at least 0: -0.1");
  CHECK(error_of("optimizer: {name: adam, betas: [0.9, 1.0]}\n") ==
        "r.yaml:1:38: optimizer.betas[1]: must be at least 0 and below 1: 1.0");
  CHECK(error_of("everything: {time: 0s}\n") == "r.yaml:1:20: everything.time: must be above 0 s: 0s");
  CHECK(error_of("everything: {size: 0}\n") == "r.yaml:1:20: everything.size: must be at least 1 B: 0");
  CHECK(error_of("everything: {widths: [0]}\n") == "r.yaml:1:23: everything.widths[0]: must be at least 1: 0");
}

TEST_CASE("numbers are written so that YAML 1.1 and 1.2 readers see the same float") {
  CHECK(short_number_text(1e15) == "1e15");
  CHECK(short_number_text(16777216) == "16777216");
  CHECK(short_number_text(0.5) == "0.5");
  CHECK(short_number_text(1e-8) == "1e-08");
  CHECK(number_text(0) == "0.0");
  CHECK(number_text(0.1) == "0.1");
  CHECK(number_text(1e-8) == "1.0e-08");
  CHECK(number_text(1.5e300) == "1.5e+300");
  CHECK(number_text(65536) == "65536.0");
  for (const double value : {1.0 / 3, 4.0 / 3, 5e-324, 1.7976931348623157e308, -0.1, 123456789012345680.0}) {
    const auto back = parse_number(number_text(value));
    REQUIRE(back.has_value());
    CHECK(*back == value);
  }
}

TEST_CASE("a value may be left to the program with the word auto") {
  CHECK(load_text("data: {num_workers: auto}\n").data.num_workers.is_auto());
  CHECK(load_text("data: {num_workers: 3}\n").data.num_workers == 3);
  CHECK(load_text("data: {num_workers: auto}\n", {"data.num_workers=2"}).data.num_workers == 2);
  using Count = AutoOr<int64_t>;
  CHECK(Form<Count>::write(Count()).text == "auto");
  CHECK(Form<Count>::write(Count(3)).text == "3");
  CHECK(error_of("data: {num_workers: Auto}\n") ==
        "r.yaml:1:21: data.num_workers: must be auto or a whole number: Auto");
  const Json either = Form<Count>::schema(at_least(0)).at("anyOf");
  CHECK(either.at(0) == Json{{"const", "auto"}});
  CHECK(either.at(1).at("minimum") == 0);
}
