#include "metrics/environment.h"

#include "device/device.h"
#include "device/process.h"
#include "support/catch.h"

using namespace trainopt;

TEST_CASE("the environment has versions, hardware and reasons for missing metrics, but no host name") {
  const Json json = environment({"1.2.3", "0123456789ab+dirty"}, {{"gpu_util_pct", "the run uses no GPU"}},
                                "libno-such-library.so.1");
  CHECK(json.at("schema_version") == 1);
  CHECK(json.at("trainopt") == "1.2.3");
  CHECK(json.at("commit") == "0123456789ab+dirty");
  CHECK_THAT(json.at("libtorch").get<std::string>(), Catch::Matchers::StartsWith("2."));
  CHECK(json.at("cpu").at("cores_allowed") == allowed_cores());
  CHECK(json.at("cpu").at("cores_online").get<int>() >= allowed_cores());
  CHECK(json.at("memory_mib").get<int64_t>() > 256);
  CHECK(json.at("gpus").size() == static_cast<size_t>(cuda_count()));
  CHECK(json.at("driver").is_null());
  CHECK_THAT(json.at("kernel").get<std::string>(), Catch::Matchers::StartsWith("Linux "));
  CHECK(json.at("not_measured") == Json{{"gpu_util_pct", "the run uses no GPU"}});
  CHECK(!json.contains("hostname"));
}
