#include "metrics/catalogue.h"

#include "support/catch.h"

#include <set>
#include <string>

using namespace trainopt;

TEST_CASE("the catalogue has a row for each metric, in the order of the record") {
  std::set<std::string_view> names;
  for (size_t i = 0; i < kMetricCount; ++i) {
    CHECK(kCatalogue[i].metric == static_cast<Metric>(i));
    CHECK(names.insert(kCatalogue[i].name).second);
    CHECK(!kCatalogue[i].meaning.empty());
    CHECK(kCatalogue[i].meaning.back() == '.');
    CHECK(!kCatalogue[i].why_null.empty());
  }
}

TEST_CASE("a metric's name ends in its unit") {
  for (const MetricInfo& metric : kCatalogue) {
    const std::string name(metric.name), unit(metric.unit);
    CHECK(name.ends_with("_ms") == (unit == "ms"));
    CHECK(name.ends_with("_pct") == (unit == "%"));
    CHECK(name.ends_with("_mib") == (unit == "MiB"));
    CHECK(name.ends_with("_per_s") == (unit == "1/s"));
    CHECK(name.ends_with("_j") == (unit == "J"));
  }
}

TEST_CASE("new values are all unmeasured") {
  const Values values;
  for (const MetricInfo& metric : kCatalogue) CHECK(!values[metric.metric]);
}
