// Images that cross as uint8 against those the host made whole.
#include "data/batch_source.h"
#include "support/catch.h"

#include <ATen/ATen.h>

using namespace trainopt;

namespace {

std::vector<at::Tensor> inputs(const DataConfig& data, const BatchesOptions& options) {
  std::vector<at::Tensor> all;
  const auto batches = make_batches(data, make_fake_cifar10(64, 1), options);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor input = batches->next().get("input");
    REQUIRE(input.device().type() == options.device.type());
    all.push_back(input.cpu().clone());
  }
  return all;
}

DataConfig images() {
  DataConfig data;
  data.batch_size = 16;
  data.num_workers = 2;
  data.pin_memory = true;
  data.transforms = {RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = 48}, CenterCropConfig{44, 40}};
  return data;
}

}  // namespace

TEST_CASE("the GPU scales and normalises to the host's bits") {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const bool non_blocking : {false, true}) {
      DataConfig data = images();
      data.non_blocking = non_blocking;
      data.transforms.emplace_back(NormalizeConfig{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
      BatchesOptions options;
      options.memory_format = format;
      const auto host = inputs(data, options);
      options.device = at::kCUDA;
      CHECK(at::equal(at::cat(inputs(data, options)), at::cat(host)));
      options.device_preprocess = true;
      CHECK(at::equal(at::cat(inputs(data, options)), at::cat(host)));
    }
}

TEST_CASE("the GPU resizes to one grey level of the host's images") {
  BatchesOptions options;
  const at::Tensor host = at::cat(inputs(images(), options));
  options.device = at::kCUDA;
  options.device_preprocess = options.device_resize = true;
  const at::Tensor device = at::cat(inputs(images(), options));
  REQUIRE(device.sizes() == host.sizes());
  CHECK(((host - device) * 255).abs().max().item<float>() < 1.001f);
}
