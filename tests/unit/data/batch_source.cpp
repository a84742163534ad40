#include "data/batch_source.h"
#include "data/loader_bench.h"

#include "base/error.h"
#include "base/files/safetensors.h"
#include "probe.h"
#include "support/catch.h"

#include <unistd.h>

#include <cstring>

using namespace trainopt;

TEST_CASE("on the CPU a batch is a view of the loader's memory, valid until the next call") {
  LoadedData data;
  data.batch_size = 4;
  data.num_workers = 2;
  data.persistent_workers = true;
  data.accumulation = 3;
  const auto dataset = std::make_shared<ProbeDataset>(30, 8);
  auto batches = make_batches(data, dataset);
  REQUIRE(batches->schedule().steps_per_epoch() == 2);
  for (int64_t i = 0; i < 30; ++i) {
    const Batch batch = batches->next();
    REQUIRE(batch.step == i / 3);
    REQUIRE(batch.micro == i % 3);
    REQUIRE(batch.is_first == (i % 3 == 0));
    REQUIRE(batch.is_last == (i % 3 == 2));
    REQUIRE(batch.epoch == i / 6);
    REQUIRE(batch.weight == Approx(1.0 / 3));
    REQUIRE(batch.step_items == 12);
    const at::Tensor before = batch.input.clone();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));  // the workers keep running
    REQUIRE(at::equal(batch.input, before));
    for (int64_t k = 0; k < 4; ++k) {
      REQUIRE(batch.target[k].item<int64_t>() == batch.sample_ids[static_cast<size_t>(k)] % 10);
      REQUIRE(batch.input[k][0][0][0].item<float>() ==
              static_cast<float>(ProbeDataset::pixel(batch.sample_ids[static_cast<size_t>(k)], 0)) / 255.0f);
    }
  }
  const auto stats = batches->take_stats();
  REQUIRE(stats.bytes_copied == 0);
  REQUIRE_FALSE(stats.copy_ms.has_value());
  REQUIRE(stats.data_wait_ms > 0);
  REQUIRE(stats.work->samples >= 120);  // and what was prefetched
  REQUIRE(batches->take_stats().data_wait_ms == 0);
}

TEST_CASE("synthetic batches repeat one batch, whose values do not depend on the number of ranks") {
  LoadedData data;
  data.synthetic = {.samples = 20, .side = 9, .num_classes = 3};
  data.batch_size = 8;
  data.drop_last = false;
  auto source = make_batches(data, nullptr);
  const Batch first = source->next(), second = source->next(), last = source->next();
  REQUIRE_FALSE(source->take_stats().work.has_value());
  REQUIRE(first.input.data_ptr() == second.input.data_ptr());
  REQUIRE(last.items == 4);
  REQUIRE(last.step_items == 4);
  REQUIRE(last.input.size(0) == 4);
  REQUIRE(source->next().epoch == 1);
  CHECK(std::abs(first.input.mean().item<float>()) < 0.1f);
  CHECK(first.input.std().item<float>() == Approx(1).margin(0.05));
  CHECK(first.target.max().item<int64_t>() < 3);
  data.batch_size = 4;
  data.ranks = 2;
  std::vector<at::Tensor> inputs, targets;
  for (data.rank = 0; data.rank < 2; ++data.rank) {
    const Batch batch = make_batches(data, nullptr)->next();
    inputs.push_back(batch.input);
    targets.push_back(batch.target);
  }
  REQUIRE(at::equal(at::cat(inputs), first.input));
  REQUIRE(at::equal(at::cat(targets), first.target));
}

TEST_CASE("an export contains the steps as the model receives them") {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("trainopt-export-{}.safetensors", ::getpid());
  LoadedData data;
  data.batch_size = 4;
  data.num_workers = 2;
  data.drop_last = false;
  data.accumulation = 2;
  BatchRequest request;
  request.format.memory_format = at::MemoryFormat::ChannelsLast;
  const auto dataset = std::make_shared<ProbeDataset>(13, 5);
  export_steps(*make_batches(data, dataset, request), 3, path);  // 8, 5 and 8 samples
  const SafetensorsFile file(path);
  REQUIRE(file.entries().size() == 9);
  std::vector<SafetensorsEntry> entries = file.entries();
  std::vector<std::string> bytes;
  for (const auto& entry : entries) bytes.emplace_back(entry.bytes, '\0');
  file.read([&](size_t i) {
    entries[i].data = bytes[i].data();
    return bytes[i].data();
  });
  const auto find = [&](const std::string& name) {
    for (const auto& entry : entries)
      if (entry.name == name) return entry;
    FAIL(name);
    return SafetensorsEntry{};
  };
  const int64_t counts[] = {8, 5, 8};
  for (int64_t step = 1; step <= 3; ++step) {
    const int64_t count = counts[step - 1];
    const auto input = find(fmt::format("step-{:08}.input", step)),
               target = find(fmt::format("step-{:08}.target", step));
    const auto ids = find(fmt::format("step-{:08}.sample_id", step));
    REQUIRE(input.dtype == "F32");
    REQUIRE(input.shape == std::vector<int64_t>{count, 3, 5, 5});
    REQUIRE(target.dtype == "I64");
    REQUIRE(ids.shape == std::vector<int64_t>{count});
    for (int64_t i = 0; i < count; ++i) {
      int64_t sample = 0, label = 0;
      std::memcpy(&sample, static_cast<const char*>(ids.data) + 8 * i, 8);
      std::memcpy(&label, static_cast<const char*>(target.data) + 8 * i, 8);
      REQUIRE(label == sample % 10);
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t p = 0; p < 25; ++p) {
          float value = 0;
          std::memcpy(&value, static_cast<const char*>(input.data) + 4 * ((i * 3 + c) * 25 + p), 4);
          REQUIRE(value == static_cast<float>(ProbeDataset::pixel(sample, p * 3 + c)) / 255.0f);
        }
    }
  }
  std::filesystem::remove(path);
}

TEST_CASE("the loader benchmark reports whether the workers or the consumer wait") {
  LoadedData data;
  data.batch_size = 4;
  data.num_workers = 2;
  auto slow = std::make_shared<ProbeDataset>(1000, 4);
  slow->microseconds = 1000;
  const LoaderBenchOptions bench{.warmup_batches = 2, .batches = 40, .seconds = 60};
  const auto loading = run_loader_bench(*make_loader(data, slow, {}), bench);
  REQUIRE(loading.batches == 40);
  REQUIRE(loading.samples == 160);
  CHECK(loading.wait_pct > 50);
  CHECK(loading.shares->workers_busy_pct > 60);
  CHECK_THAT(loading.verdict, ContainsSubstring("mostly other than reading, decoding and transforming"));
  CHECK_THAT(loading.verdict, ContainsSubstring("consumer waits"));
  const auto fast = std::make_shared<ProbeDataset>(1000, 4);
  const auto training = run_loader_bench(*make_loader(data, fast, {}), bench, [](const HostBatch&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  });
  CHECK(training.wait_pct < 20);
  CHECK_THAT(training.verdict, ContainsSubstring("workers wait"));
  data.num_workers = 0;
  CHECK_THAT(run_loader_bench(*make_loader(data, fast, {}), bench).verdict, ContainsSubstring("no workers"));
}
