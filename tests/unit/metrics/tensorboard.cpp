#include "metrics/tensorboard.h"

#include "base/error.h"
#include "metrics/sinks.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <sys/resource.h>

#include <csignal>

using namespace trainopt;

namespace {

std::string hex_of(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return text;
}

std::vector<std::string> payloads(const std::string& file) {
  std::vector<std::string> all;
  std::string_view rest = file;
  while (const auto payload = unframed(rest)) {
    all.emplace_back(*payload);
    rest.remove_prefix(payload->size() + kFrameBytes);
  }
  CHECK(rest.empty());
  return all;
}

std::vector<std::string> events_in(const TemporaryFolder& folder, size_t file) {
  return payloads(folder.text(event_files(folder.path()).at(file).filename().string()));
}

StepRecord row_of_step(int64_t step) {
  StepRecord row;
  row[Metric::step] = static_cast<double>(step);
  row[Metric::loss] = 2.5;
  row[Metric::step_ms] = 4;
  return row;
}

LoggingConfig only_tensorboard() {
  LoggingConfig config;
  config.sinks = {SinkKind::tensorboard};
  return config;
}

bool has(const std::vector<std::string>& events, std::string_view text) {
  return std::any_of(events.begin(), events.end(),
                     [&](const std::string& event) { return event.find(text) != std::string::npos; });
}

}  // namespace

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAu);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62A8AB43u);
  CHECK(crc32c("123456789") == 0xE3069283u);
  CHECK(crc32c("") == 0);
}

// The expected bytes come from the protobuf classes and the checksum of the Python package tensorboard 2.21.
TEST_CASE("the first record of an event file has these bytes") {
  CHECK(hex_of(framed(EventMaker(1.5, 0).file_version())) ==
        "1800000000000000a37f4b22"
        "09000000000000f83f1a0d627261696e2e4576656e743a32"
        "2a28646c");
}

TEST_CASE("events have the bytes that TensorBoard's own classes give") {
  CHECK(hex_of(EventMaker(1.5, 300).scalars({{"loss/loss", 2.5}, {"time/step_ms", -1}})) ==
        "09000000000000f83f10ac022a270a100a096c6f73732f6c6f737315000020400a130a0c74696d652f737465705f6d7315000080bf");
  CHECK(hex_of(EventMaker(1.5, 7).restarted()) == "09000000000000f83f10073a020801");
  CHECK(hex_of(EventMaker(1.5, 7).text("t", "hi")) ==
        "09000000000000f83f10072a190a170a0174420808071200420268694a080a060a0474657874");
  CHECK(hex_of(EventMaker(1.5, 0).session_started({{"b", true}})) ==
        "09000000000000f83f2a4b0a490a1c5f68706172616d735f2f73657373696f6e5f73746172745f696e666f42060801120212004a210a1f"
        "0a0768706172616d7312141a120a070a01621202200129000000000000f83f");
  CHECK(hex_of(EventMaker(1.5, 9).session_ended(SessionStatus::failure)) ==
        "09000000000000f83f10092a420a400a1a5f68706172616d735f2f73657373696f6e5f656e645f696e666f42060801120212004a1a0a18"
        "0a0768706172616d73120d220b080211000000000000f83f");
}

TEST_CASE("a record that is torn or has a wrong bit is not read") {
  const std::string record = framed("some payload");
  CHECK(unframed(record) == "some payload");
  CHECK(unframed(record + "more") == "some payload");
  for (size_t length = 0; length < record.size(); ++length) CHECK(!unframed(record.substr(0, length)));
  for (size_t at = 0; at < record.size(); ++at) {
    std::string wrong = record;
    wrong[at] = static_cast<char>(wrong[at] ^ 4);
    CHECK(!unframed(wrong));
  }
}

TEST_CASE("every metric but the step has a section, which makes its tag") {
  TemporaryFolder folder;
  StepRecord row;
  for (const MetricInfo& metric : kCatalogue) {
    CHECK(!metric.section.empty());
    row[metric.metric] = 1;
  }
  {
    TensorboardSink sink(folder.path(), 0);
    sink.write(row);
  }
  const auto events = events_in(folder, 0);
  REQUIRE(events.size() == 2);
  for (const MetricInfo& metric : kCatalogue)
    CHECK(has(events, fmt::format("{}/{}", metric.section, metric.name)) == (metric.metric != Metric::step));
}

TEST_CASE("a value that was not measured is not in the event") {
  TemporaryFolder folder;
  {
    Sinks sinks(only_tensorboard(), folder.path(), {.fd = -1});
    sinks.write(row_of_step(1));
  }
  const auto events = events_in(folder, 0);
  CHECK(has(events, "loss/loss"));
  CHECK(has(events, "time/step_ms"));
  CHECK(!has(events, "gpu/"));
}

TEST_CASE("hyperparameters are the values of a recipe, one level deep") {
  const Json recipe = {{"name", "a"},
                       {"seed", 3},
                       {"run_dir", nullptr},
                       {"model", {{"name", "mlp"}, {"hidden", {8, 4}}}},
                       {"train", {{"max_time", nullptr}, {"drop_last", true}}},
                       {"logging", {{"every_n_steps", 1}}}};
  CHECK(hyperparameters(recipe) == Json{{"name", "a"},
                                        {"seed", 3},
                                        {"model.name", "mlp"},
                                        {"model.hidden", "[8,4]"},
                                        {"train.max_time", "null"},
                                        {"train.drop_last", true}});
}

TEST_CASE("a resumed run opens a later file, tells where it restarts and removes the earlier end") {
  TemporaryFolder folder;
  const auto run = [&](int64_t after, const char* status) {
    Sinks sinks(only_tensorboard(), folder.path(), {.fd = -1}, after);
    sinks.run_began({{"seed", 1}}, "seed: 1\n");
    sinks.write(row_of_step(after + 1));
    sinks.finish();
    sinks.run_ended({{"status", status}, {"steps", after + 1}, {"samples_per_s", 10}, {"loss", {{"last", 2.5}}}});
  };
  run(0, "failed");
  CHECK(has(events_in(folder, 0), kSessionEndTag));
  CHECK(has(events_in(folder, 0), "at_end/samples_per_s"));
  run(4, "done");
  REQUIRE(event_files(folder.path()).size() == 2);
  const auto first = events_in(folder, 0), second = events_in(folder, 1);
  CHECK(first.size() == 4);
  CHECK(!has(first, "at_end/"));
  CHECK(second.at(1).ends_with(std::string("\x10\x05\x3a\x02\x08\x01")));  // SessionLog.START at step 5
  CHECK(has(second, kSessionEndTag));
  CHECK(event_files(folder.path()).at(0) < event_files(folder.path()).at(1));
}

TEST_CASE("a stopped run has results but no end, because it may be resumed") {
  TemporaryFolder folder;
  {
    TensorboardSink sink(folder.path(), 0);
    sink.run_ended({{"status", "stopped"}, {"steps", 3}, {"samples_per_s", 10}});
  }
  const auto events = events_in(folder, 0);
  CHECK(has(events, "at_end/samples_per_s"));
  CHECK(!has(events, kSessionEndTag));
}

TEST_CASE("the receipts are a table, whatever characters they contain") {
  TemporaryFolder folder;
  {
    TensorboardSink sink(folder.path(), 0);
    sink.run_ended(
        {{"receipts",
          {{"amp", {{"requested", "bf16"}, {"observed", "a|b\nc"}, {"effective", false}, {"reason", "none"}}}}}});
  }
  CHECK(has(events_in(folder, 0), "| amp | bf16 | a\\|b c | no: none |\n"));
}

TEST_CASE("on a full disk whole events are dropped and counted, and later ones stay readable") {
  TemporaryFolder folder;
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  TensorboardSink sink(folder.path(), 0);
  sink.write(row_of_step(1));
  sink.flush();
  const auto file = event_files(folder.path()).at(0);
  rlimit small = before;
  small.rlim_cur = std::filesystem::file_size(file) + 20;
  setrlimit(RLIMIT_FSIZE, &small);
  sink.write(row_of_step(2));
  sink.write(row_of_step(3));
  sink.flush();
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);
  sink.write(row_of_step(4));
  sink.flush();
  CHECK(sink.dropped_lines() == 2);
  CHECK(events_in(folder, 0).size() == 3);
}

TEST_CASE("an event file that cannot be opened is an error at the start") {
  CHECK_THROWS_AS(TensorboardSink("/nowhere/at/all", 0), UserError);
}
