#include "data/loader.h"

#include "probe.h"
#include "support/catch.h"

#include "base/error.h"

using namespace trainopt;

namespace {

DataConfig plain(int64_t workers) {
  DataConfig data;
  data.batch_size = 4;
  data.num_workers = workers;
  data.shuffle = false;
  data.drop_last = false;
  return data;
}

std::string error_of(Loader& loader) {
  try {
    loader.next();
  } catch (const UserError& error) {
    REQUIRE(error.code() == ExitCode::data);
    return error.what();
  }
  return "no error";
}

}  // namespace

TEST_CASE("a bad sample ends the run at its batch, whatever the workers did meanwhile") {
  const int64_t threads_before = thread_count();
  for (const int64_t workers : {0, 1, 3}) {
    for (int repeat = 0; repeat < 20; ++repeat) {
      auto dataset = std::make_shared<ProbeDataset>(60, 4);
      dataset->bad = {14, 15, 30};  // the first two in the fourth batch
      dataset->microseconds = 30;
      auto loader = make_loader(plain(workers), dataset, {});
      const auto delivered = take(*loader, 3);
      REQUIRE(delivered.samples.back() == 11);
      REQUIRE(error_of(*loader) == "cannot use the sample probe 14: made to be bad");
      REQUIRE(threads_come_down_to(threads_before));
      REQUIRE(error_of(*loader) == "cannot use the sample probe 14: made to be bad");
    }
  }
}

TEST_CASE("substitutes are other samples, the same for any number of workers") {
  std::vector<Delivered> all;
  for (const int64_t workers : {0, 1, 3}) {
    auto dataset = std::make_shared<ProbeDataset>(40, 4);
    dataset->bad = {3, 17, 39};
    auto data = plain(workers);
    data.on_bad_sample = OnBadSample::substitute;
    data.max_bad_samples = 3;
    auto loader = make_loader(data, dataset, {});
    all.push_back(take(*loader, 20));  // two epochs: a sample counts once
    REQUIRE(loader->samples().bad_samples().size() == 3);
  }
  REQUIRE(all[1] == all[0]);
  REQUIRE(all[2] == all[0]);
  REQUIRE(all[0].samples.size() == 80);
  for (size_t i = 0; i < 80; ++i) {
    const auto place = static_cast<int64_t>(i % 40);
    const bool is_bad = place == 3 || place == 17 || place == 39;
    REQUIRE((all[0].samples[i] == place) != is_bad);
    REQUIRE(all[0].labels[i] == all[0].samples[i] % 10);
  }
  const auto substitutes = [&](size_t epoch) {
    return std::vector{all[0].samples[epoch * 40 + 3], all[0].samples[epoch * 40 + 17], all[0].samples[epoch * 40 + 39]};
  };
  REQUIRE(substitutes(0) != substitutes(1));
}

TEST_CASE("more bad samples than the budget end the run with the first ten") {
  auto dataset = std::make_shared<ProbeDataset>(100, 4);
  for (int64_t i = 0; i < 50; ++i) dataset->bad.insert(i);
  auto data = plain(0);
  data.on_bad_sample = OnBadSample::substitute;
  data.max_bad_samples = 12;
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

TEST_CASE("a data set of bad samples only is an error, not a search without end") {
  auto dataset = std::make_shared<ProbeDataset>(5, 4);
  dataset->bad = {0, 1, 2, 3, 4};
  auto data = plain(2);
  data.on_bad_sample = OnBadSample::substitute;
  data.max_bad_samples = 100;
  auto loader = make_loader(data, dataset, {});
  REQUIRE_THAT(error_of(*loader), ContainsSubstring("5 so far"));
}
