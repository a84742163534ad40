#include "report/charts/axis.h"

#include "report/charts/svg.h"

#include "support/catch.h"

#include <cmath>
#include <limits>

namespace trainopt::report {
namespace {

std::string texts(const std::vector<Tick>& ticks) {
  std::string out;
  for (const auto& tick : ticks) out += (out.empty() ? "" : " ") + tick.text;
  return out;
}

}  // namespace

TEST_CASE("numbers as text have no digits too many", "[report]") {
  CHECK(number_text(0) == "0");
  CHECK(number_text(-0.0) == "0");
  CHECK(number_text(0.1 + 0.2) == "0.3");
  CHECK(number_text(1234.5678) == "1,234.57");
  CHECK(number_text(-1234.5678, 3) == "−1.23×10³");
  CHECK(number_text(999999.6) == "1×10⁶");
  CHECK(number_text(1234567, 12) == "1,234,567");
  CHECK(number_text(1e12) == "1×10¹²");
  CHECK(number_text(-1.25e-7) == "−1.25×10⁻⁷");
  CHECK(number_text(1.7976931348623157e308) == "1.79769×10³⁰⁸");
  CHECK(number_text(std::nan("")) == "–");
  CHECK(number_text(std::numeric_limits<double>::infinity()) == "–");
  CHECK(number_text(4.9e-324) == "4.94066×10⁻³²⁴");
  CHECK(rounded(0.123456789) == 0.123457);
  CHECK(rounded(-123456789) == -123457000);
}

TEST_CASE("ticks are round numbers within the range", "[report]") {
  CHECK(texts(ticks({0, 1}, 5)) == "0.0 0.2 0.4 0.6 0.8 1.0");
  CHECK(texts(ticks({-3, 12}, 5)) == "0 5 10");
  CHECK(texts(ticks({-0.02, 0.02}, 4)) == "−0.02 −0.01 0.00 0.01 0.02");
  CHECK(texts(ticks({0, 20000}, 4)) == "0 5,000 10,000 15,000 20,000");
  CHECK(texts(ticks({0, 2e6}, 4)) == "0 0.5×10⁶ 1×10⁶ 1.5×10⁶ 2×10⁶");
  CHECK(texts(ticks({0, 3e-9}, 3)) == "0 1×10⁻⁹ 2×10⁻⁹ 3×10⁻⁹");
  CHECK(texts(ticks({7, 8}, 5, true)) == "7 8");
  CHECK(texts(ticks({6.5, 7.5}, 5, true)) == "7");
  for (const auto& range : {Range{1e12, 1.0001e12}, Range{-1e-12, 5e-12}, Range{0, 1e300}, Range{-7, -6.9999}}) {
    const auto made = ticks(range, 5);
    CHECK(made.size() >= 2);
    CHECK(made.size() <= 12);
    for (size_t i = 1; i < made.size(); ++i) CHECK(made[i].text != made[i - 1].text);
    const double slack = 1e-9 * range.span();
    for (const auto& tick : made) CHECK((tick.at >= range.low - slack && tick.at <= range.high + slack));
  }
}

TEST_CASE("ratios have ticks on a logarithmic axis", "[report]") {
  CHECK(texts(ratio_ticks({0.95, 1.05}, 2)) == "0.95× 1.00× 1.05×");
  CHECK(texts(ratio_ticks({0.4, 6}, 8)) == "0.5× 1× 2× 5×");
  CHECK(texts(ratio_ticks({1e-4, 1e4}, 20)) == "0.0001× 0.001× 0.01× 0.1× 1× 10× 100× 1,000× 10,000×");
}

TEST_CASE("a padded range contains its values", "[report]") {
  for (const auto& [low, high] : std::initializer_list<std::pair<double, double>>{
           {0, 0}, {5, 5}, {-5, -5}, {1e12, 1e12}, {1e12, 1e12 + 1}, {-1e308, 1e308}, {1e-12, 2e-12}, {-3, 7}})
    for (const bool from_zero : {false, true}) {
      const Range range = padded(low, high, from_zero);
      INFO(low << " to " << high);
      CHECK(range.span() > 0);
      CHECK(std::isfinite(range.span()));
      CHECK(range.low <= std::max(low, -1e300));
      CHECK(range.high >= std::min(high, 1e300));
      if (from_zero) CHECK((range.low <= 0 && range.high >= 0));
    }
  CHECK(padded(20, 80, true, 100).high == 100);
  CHECK(padded(std::nan(""), std::nan("")).span() > 0);
}

TEST_CASE("paths are short and do not drift", "[report]") {
  Path path;
  path.move(0, 10);
  path.line(0.5, 9.75);
  path.line(10, 12);
  path.close();
  path.move(1, 1);
  path.line(1, 1);
  CHECK(path.data() == "M0 10l.5-.2 9.5 2.2zm1-9l0 0");
  Path thirds;
  thirds.move(0, 0);
  for (int i = 1; i <= 3000; ++i) thirds.line(i / 3.0, 0);
  double x = 0;
  const std::string data = thirds.data().substr(5);
  for (size_t at = 0; at < data.size();) {
    size_t used = 0;
    x += std::stod(data.substr(at), &used);
    at += used;
    std::stod(data.substr(at), &used);
    at += used;
  }
  CHECK(x == Approx(1000));
  CHECK(percent(1.0 / 3) == "33.33%");
  CHECK(percent(1) == "100%");
}

}  // namespace trainopt::report
