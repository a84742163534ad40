#include "data/loader.h"
#include "data/loader_bench.h"

#include "probe.h"
#include "support/catch.h"
#include "support/sanitized.h"

#include "base/error.h"

#include <bit>

using namespace trainopt;

namespace {

LoadedData augmented(int64_t workers, int64_t batch_size) {
  LoadedData data;
  data.batch_size = batch_size;
  data.num_workers = workers;
  data.drop_last = false;
  data.transforms = {RandomCropConfig{6, 6, 2}, RandomHorizontalFlipConfig{},
                     NormalizeConfig{{0.4, 0.5, 0.6}, {0.2, 0.3, 0.4}}};
  return data;
}

std::shared_ptr<ProbeDataset> probe(int64_t size, int64_t microseconds = 0) {
  auto dataset = std::make_shared<ProbeDataset>(size, 8);
  dataset->microseconds = microseconds;
  return dataset;
}

}  // namespace

TEST_CASE("what is delivered does not depend on workers, prefetching or persistent workers") {
  const auto cut_in_two = [](int64_t workers, uint64_t seed) {
    auto data = augmented(workers, 4);
    data.accumulation = 2;
    data.seed = seed;
    return data;
  };
  const int64_t samples = 41;  // steps of 8 samples; the last has one sample in one micro-batch
  const auto plain = take(*make_loader(cut_in_two(0, 5), probe(samples)), 33);
  REQUIRE(plain.samples.size() == 3 * 41);
  for (const int64_t workers : {1, 2, 3, 7})
    for (const bool persistent : {false, true})
      for (const int64_t prefetch : {1, 3}) {
        auto data = cut_in_two(workers, 5);
        data.persistent_workers = persistent;
        data.prefetch_factor = prefetch;
        REQUIRE(take(*make_loader(data, probe(samples, 50)), 33) == plain);
      }
  const auto other = take(*make_loader(cut_in_two(0, 6), probe(samples)), 33);
  REQUIRE(other.samples != plain.samples);
}

TEST_CASE("a delivered image is the pipeline's output for its sample id") {
  LoadedData data;
  data.batch_size = 5;
  data.num_workers = 2;
  auto loader = make_loader(data, probe(20), {});
  for (int batch = 0; batch < 8; ++batch) {
    const HostBatch host = loader->next();
    REQUIRE(host.input.sizes() == at::IntArrayRef({5, 3, 8, 8}));
    for (int64_t i = 0; i < 5; ++i) {
      const int64_t sample = host.sample_ids[static_cast<size_t>(i)];
      REQUIRE(host.target[i].item<int64_t>() == sample % 10);
      for (int64_t c = 0; c < 3; ++c)
        for (int64_t p = 0; p < 64; ++p)
          REQUIRE(host.input[i][c].reshape(-1)[p].item<float>() ==
                  static_cast<float>(ProbeDataset::pixel(sample, p * 3 + c)) / 255.0f);
    }
    loader->release(host);
  }
}

TEST_CASE("all ranks and micro-batches together deliver what a single rank does") {
  const auto seeded = [](int64_t workers, int64_t batch_size) {
    auto data = augmented(workers, batch_size);
    data.seed = 9;
    return data;
  };
  const auto all_ranks = take(*make_loader(seeded(0, 12), probe(43)), 8);  // two epochs of 12 12 12 7
  for (const auto& [ranks, accumulation] : {std::pair<int64_t, int64_t>{2, 1}, {1, 3}, {3, 2}, {2, 3}}) {
    std::vector<std::unique_ptr<Loader>> loaders;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      auto data = seeded(rank == 0 ? 2 : 0, 12 / ranks / accumulation);
      data.ranks = ranks;
      data.rank = rank;
      data.accumulation = accumulation;
      loaders.push_back(make_loader(data, probe(43)));
    }
    Delivered joined;
    for (int64_t i = 0; i < 2 * loaders[0]->schedule().micros_per_epoch(); ++i)
      for (auto& loader : loaders) {
        const HostBatch batch = loader->next();
        append(joined, batch);
        loader->release(batch);
      }
    REQUIRE(joined.samples == all_ranks.samples);
    REQUIRE(joined.labels == all_ranks.labels);
    REQUIRE(joined.values == all_ranks.values);
  }
}

TEST_CASE("starting in mid-epoch delivers what a run from the beginning would deliver there") {
  for (const int64_t workers : {0, 2}) {
    BatchRequest request;
    auto from_start = make_loader(augmented(workers, 4), probe(30), request);
    take(*from_start, 13);
    request.steps.first = 13;  // the second epoch's sixth step
    REQUIRE(take(*make_loader(augmented(workers, 4), probe(30), request), 9) == take(*from_start, 9));
  }
}

TEST_CASE("uint8 and channels-last slots hold the same images") {
  BatchRequest request;
  const auto contiguous = take(*make_loader(augmented(2, 4), probe(20), request), 5);
  request.format.memory_format = at::MemoryFormat::ChannelsLast;
  auto loader = make_loader(augmented(2, 4), probe(20), request);
  const HostBatch batch = loader->next();
  REQUIRE(batch.input.is_contiguous(at::MemoryFormat::ChannelsLast));
  REQUIRE(take(*make_loader(augmented(2, 4), probe(20), request), 5) == contiguous);
  auto data = augmented(2, 4);
  data.finish_on_device = true;
  auto bytes = make_loader(data, probe(20), request);
  const HostBatch raw = bytes->next();
  REQUIRE(raw.input.scalar_type() == at::kByte);
  REQUIRE(raw.input.sizes() == at::IntArrayRef({4, 6, 6, 3}));
}

TEST_CASE("a loader can be destroyed at any moment, and no thread remains") {
  const int64_t before = thread_count();
  for (int64_t i = 0; i < 200; ++i) {
    auto data = augmented(1 + i % 4, 3);
    data.persistent_workers = i % 2 == 0;
    auto loader = make_loader(data, probe(50, i % 3 == 0 ? 100 : 0), {});
    if (i % 5 != 0) loader->start();
    for (int64_t k = 0; k < i % 25; ++k) {
      const HostBatch batch = loader->next();
      if (k + 1 < i % 25) loader->release(batch);
    }
  }
  REQUIRE(threads_drop_to(before));
}

TEST_CASE("without persistent workers, threads and prefetching end with the epoch") {
  const auto dataset = probe(20);
  auto data = augmented(2, 4);
  const int64_t before = thread_count();
  auto loader = make_loader(data, dataset, {});
  take(*loader, 5);
  CHECK(threads_drop_to(before));
  CHECK(dataset->loads == 20);
  take(*loader, 1);
  CHECK(dataset->loads > 20);

  data.persistent_workers = true;
  const auto other = probe(20);
  auto persistent = make_loader(data, other, {});
  take(*persistent, 5);
  eventually([&] { return other->loads >= 20 + 6 * 4; });
  CHECK(other->loads == 20 + 6 * 4);  // the 2 × 2 + 2 slots, filled from the next epoch

  BatchRequest until;
  until.steps.end = 5;
  const auto last = probe(20);
  auto ended = make_loader(data, last, until);
  take(*ended, 5);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(last->loads == 20);
}

TEST_CASE("a slot is not overwritten before it is released") {
  auto data = augmented(3, 4);
  data.persistent_workers = true;
  const auto dataset = probe(40);
  auto loader = make_loader(data, dataset, {});
  const HostBatch current = loader->next();
  const at::Tensor copy = current.input.clone();
  const std::vector<int64_t> ids(current.sample_ids.begin(), current.sample_ids.end());
  eventually([&] { return dataset->loads >= 8 * 4 && loader->ready_batches() >= 7; });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  REQUIRE(loader->slots() == 8);
  REQUIRE(dataset->loads == 8 * 4);  // every slot is full and nothing more is loaded
  REQUIRE(loader->ready_batches() == 7);
  REQUIRE(at::equal(current.input, copy));
  REQUIRE(std::equal(ids.begin(), ids.end(), current.sample_ids.begin()));
  loader->release(current);
  eventually([&] { return dataset->loads >= 9 * 4; });
  REQUIRE(dataset->loads == 9 * 4);
}

TEST_CASE("a paused loader retains ready batches and starts nothing until the next call of next()") {
  auto data = augmented(2, 4);
  data.persistent_workers = true;
  const auto dataset = probe(80, 20000);  // slow, so that the pause comes long before the slots are full
  auto loader = make_loader(data, dataset, {});
  take(*loader, 1);
  loader->pause();
  int64_t loads = 0, ready = 0;
  do {  // started samples may finish
    loads = dataset->loads, ready = loader->ready_batches();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  } while (dataset->loads != loads || loader->ready_batches() != ready);
  REQUIRE(loads < 7 * 4);  // not all slots are full, so there was more to load
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  CHECK(dataset->loads == loads);
  CHECK(loader->ready_batches() == ready);
  // The pause does not change the delivered order.
  const auto rest = take(*loader, 19);
  CHECK(rest.samples == [&] {
    auto all = take(*make_loader(data, probe(80), {}), 20).samples;
    return std::vector<int64_t>(all.begin() + 4, all.end());
  }());
}

TEST_CASE("a paused loader can be destroyed") {
  auto data = augmented(2, 4);
  auto loader = make_loader(data, probe(400, 100), {});
  take(*loader, 1);
  loader->pause();
  loader.reset();
  SUCCEED();
}

TEST_CASE("D17: a thousand loaders destroyed in mid-epoch leave no threads, open files or memory behind") {
  auto data = augmented(2, 4);
  data.persistent_workers = true;
  const auto dataset = probe(400);
  const auto destroy_loaders = [&](int count) {
    for (int i = 0; i < count; ++i) {
      auto loader = make_loader(data, dataset, {});
      if (i % 4 == 0) loader->start();  // nothing taken
      if (i % 4 == 1) loader->release(loader->next());
      if (i % 4 == 2) loader->next();  // and not released
      if (i % 4 == 3) take(*loader, 2), loader->pause();
    }
  };
  destroy_loaders(100);
  const int64_t threads = thread_count(), files = entries_in("/proc/self/fd"), memory = resident_bytes();
  destroy_loaders(1000);
  CHECK(threads_drop_to(threads));
  CHECK(entries_in("/proc/self/fd") == files);
  CHECK(resident_bytes() - memory < 4 << 20);  // each loader's slots are more than 10 KB
}

TEST_CASE("the number of slots follows from workers, prefetching and the memory limit") {
  REQUIRE(slot_count(0, 2, 100, 1 << 30) == 2);
  REQUIRE(slot_count(8, 2, 100, 1 << 30) == 18);
  REQUIRE(slot_count(8, 2, 100, 1050) == 10);
  REQUIRE(slot_count(8, 2, 100, 200) == 2);
  REQUIRE_THROWS_WITH(slot_count(8, 2, 1 << 20, (1 << 21) - 1),
                      ContainsSubstring("data.memory_limit") && ContainsSubstring("1.0 MiB"));
  REQUIRE(batch_bytes({.size = {224, 224}}, 32) == 32 * (224 * 224 * 12 + 16));
  REQUIRE(batch_bytes({.size = {224, 224}, .as_uint8 = true}, 32) == 32 * (224 * 224 * 3 + 16));
}

TEST_CASE("a loader uses little more memory than its slots") {
  LoadedData data;
  data.batch_size = 32;
  data.num_workers = 2;
  data.prefetch_factor = 3;
  data.persistent_workers = true;
  data.transforms = {ResizeConfig{.shorter_side = 224}};
  const auto dataset = make_fake_cifar10(512, 0);
  const int64_t before = resident_bytes();
  auto loader = make_loader(data, dataset, {});
  take(*loader, 1);
  for (int i = 0; i < 24; ++i) {
    const HostBatch batch = loader->next();
    loader->release(batch);
  }
  const auto slots = static_cast<double>(loader->slots() * loader->slot_bytes());
  REQUIRE(loader->slots() == 8);
  if (!kSanitized) CHECK(static_cast<double>(resident_bytes() - before) < 1.2 * slots);
}

TEST_CASE("every sample's work is counted once, in stages that are part of it") {
  for (const int64_t workers : {0, 1, 3}) {
    auto loader = make_loader(augmented(workers, 4), probe(41, 200), {});
    CHECK(loader->take_work().worker_ns == 0);  // nothing has started
    take(*loader, 11);                          // an epoch, after which threads and prefetching end
    const LoaderWork work = loader->take_work();
    CHECK(work.samples == 41);
    CHECK(work.stages.read_ns == 0);  // the data set is in memory
    CHECK(work.stages.decode_ns == 0);
    CHECK(work.stages.transform_ns > 0);
    CHECK(work.stages.transform_ns < work.busy_ns);  // the data set's delay is in neither stage
    CHECK(work.busy_ns <= work.worker_ns);
    CHECK((loader->take_wait_ms() > 0 && loader->take_wait_ms() == 0));
    const LoaderWork nothing = loader->take_work();
    CHECK((nothing.samples == 0 && nothing.busy_ns == 0 && nothing.stages.transform_ns == 0));
    CHECK((loader->loading_threads() > 0) == (workers > 0));
  }
}

TEST_CASE("the shares of a loader's work") {
  const LoaderWork work{.samples = 4,
                        .worker_ns = 16000,
                        .busy_ns = 8000,
                        .stages = {.read_ns = 4000, .decode_ns = 2000, .transform_ns = 1000}};
  const LoaderShares shares = LoaderShares::of(work);
  CHECK(to_json(shares) == Json{{"workers_busy_pct", 50.0},
                                {"read_pct", 50.0},
                                {"decode_pct", 25.0},
                                {"transform_pct", 12.5},
                                {"other_pct", 12.5},
                                {"sample_us", 2.0}});
  LoaderWork twice = work;
  twice += work;
  CHECK(to_json(LoaderShares::of(twice)) == to_json(shares));
  CHECK(to_json(LoaderShares::of(twice - work)) == to_json(shares));
  CHECK(LoaderShares::of({}).sample_us == 0);
}

TEST_CASE("page-locked slots share allocations, so that rounding up to powers of two wastes little memory") {
  const auto taken = [](int64_t slots, int64_t slot_bytes) {
    uint64_t bytes = 0;
    int64_t placed = 0;
    for (const int64_t together : slots_by_allocation(slots, slot_bytes)) {
      bytes += std::bit_ceil(static_cast<uint64_t>(together * slot_bytes));
      placed += together;
    }
    REQUIRE(placed == slots);
    return static_cast<double>(bytes) / static_cast<double>(slots * slot_bytes);
  };
  CHECK(slots_by_allocation(18, 1 << 20) == std::vector<int64_t>{16, 2});
  CHECK(taken(18, 308285440) < 1.17);  // 512 images of 224² in float32; with one allocation per slot: 1.74
  for (int64_t slot_bytes = 513; slot_bytes <= 1024; ++slot_bytes) {
    CHECK(taken(2, slot_bytes) < 2);
    for (const int64_t slots : {16, 18, 34, 66}) CHECK(taken(slots, slot_bytes) <= 1.2);
  }
}

TEST_CASE("slots that share an allocation do not overlap, and each is aligned") {
  for (const bool as_uint8 : {true, false})
    for (const auto memory_format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      std::vector<BatchBuffer> slots =
          make_buffers({.size = {5, 7}, .as_uint8 = as_uint8, .memory_format = memory_format}, 3, 6, false);
      REQUIRE(slots.size() == 6);
      for (size_t i = 0; i < slots.size(); ++i) {
        slots[i].input(3, 0).fill_(static_cast<double>(i));
        slots[i].target(3, 0).fill_(static_cast<int64_t>(10 + i));
      }
      for (size_t i = 0; i < slots.size(); ++i) {
        const at::Tensor input = slots[i].input(3, 0);
        CHECK(input.sizes() == (as_uint8 ? at::IntArrayRef{3, 5, 7, 3} : at::IntArrayRef{3, 3, 5, 7}));
        if (!as_uint8) CHECK(input.is_contiguous(memory_format));
        CHECK((input == static_cast<double>(i)).all().item<bool>());
        CHECK((slots[i].target(3, 0) == static_cast<int64_t>(10 + i)).all().item<bool>());
        CHECK(reinterpret_cast<uintptr_t>(input.data_ptr()) % 64 == 0);
        CHECK(slots[i].place(0, 0).image.data == input.data_ptr());
      }
    }
}
