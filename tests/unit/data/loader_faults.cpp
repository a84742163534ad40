#include "data/loader.h"

#include "probe.h"
#include "support/catch.h"

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <new>

using namespace trainopt;

namespace {

LoadedData plain(int64_t workers) {
  LoadedData data;
  data.batch_size = 4;
  data.num_workers = workers;
  data.shuffle = false;
  data.drop_last = false;
  return data;
}

std::string error_of_next(Loader& loader) {
  try {
    loader.next();
  } catch (const UserError& error) {
    REQUIRE(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a bad sample ends the run at its batch, regardless of the number of workers") {
  const int64_t threads_before = thread_count();
  for (const int64_t workers : {0, 1, 3}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      auto dataset = std::make_shared<ProbeDataset>(60, 4);
      dataset->bad = {14, 15, 30};  // the first two are in the fourth batch
      dataset->microseconds = 30;
      auto loader = make_loader(plain(workers), dataset, {});
      const auto delivered = take(*loader, 3);
      REQUIRE(delivered.samples.back() == 11);
      REQUIRE(error_of_next(*loader).starts_with("cannot use the sample probe 14: made to be bad"));
      REQUIRE(threads_drop_to(threads_before));
      REQUIRE(error_of_next(*loader).starts_with("cannot use the sample probe 14: made to be bad"));
    }
  }
}

TEST_CASE("D19: a mapped file that shrinks while a sample is read ends the run, also if samples may be bad") {
  for (const bool seems_bad : {false, true}) {
    const TemporaryFolder folder;
    const auto path = folder / "data";
    std::ofstream(path) << std::string(20'000, '\1');
    const MappedFile file(path, ExitCode::data);
    auto dataset = std::make_shared<ProbeDataset>(60, 4);
    dataset->fails[5] = [&] {
      std::filesystem::resize_file(path, 100);
      const uint8_t last = *static_cast<const volatile uint8_t*>(&file.bytes().back());
      if (seems_bad) throw BadSample(fmt::format("ends in {}", last));
    };
    auto data = plain(0);
    data.bad_samples = {.substitute = true, .budget = 10};
    auto loader = make_loader(data, dataset, {});
    take(*loader, 1);
    CHECK(error_of_next(*loader) == path.string() + " became shorter while it was read: 100 bytes, before 20000");
    CHECK(loader->samples().bad_samples().empty());
  }
}

TEST_CASE("bad samples are replaced by the same substitutes for any number of workers") {
  std::vector<Delivered> all;
  for (const int64_t workers : {0, 1, 3}) {
    auto dataset = std::make_shared<ProbeDataset>(40, 4);
    dataset->bad = {3, 17, 39};
    auto data = plain(workers);
    data.bad_samples.substitute = true;
    data.bad_samples.budget = 3;
    auto loader = make_loader(data, dataset, {});
    all.push_back(take(*loader, 20));  // two epochs; each bad sample counts once
    const std::vector<RefusedSample> known{
        {3, "probe 3", "made to be bad"}, {17, "probe 17", "made to be bad"}, {39, "probe 39", "made to be bad"}};
    REQUIRE((loader->samples().bad_samples() == known));
  }
  REQUIRE(all[1] == all[0]);
  REQUIRE(all[2] == all[0]);
  REQUIRE(all[0].samples.size() == 80);
  for (size_t i = 0; i < 80; ++i) {
    const auto index = static_cast<int64_t>(i % 40);
    const bool is_bad = index == 3 || index == 17 || index == 39;
    REQUIRE((all[0].samples[i] == index) != is_bad);
    REQUIRE(all[0].labels[i] == all[0].samples[i] % 10);
  }
  const auto substitutes = [&](size_t epoch) {
    return std::vector{all[0].samples[epoch * 40 + 3], all[0].samples[epoch * 40 + 17],
                       all[0].samples[epoch * 40 + 39]};
  };
  REQUIRE(substitutes(0) != substitutes(1));
}

TEST_CASE("exceeding the budget of bad samples ends the run and lists the first ten") {
  auto dataset = std::make_shared<ProbeDataset>(100, 4);
  for (int64_t i = 0; i < 50; ++i) dataset->bad.insert(i);
  auto data = plain(0);
  data.bad_samples.substitute = true;
  data.bad_samples.budget = 12;
  auto loader = make_loader(data, dataset, {});
  std::string error = "no error";
  for (int batch = 0; batch < 25 && error == "no error"; ++batch) {
    try {
      const HostBatch host = loader->next();
      loader->release(host);
    } catch (const UserError& caught) {
      error = caught.what();
    }
  }
  REQUIRE_THAT(error, ContainsSubstring("max_bad_samples allows (12); 13 so far"));
  size_t named = 0;
  for (size_t at = error.find("probe "); at != std::string::npos; at = error.find("probe ", at + 1)) ++named;
  REQUIRE(named == 10);
}

TEST_CASE("a data set of only bad samples is an error, not an endless search") {
  auto dataset = std::make_shared<ProbeDataset>(5, 4);
  dataset->bad = {0, 1, 2, 3, 4};
  auto data = plain(2);
  data.bad_samples.substitute = true;
  data.bad_samples.budget = 100;
  auto loader = make_loader(data, dataset, {});
  REQUIRE_THAT(error_of_next(*loader),
               ContainsSubstring("none of the 5 samples can be used; the first: probe 0: made to be bad; probe 1"));
}

TEST_CASE("D5: all bad samples are reported in order, also after the run has failed") {
  for (const int64_t workers : {0, 3}) {
    auto dataset = std::make_shared<ProbeDataset>(100, 4);
    for (int64_t i = 99; i > 50; --i) dataset->bad.insert(i);
    dataset->microseconds = 20;
    auto data = plain(workers);
    data.bad_samples.substitute = true;
    data.bad_samples.budget = 20;
    auto batches = make_batches(data, dataset, {});
    std::string error;
    REQUIRE(batches->bad_samples().empty());
    while (error.empty()) {
      try {
        batches->next();
      } catch (const UserError& caught) {
        error = caught.what();
      }
    }
    const auto bad = batches->bad_samples();
    REQUIRE(bad.size() >= 21);
    REQUIRE(bad.size() <= static_cast<size_t>(21 + workers));  // the other workers finish their samples
    CHECK(std::is_sorted(bad.begin(), bad.end(),
                         [](const auto& one, const auto& other) { return one.sample < other.sample; }));
    for (const RefusedSample& one : bad) {
      CHECK(dataset->bad.contains(one.sample));
      CHECK(one.name == fmt::format("probe {}", one.sample));
      CHECK(one.reason == "made to be bad");
    }
  }
  auto dataset = std::make_shared<ProbeDataset>(20, 4);
  dataset->bad = {5};
  auto batches = make_batches(plain(0), dataset, {});
  batches->next();
  CHECK_THROWS_AS(batches->next(), UserError);
  CHECK((batches->bad_samples() == std::vector<RefusedSample>{{5, "probe 5", "made to be bad"}}));
}

TEST_CASE("D18: the earliest exception of any worker is rethrown unchanged after all threads have ended") {
  const int64_t threads_before = thread_count();
  struct NobodyKnowsMe {};
  for (const int64_t workers : {0, 1, 3}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      auto dataset = std::make_shared<ProbeDataset>(60, 4);
      dataset->microseconds = 30;
      dataset->fails = {{13, [] { throw std::bad_alloc(); }},
                        {14, [] { throw std::runtime_error("a bug"); }},
                        {15, [] { throw NobodyKnowsMe(); }}};
      dataset->bad = {16};
      const auto fails_at_fourth = [&](auto check) {
        auto loader = make_loader(plain(workers), dataset, {});
        take(*loader, 3);
        check(*loader);
        REQUIRE(threads_drop_to(threads_before));
        check(*loader);
      };
      fails_at_fourth([](Loader& loader) { REQUIRE_THROWS_AS(loader.next(), std::bad_alloc); });
      dataset->fails.erase(13);
      fails_at_fourth([](Loader& loader) { REQUIRE_THROWS_WITH(loader.next(), "a bug"); });
      dataset->fails.erase(14);
      fails_at_fourth([](Loader& loader) { REQUIRE_THROWS_AS(loader.next(), NobodyKnowsMe); });
    }
  }
}
