// Compares batches drawn from a data set on the device with those from a loader.
#include "data/on_device/device_dataset.h"

#include "base/error.h"
#include "device/tensor.h"
#include "kernels/image_finish_checks.h"
#include "probe.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const NormalizeConfig kImageNet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

LoadedData resized_and_cropped() {
  LoadedData data;
  data.batch_size = 6;
  data.transforms = {ResizeConfig{.shorter_side = 20}, CenterCropConfig{18, 19}, RandomCropConfig{17, 16, 4},
                     RandomHorizontalFlipConfig{}, kImageNet};
  return data;
}

/// Checks that the next batches of both sources are bit-identical.
void check_same(BatchSource& loaded, BatchSource& resident, int64_t batches,
                at::MemoryFormat format = at::MemoryFormat::Contiguous) {
  for (int64_t i = 0; i < batches; ++i) {
    const Batch a = loaded.next(), b = resident.next();
    REQUIRE(b.sample_ids == a.sample_ids);
    REQUIRE(at::equal(b.target, a.target));
    REQUIRE(b.input.sizes() == a.input.sizes());
    REQUIRE(b.input.is_contiguous(format));
    REQUIRE(at::equal(b.input, a.input));
    REQUIRE(std::tuple(b.items, b.step_items, b.weight, b.is_first, b.is_last, b.epoch, b.step, b.micro) ==
            std::tuple(a.items, a.step_items, a.weight, a.is_first, a.is_last, a.epoch, a.step, a.micro));
  }
}

struct Both {
  std::unique_ptr<BatchSource> loaded, resident;
  Both(LoadedData data, const std::shared_ptr<const Dataset>& dataset, const BatchRequest& request)
      : loaded(make_batches(data, dataset, request)) {
    data.device_dataset = std::make_shared<DeviceDataset>();
    resident = make_batches(data, dataset, request);
  }
};

std::string error_of(BatchSource& batches, ExitCode code) {
  try {
    batches.next();
  } catch (const UserError& error) {
    CHECK(error.code() == code);
    return error.what();
  }
  return "no error";
}

/// A data set whose images differ in size, as in an image folder.
class Uneven : public ProbeDataset {
 public:
  Uneven() : ProbeDataset(8, 12), large_(8, 14) {}
  std::optional<ImageSize> uniform_size() const override { return std::nullopt; }
  void load(int64_t sample, uint64_t key, const Pipeline& pipeline, const Destination& destination,
            LoadScratch& scratch) const override {
    if (sample == 5) return large_.load(sample, key, pipeline, destination, scratch);
    ProbeDataset::load(sample, key, pipeline, destination, scratch);
  }

 private:
  ProbeDataset large_;
};

}  // namespace

TEST_CASE("a data set on the device delivers the same batches as a loader") {
  const auto dataset = std::make_shared<ProbeDataset>(43, 24);
  for (const bool shuffle : {true, false})
    for (const bool drop_last : {true, false})
      for (const int64_t rank : {0, 1})
        for (const int64_t first_step : {0, 1, 5})
          for (const int64_t workers : {0, 3}) {
            LoadedData data = resized_and_cropped();
            data.shuffle = shuffle, data.drop_last = drop_last, data.num_workers = workers;
            data.ranks = 2, data.rank = rank, data.accumulation = 2, data.seed = 3;
            BatchRequest request;
            request.steps.first = first_step;
            request.format.memory_format = rank == 0 ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
            Both both(data, dataset, request);
            check_same(*both.loaded, *both.resident, 2 * both.loaded->schedule().micros_per_epoch(),
                       request.format.memory_format);
          }
}

TEST_CASE("every crop and flip gives the same result on the device as on the host") {
  const auto dataset = std::make_shared<ProbeDataset>(30, 12);
  const std::vector<std::vector<TransformConfig>> all{
      {},
      {kImageNet},
      {RandomHorizontalFlipConfig{}},
      {RandomCropConfig{12, 12, 4}, RandomHorizontalFlipConfig{}},
      {RandomHorizontalFlipConfig{1}, RandomCropConfig{9, 20, 6}, kImageNet},
      {RandomResizedCropConfig{8, 10}, RandomHorizontalFlipConfig{}, kImageNet},
      {RandomResizedCropConfig{5, 5, {0.15, 0.25}}, RandomCropConfig{5, 5, 1}, RandomHorizontalFlipConfig{},
       CenterCropConfig{3, 6}},  // some boxes already have the output size
      {RandomResizedCropConfig{12, 12, {1, 1}, {1, 1}}, RandomCropConfig{12, 12, 4},
       RandomHorizontalFlipConfig{}},  // every box is the whole image
      {RandomHorizontalFlipConfig{}, RandomCropConfig{8, 8, 0}, CenterCropConfig{13, 5},
       RandomHorizontalFlipConfig{0.3}, RandomCropConfig{12, 5, 2}, kImageNet}};
  for (const auto& transforms : all) {
    LoadedData data;
    data.batch_size = 7;
    data.transforms = transforms;
    Both both(data, dataset, {});
    check_same(*both.loaded, *both.resident, 9);
  }
}

TEST_CASE("the CPU's fused pass is bit-identical to the tensor operations") {
  test::check_finish([](const kernels::ImageFinish& finish, const at::Tensor& images,
                        const at::Tensor& placement) { return finish(images, placement); },
                     at::kCPU);
}

TEST_CASE("16-bit batches equal the float32 batches rounded to 16 bits") {
  const auto dataset = std::make_shared<ProbeDataset>(30, 24);
  for (const auto type : {at::kBFloat16, at::kHalf})
    for (const bool on_device : {false, true}) {
      LoadedData data = resized_and_cropped();
      if (on_device) data.device_dataset = std::make_shared<DeviceDataset>();
      data.finish_on_device = true;
      BatchRequest request;
      const auto plain = make_batches(data, dataset, request);
      request.format.compute_type = type;
      const auto rounded = make_batches(data, dataset, request);
      for (int i = 0; i < 6; ++i) CHECK(test::same_bits(rounded->next().input, plain->next().input.to(type)));
      CHECK(plain->take_stats().finished_type == at::kFloat);
      CHECK(rounded->take_stats().finished_type == type);
    }
  BatchRequest loaded;
  loaded.format.compute_type = at::kBFloat16;
  const auto host =
      make_batches(resized_and_cropped(), dataset, loaded);  // images finished on the host are always float32
  CHECK(host->next().input.scalar_type() == at::kFloat);
  CHECK_FALSE(host->take_stats().finished_type.has_value());
}

TEST_CASE("bad samples get the same substitutes as in a loader and are reported") {
  auto dataset = std::make_shared<ProbeDataset>(40, 6);
  dataset->bad = {3, 4, 17, 39};
  LoadedData data;
  data.batch_size = 7;
  data.drop_last = false;
  data.bad_samples.substitute = true;
  data.bad_samples.budget = 4;
  data.transforms = {RandomCropConfig{6, 6, 2}};
  for (const int64_t workers : {0, 2}) {
    data.num_workers = workers;
    Both both(data, dataset, {});
    check_same(*both.loaded, *both.resident, 12);
    CHECK(both.resident->bad_samples().size() == 4);
    CHECK((both.resident->bad_samples() == both.loaded->bad_samples()));
  }
  data.num_workers = 0;  // several threads would find more before the first one ends the run
  data.bad_samples.budget = 2;
  data.device_dataset = std::make_shared<DeviceDataset>();
  auto spent = make_batches(data, dataset, {});
  CHECK_THAT(error_of(*spent, ExitCode::data), ContainsSubstring("data.max_bad_samples allows (2); 3 so far"));
  CHECK(spent->bad_samples().size() == 3);
  data.bad_samples.substitute = false;
  CHECK(error_of(*make_batches(data, dataset, {}), ExitCode::data)
            .starts_with("cannot use the sample probe 3: made to be bad"));
}

TEST_CASE("a previously bad sample is used again once it is readable") {
  const auto dataset = std::make_shared<ProbeDataset>(20, 6);
  LoadedData data;
  data.batch_size = 5;
  BatchRequest request;
  request.refused = {{.sample = 7, .name = "probe 7", .reason = "made to be bad"}};
  Both both(data, dataset, request);
  check_same(*both.loaded, *both.resident, 4);
  CHECK((both.resident->bad_samples() == request.refused));
}

TEST_CASE("the images are read once, even if another source opens the data set") {
  const auto dataset = std::make_shared<ProbeDataset>(20, 6);
  LoadedData data;
  data.batch_size = 5;
  data.device_dataset = std::make_shared<DeviceDataset>();
  data.num_workers = 2;
  BatchRequest request;
  data.device_dataset = std::make_shared<DeviceDataset>();
  const auto first = make_batches(data, dataset, request);
  CHECK(dataset->loads == 0);
  for (int i = 0; i < 9; ++i) first->next();
  CHECK(dataset->loads == 20);
  const auto stats = first->take_stats();
  CHECK(stats.resident_bytes == 20 * (6 * 6 * 3 + 8));
  CHECK(stats.bytes_delivered == 9 * 5 * 4);  // one int32 per sample: nothing is cropped or flipped
  CHECK(stats.bytes_copied == 0);
  CHECK(stats.threads > 0);
  CHECK_FALSE(stats.input_type.has_value());
  request.steps.first = 9;
  const auto second = make_batches(data, dataset, request);
  CHECK(at::equal(second->next().input, first->next().input));
  CHECK(dataset->loads == 20);
}

TEST_CASE("a data set that cannot be kept on the device is refused with a reason") {
  const auto dataset = std::make_shared<ProbeDataset>(20, 6);
  LoadedData data;
  data.batch_size = 5;
  data.device_dataset = std::make_shared<DeviceDataset>();
  data.memory_limit = 20 * (6 * 6 * 3 + 8);
  make_batches(data, dataset, {})->next();
  --data.memory_limit;
  CHECK_THROWS_WITH(make_batches(data, dataset, {}),
                    ContainsSubstring("20 samples of 6×6×3 are 2.3 KiB, data.memory_limit is 2.3 KiB"));
  data = {};
  data.batch_size = 5;
  data.device_dataset = std::make_shared<DeviceDataset>();
  data.transforms = {RandomHorizontalFlipConfig{}, RandomResizedCropConfig{6, 6}};
  CHECK_THROWS_WITH(make_batches(data, dataset, {}), ContainsSubstring("resizes after a random transform"));
  data.transforms = {RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = 5}};
  CHECK_THROWS_WITH(make_batches(data, dataset, {}), ContainsSubstring("resizes after a random transform"));
  data.transforms = {RandomCropConfig{9, 9, 1}};
  CHECK_THROWS_WITH(make_batches(data, dataset, {}), ContainsSubstring("random_crop to 9x9 is larger"));
  data.transforms = {RandomCropConfig{4, 4, 0}};
  const auto uneven = std::make_shared<Uneven>();
  CHECK_THAT(error_of(*make_batches(data, uneven, {}), ExitCode::data),
             ContainsSubstring("images of one size") && ContainsSubstring("probe 5") && ContainsSubstring("14x14"));
  data.transforms.insert(data.transforms.begin(), ResizeConfig{.shorter_side = std::nullopt, .exact = {8, 8}});
  CHECK(error_of(*make_batches(data, uneven, {}), ExitCode::data) == "no error");
}
