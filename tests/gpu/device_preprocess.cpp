// Tests images that are transferred as uint8 and finished on the GPU against images that the host finished.
#include "data/on_device/device_dataset.h"
#include "device/tensor.h"
#include "kernels/image_finish_checks.h"
#include "support/catch.h"
#include "support/loaded_data.h"

using namespace trainopt;

namespace {

std::vector<at::Tensor> inputs(const LoadedData& data, const BatchRequest& request) {
  std::vector<at::Tensor> all;
  const auto batches = make_batches(data, make_fake_cifar10(64, 1), request);
  for (int i = 0; i < 4; ++i) {
    const at::Tensor input = batches->next().input;
    REQUIRE(input.device().type() == request.device.type());
    all.push_back(input.cpu().clone());
  }
  return all;
}

LoadedData images() {
  LoadedData data;
  data.batch_size = 16;
  data.num_workers = 2;
  data.pin_memory = true;
  data.transforms = {RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = 48}, CenterCropConfig{44, 40}};
  return data;
}

}  // namespace

TEST_CASE("the GPU scales and normalises bit-identically to the host") {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const bool non_blocking : {false, true}) {
      LoadedData data = images();
      data.non_blocking = non_blocking;
      data.transforms.emplace_back(NormalizeConfig{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
      BatchRequest request;
      request.format.memory_format = format;
      const auto host = inputs(data, request);
      request.device = at::kCUDA;
      CHECK(at::equal(at::cat(inputs(data, request)), at::cat(host)));
      data.finish_on_device = true;
      CHECK(at::equal(at::cat(inputs(data, request)), at::cat(host)));
      request.format.compute_type = at::kBFloat16;
      CHECK(at::equal(at::cat(inputs(data, request)), at::cat(host).to(at::kBFloat16)));
    }
}

TEST_CASE("the GPU kernel finishes images bit-identically to the tensor operations") {
  REQUIRE(kernels::device::cuda_finish_launches() != nullptr);
  test::check_finish([](const kernels::ImageFinish& finish, const at::Tensor& images,
                        const at::Tensor& placement) { return finish(images, placement); },
                     at::Device(at::kCUDA, 0));
}

TEST_CASE("the GPU resizes bit-identically to the host") {
  for (const bool boxed : {false, true}) {
    LoadedData data = images();
    if (boxed) data.transforms = {RandomResizedCropConfig{48, 40}, RandomHorizontalFlipConfig{}};
    BatchRequest request;
    const at::Tensor host = at::cat(inputs(data, request));
    request.device = at::kCUDA;
    data.finish_on_device = data.resize_on_device = true;
    CHECK(at::equal(at::cat(inputs(data, request)), host));
  }
}

TEST_CASE("the GPU finishes batches of more than 2³¹ values") {
  const int64_t count = 15000, side = 224;
  const at::Tensor images = at::randint(0, 256, {2, side, side, 3}, at::TensorOptions(at::kCUDA).dtype(at::kByte));
  const kernels::ImageFinish finish =
      make_image_finish({}, {}, {{side, side}, at::kBFloat16}, at::Device(at::kCUDA, 0));
  const at::Tensor placement =
      at::arange(count, at::TensorOptions(at::kCUDA).dtype(at::kInt)).remainder(2).view({1, count});
  const at::Tensor all = finish(images, placement), two = finish(images, {});
  REQUIRE(all.numel() > int64_t{1} << 31);
  CHECK(all[0].equal(two[0]));
  CHECK(all[count - 1].equal(two[1]));
}

TEST_CASE("a data set on the GPU gives the same batches as the host") {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const bool random : {false, true}) {
      LoadedData data;
      data.batch_size = 16;
      data.num_workers = 2;
      if (random)
        data.transforms = {RandomCropConfig{32, 30, 4}, RandomHorizontalFlipConfig{},
                           NormalizeConfig{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}}};
      BatchRequest request;
      request.format.memory_format = format;
      const auto host = inputs(data, request);
      data.device_dataset = std::make_shared<DeviceDataset>();
      request.device = at::kCUDA;
      CHECK(at::equal(at::cat(inputs(data, request)), at::cat(host)));
    }
}
