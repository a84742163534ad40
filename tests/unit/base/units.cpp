#include "base/units.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("sizes and durations are parsed from recipe notation, and anything else is rejected") {
  CHECK(parse_bytes("4GiB")->count == int64_t{4} << 30);
  CHECK(parse_bytes("1.5 MiB")->count == 1536 * 1024);
  CHECK(parse_bytes("1GB")->count == 1000000000);
  CHECK(parse_bytes("77")->count == 77);
  CHECK(parse_duration("90s")->seconds == 90);
  CHECK(parse_duration("15m")->seconds == 900);
  CHECK(parse_duration("100ms")->seconds == Approx(0.1));
  for (const char* bad : {"", "GiB", "4 gib", "-1GiB", "inf", "nan", "4GiBx", "1e400", "99999999999TiB"})
    CHECK_FALSE(parse_bytes(bad));
  for (const char* bad : {"", "m", "15 minutes", "-1s", "1h30m"}) CHECK_FALSE(parse_duration(bad));
}

TEST_CASE("a share is a percentage or a fraction between 0 and 1") {
  CHECK(parse_share("3%") == 0.03);
  CHECK(parse_share("0.5%") == 0.005);
  CHECK(parse_share("0.01") == 0.01);
  for (const char* bad : {"", "%", "0", "0%", "1", "100%", "-1%", "3 %", "3%%", "3x", "nan", "inf", "1e999"})
    CHECK_FALSE(parse_share(bad));
}

TEST_CASE("printed sizes and durations parse back to the same value") {
  for (const int64_t count :
       {int64_t{0}, int64_t{1}, int64_t{1} << 10, int64_t{4} << 30, int64_t{1536} << 20, int64_t{12345}})
    CHECK(parse_bytes(to_text(Bytes{count}))->count == count);
  for (const double seconds : {0.0, 0.1, 1.0, 90.0, 900.0, 7200.0, 0.0125})
    CHECK(parse_duration(to_text(Duration{seconds}))->seconds == Approx(seconds));
}
