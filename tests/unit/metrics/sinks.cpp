#include "metrics/sinks.h"

#include "base/error.h"
#include "base/json.h"
#include "metrics/format.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

using namespace trainopt;

namespace {

StepRecord row_of(int64_t step) {
  StepRecord row;
  row[Metric::step] = static_cast<double>(step);
  row[Metric::samples] = static_cast<double>(step * 32);
  return row;
}

LoggingConfig files_only() {
  LoggingConfig config;
  config.sinks = {SinkKind::jsonl, SinkKind::csv};
  return config;
}

}  // namespace

TEST_CASE("a row has this exact JSON and CSV line") {
  StepRecord row = row_of(12);
  row[Metric::epoch] = 384.0 / 10000;
  row[Metric::loss] = static_cast<double>(2.3012f);
  row[Metric::learning_rate] = 0.001;
  row[Metric::step_ms] = 25.75;
  row[Metric::data_wait_ms] = 0.0;
  row[Metric::gpu_throttle] = 36;
  CHECK(
      json_line(row) ==
      "{\"step\":12,\"epoch\":0.0384,\"samples\":384,\"loss\":2.30119991,\"learning_rate\":0.001,\"grad_norm\":null,"
      "\"loss_scale\":null,\"nonfinite\":null,"
      "\"step_ms\":25.75,\"data_wait_ms\":0,\"copy_ms\":null,\"device_ms\":null,"
      "\"forward_ms\":null,\"backward_ms\":null,\"update_ms\":null,\"samples_per_s\":null,"
      "\"tokens_per_s\":null,\"mfu_pct\":null,\"comm_exposed_ms\":null,"
      "\"all_reduce_mib\":null,\"reduce_scatter_mib\":null,\"all_gather_mib\":null,\"broadcast_mib\":null,"
      "\"send_mib\":null,\"storage_mib\":null,\"cache_hit_pct\":null,"
      "\"parameters_mib\":null,\"gradients_mib\":null,\"optimizer_mib\":null,\"gpu_util_pct\":null,"
      "\"gpu_sm_util_pct\":null,\"gpu_tensor_util_pct\":null,\"gpu_memory_used_mib\":null,"
      "\"memory_allocated_mib\":null,\"memory_reserved_mib\":null,\"memory_active_mib\":null,\"memory_peak_pct\":null,"
      "\"alloc_retries\":null,\"device_allocs\":null,\"device_frees\":null,\"gpu_power_w\":null,"
      "\"gpu_sm_clock_mhz\":null,\"gpu_throttle\":36,\"cpu_util_pct\":null,"
      "\"other_cpu_pct\":null,\"process_rss_mib\":null,\"energy_j\":null}\n");
  CHECK(csv_line(row) == "12,0.0384,384,2.30119991,0.001,,,,25.75,0,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,,36,,,,\n");
}

TEST_CASE("the CSV header lists the catalogue's names") {
  CHECK(csv_header().starts_with("step,epoch,samples,loss,learning_rate,"));
  CHECK(csv_header().ends_with(",cpu_util_pct,other_cpu_pct,process_rss_mib,energy_j\n"));
}

TEST_CASE("a written loss parses back to the same float") {
  uint32_t bits = 1;
  for (int i = 0; i < 20000; ++i) {
    bits = bits * 1664525u + 1013904223u;
    float loss;
    std::memcpy(&loss, &bits, sizeof loss);
    if (!std::isfinite(loss)) continue;
    StepRecord row = row_of(1);
    row[Metric::loss] = static_cast<double>(loss);
    const auto back = static_cast<float>(Json::parse(json_line(row)).at("loss").get<double>());
    REQUIRE(std::memcmp(&back, &loss, sizeof loss) == 0);
  }
}

TEST_CASE("a non-finite value is valid JSON and differs from an unmeasured one") {
  StepRecord row = row_of(1);
  row[Metric::loss] = std::numeric_limits<double>::quiet_NaN();
  row[Metric::grad_norm] = -std::numeric_limits<double>::infinity();
  const Json json = Json::parse(json_line(row));
  CHECK(json.at("loss") == "NaN");
  CHECK(json.at("grad_norm") == "-Infinity");
  CHECK(json.at("step_ms").is_null());
  CHECK(csv_line(row).starts_with("1,,32,nan,,-inf,"));
  CHECK(console_line(row, 0) == "step       1  loss nan");
}

TEST_CASE("the console line shows GPU load and memory, or else those of the process") {
  StepRecord row = row_of(12);
  row[Metric::loss] = 2.30124;
  row[Metric::samples_per_s] = 1243.2;
  row[Metric::step_ms] = 25.74;
  row[Metric::data_wait_ms] = 0.31;
  row[Metric::gpu_util_pct] = 97.2;
  row[Metric::cpu_util_pct] = 55;
  row[Metric::memory_reserved_mib] = 11.3 * 1024;
  row[Metric::process_rss_mib] = 3000;
  CHECK(console_line(row, 100) ==
        "step   12/100  loss 2.3012  1243 samples/s  step 25.7 ms  data 0.3 ms (1 %)  gpu 97 %  mem 11.3 GiB");
  row[Metric::gpu_util_pct].reset();
  row[Metric::memory_reserved_mib].reset();
  row[Metric::process_rss_mib] = 812;
  row[Metric::samples_per_s] = 12.34;
  CHECK(console_line(row, 100) ==
        "step   12/100  loss 2.3012  12.3 samples/s  step 25.7 ms  data 0.3 ms (1 %)  cpu 55 %  mem 812.0 MiB");
}

TEST_CASE("both files contain every n-th row, the first and the last") {
  TemporaryFolder folder;
  LoggingConfig config = files_only();
  config.every_n_steps = 4;
  {
    Sinks sinks(config, folder.path(), {.fd = -1});
    for (int64_t step = 1; step <= 10; ++step) sinks.write(row_of(step));
    sinks.finish();
  }
  const std::string lines = folder.text("metrics.jsonl");
  std::vector<int64_t> steps;
  std::stringstream stream(lines);
  for (std::string line; std::getline(stream, line);) steps.push_back(Json::parse(line).at("step"));
  CHECK(steps == std::vector<int64_t>{1, 4, 8, 10});
  CHECK(folder.text("metrics.csv") ==
        csv_header() + csv_line(row_of(1)) + csv_line(row_of(4)) + csv_line(row_of(8)) + csv_line(row_of(10)));
}

TEST_CASE("a resumed run appends without a second header") {
  TemporaryFolder folder;
  for (int64_t step = 1; step <= 2; ++step) {
    Sinks sinks(files_only(), folder.path(), {.fd = -1});
    sinks.write(row_of(step));
    sinks.finish();
  }
  CHECK(folder.text("metrics.csv") == csv_header() + csv_line(row_of(1)) + csv_line(row_of(2)));
  CHECK(folder.text("metrics.jsonl") == json_line(row_of(1)) + json_line(row_of(2)));
}

TEST_CASE("ranks.jsonl has the times of every rank in every recorded step, and exists only with several ranks") {
  LoggingConfig config = files_only();
  config.every_n_steps = 2;
  config.sinks.clear();
  for (const int64_t ranks : {1, 2}) {
    TemporaryFolder folder;
    {
      Sinks sinks(config, folder.path(), {.fd = -1}, 0, ranks);
      for (int64_t step = 1; step <= 3; ++step) {
        StepRecord row = row_of(step);
        if (ranks > 1)
          row.ranks = {{.step_ms = 20.5, .data_wait_ms = 1, .comm_exposed_ms = 4},
                       {.step_ms = 21, .data_wait_ms = 0, .comm_exposed_ms = 0.25}};
        sinks.write(row);
      }
      sinks.finish();
    }
    CHECK(std::filesystem::exists(folder.path() / "ranks.jsonl") == (ranks > 1));
    if (ranks == 1) continue;
    const std::string times =
        R"(,"step_ms":[20.5,21],"data_wait_ms":[1,0],"comm_exposed_ms":[4,0.25],"busy_ms":[16.5,20.75]})"
        "\n";
    CHECK(folder.text("ranks.jsonl") == R"({"step":1)" + times + R"({"step":2)" + times + R"({"step":3)" + times);
  }
}

TEST_CASE("a file that cannot be opened is an error at the start") {
  CHECK_THROWS_AS(Sinks(files_only(), "/nowhere/at/all", {.fd = -1}), UserError);
}

TEST_CASE("on a full disk lines are dropped and counted") {
  LineFile full("/dev/full");
  full.write("one\n");
  full.write("two\n");
  CHECK(full.dropped_lines() == 0);
  full.flush();
  CHECK(full.dropped_lines() == 2);
  full.write("three\n");
  full.flush();
  CHECK(full.dropped_lines() == 3);
}

TEST_CASE("a torn line is cut off, so that later lines stay intact") {
  TemporaryFolder folder;
  const auto path = folder.path() / "lines";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  LineFile file(path);
  rlimit small = before;
  small.rlim_cur = 10;
  setrlimit(RLIMIT_FSIZE, &small);
  file.write("1234567\n");
  file.write("abcdefg\n");
  file.flush();
  setrlimit(RLIMIT_FSIZE, &before);
  file.write("later\n");
  file.flush();
  std::signal(SIGXFSZ, old_handler);
  CHECK(file.dropped_lines() == 1);
  CHECK(folder.text("lines") == "1234567\nlater\n");
}
