#include "data/batch_source.h"
#include "data/evaluation_transforms.h"
#include "data/on_device/device_transforms.h"

#include "probe.h"
#include "support/catch.h"

using namespace trainopt;

namespace {

const NormalizeConfig kImageNetMoments{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

std::vector<at::Tensor> inputs(const LoadedData& data, const BatchRequest& request, int64_t count) {
  std::vector<at::Tensor> all;
  auto batches = make_batches(data, make_fake_cifar10(64, 1), request);
  for (int64_t i = 0; i < count; ++i) all.push_back(batches->next().input.clone());
  return all;
}

}  // namespace

TEST_CASE("scaling and normalising on the device is bit-identical to the host") {
  for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast})
    for (const bool normalize : {true, false}) {
      LoadedData data;
      data.batch_size = 16;
      data.transforms = {RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = 40}, RandomCropConfig{36, 36, 0}};
      if (normalize) data.transforms.emplace_back(kImageNetMoments);
      BatchRequest request;
      request.format.memory_format = format;
      const auto host = inputs(data, request, 4);
      data.finish_on_device = true;
      const auto device = inputs(data, request, 4);
      for (size_t i = 0; i < host.size(); ++i) {
        REQUIRE(device[i].is_contiguous(format));
        REQUIRE(host[i].is_contiguous(format));
        REQUIRE(device[i].sizes() == at::IntArrayRef({16, 3, 36, 36}));
        REQUIRE(at::equal(host[i], device[i]));
      }
    }
}

TEST_CASE("resizing on the device is bit-identical to the host") {
  const RandomResizedCropConfig crop{24, 20, {0.3, 1}};
  std::vector<std::vector<TransformConfig>> all{
      {crop},
      {crop, RandomCropConfig{24, 20, 3}, RandomHorizontalFlipConfig{}, CenterCropConfig{17, 30}, kImageNetMoments},
      {RandomCropConfig{30, 29, 2}, crop, RandomHorizontalFlipConfig{}}};
  for (const int64_t side : {224, 48, 32, 20, 9}) {
    all.push_back({RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = side}});
    all.push_back({ResizeConfig{.shorter_side = std::nullopt, .exact = {side, 32}}, CenterCropConfig{side + 2, 27},
                   kImageNetMoments});
    all.push_back({RandomHorizontalFlipConfig{}, ResizeConfig{.shorter_side = side}, RandomCropConfig{side, side, 5},
                   RandomHorizontalFlipConfig{}, CenterCropConfig{side - 3, side - 4}});
  }
  for (const auto& transforms : all)
    for (const auto format : {at::MemoryFormat::Contiguous, at::MemoryFormat::ChannelsLast}) {
      REQUIRE_FALSE(device_resize_refusal(transforms).has_value());
      LoadedData data;
      data.batch_size = 16;
      data.transforms = transforms;
      BatchRequest request;
      request.format.memory_format = format;
      const auto host = inputs(data, request, 4);
      data.resize_on_device = data.finish_on_device = true;
      const auto device = inputs(data, request, 4);
      for (size_t i = 0; i < host.size(); ++i) REQUIRE(at::equal(device[i], host[i]));
    }
}

TEST_CASE("a resize that cannot run on the device stays in the loader") {
  LoadedData data;
  data.batch_size = 16;
  data.transforms = {ResizeConfig{.shorter_side = 40}, RandomResizedCropConfig{24, 24},
                     kImageNetMoments};  // resizes twice
  REQUIRE(device_resize_refusal(data.transforms).has_value());
  const auto host = inputs(data, {}, 2);
  data.finish_on_device = data.resize_on_device = true;
  const auto device = inputs(data, {}, 2);
  for (size_t i = 0; i < host.size(); ++i) CHECK(at::equal(device[i], host[i]));
}

TEST_CASE("ImageFinish resizes like resample_reference()") {
  const at::Tensor images = at::randint(0, 256, {2, 11, 9, 3}, at::kByte);
  for (const ImageSize to : {ImageSize{5, 7}, {30, 4}, {11, 9}}) {
    const kernels::ImageFinish finish = make_image_finish(ImageResize{{11, 9}, to, false}, {}, {to}, at::kCPU);
    const at::Tensor got = finish.reference(images, {});
    at::Tensor wanted = at::empty({2, 3, to.height, to.width});
    const Rect full{0, 0, to.height, to.width};
    for (int64_t i = 0; i < 2; ++i)
      resample_reference(
          {{images.const_data_ptr<uint8_t>() + i * 11 * 9 * 3, 11, 9, 27}}, {{0, 0, 11, 9}, to, full, full}, {},
          {PixelFormat::f32_chw, wanted.mutable_data_ptr<float>() + i * 3 * to.height * to.width, to.height, to.width});
    CHECK(got.equal(wanted));
  }
}

TEST_CASE("transforms that cannot run on the device are refused with a reason") {
  const ResizeConfig resize{.shorter_side = 224};
  REQUIRE_FALSE(device_resize_refusal({resize}).has_value());
  REQUIRE_FALSE(
      device_resize_refusal({RandomCropConfig{28, 28, 0}, resize, CenterCropConfig{224, 224}, kImageNetMoments})
          .has_value());
  REQUIRE_THAT(*device_resize_refusal({kImageNetMoments}), ContainsSubstring("no resize"));
  REQUIRE_FALSE(
      device_resize_refusal({RandomHorizontalFlipConfig{}, RandomResizedCropConfig{224, 224}, kImageNetMoments})
          .has_value());
  REQUIRE_FALSE(device_resize_refusal({resize, RandomCropConfig{32, 32, 4}, RandomHorizontalFlipConfig{}}).has_value());
  REQUIRE_THAT(*device_resize_refusal({resize, RandomResizedCropConfig{224, 224}}), ContainsSubstring("twice"));
  REQUIRE_THAT(*device_resize_refusal({resize, resize}), ContainsSubstring("twice"));
  REQUIRE_FALSE(device_dataset_refusal(
                    {resize, RandomResizedCropConfig{224, 224}, RandomHorizontalFlipConfig{}, kImageNetMoments})
                    .has_value());
  REQUIRE_THAT(*device_dataset_refusal({RandomHorizontalFlipConfig{}, RandomResizedCropConfig{224, 224}}),
               ContainsSubstring("after a random transform"));
  REQUIRE_THAT(*device_dataset_refusal({RandomResizedCropConfig{224, 224}, resize}),
               ContainsSubstring("after a random transform"));
  const auto parts = split_transforms({RandomCropConfig{28, 28, 0}, resize, kImageNetMoments}, false);
  REQUIRE(parts.host.size() == 2);
  REQUIRE(parts.device.size() == 1);
}

TEST_CASE("evaluation keeps the deterministic transforms and replaces random_resized_crop") {
  const auto remaining =
      evaluation_transforms({RandomCropConfig{32, 32, 4}, RandomHorizontalFlipConfig{}, kImageNetMoments});
  REQUIRE(remaining.size() == 1);
  REQUIRE(std::holds_alternative<NormalizeConfig>(remaining[0]));

  RandomResizedCropConfig crop;
  crop.height = crop.width = 224;
  const auto derived = evaluation_transforms({crop, RandomHorizontalFlipConfig{}, kImageNetMoments});
  REQUIRE(derived.size() == 3);
  REQUIRE(std::get<ResizeConfig>(derived[0]).shorter_side == 256);
  REQUIRE(std::get<CenterCropConfig>(derived[1]).height == 224);
  REQUIRE(std::get<CenterCropConfig>(derived[1]).width == 224);

  crop.height = crop.width = 32;
  REQUIRE(std::get<ResizeConfig>(evaluation_transforms({crop})[0]).shorter_side == 37);  // 36.57
  const auto unchanged = evaluation_transforms({ResizeConfig{.shorter_side = 40}, CenterCropConfig{32, 32}});
  REQUIRE(unchanged.size() == 2);
}
