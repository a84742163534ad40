#include "base/error.h"
#include "data/image/decode.h"
#include "data/image/decode_memory.h"
#include "data/image/pipeline.h"
#include "data/image/png.h"
#include "unit/image/samples.h"
#include "support/catch.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

using namespace trainopt;

namespace {

const NormalizeConfig kImageNet{{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}};

std::vector<TransformConfig> normalized(std::vector<TransformConfig> transforms) {
  transforms.push_back(kImageNet);
  return transforms;
}

}  // namespace

TEST_CASE("fixed transforms give torchvision's bits") {
  // torchvision 0.26 on Image.fromarray(pattern(h, w)): the PIL image's bytes, and ToTensor and Normalize's float32.
  struct Known {
    std::vector<TransformConfig> transforms;
    int64_t height, width;
    uint64_t bytes, floats;
  };
  const std::vector<Known> all{
      {{ResizeConfig{std::nullopt, {64, 48}}}, 32, 32, 0x634fa825ef7c416b, 0xc8e4c29d34c38a09},
      {{ResizeConfig{32}, CenterCropConfig{28, 28}}, 50, 67, 0xd071c04142c671c9, 0x144fd44207a18e03},
      {{ResizeConfig{32}, CenterCropConfig{28, 28}}, 67, 50, 0x472f1ef4e5ee7832, 0xf4146791c15079f0},
      {{ResizeConfig{32}, CenterCropConfig{28, 28}}, 41, 40, 0xd00a1eb3c1d5c1b9, 0xbc71c519fc7dabe5},
      {{CenterCropConfig{7, 7}}, 10, 11, 0x3fa32dfdab54bcac, 0xb0f4f89c22157ce1},
      {{CenterCropConfig{8, 8}}, 11, 10, 0x151f7cd3302d7dab, 0xd1499657103705f5},
      {{CenterCropConfig{8, 8}}, 13, 13, 0xe2d408959019dfa7, 0x1961b428248a0d3f},
      {{CenterCropConfig{9, 9}}, 5, 20, 0x82f5fbdc4482b6de, 0x005de3f9638dd6c6},
      {{CenterCropConfig{11, 11}}, 6, 6, 0xc5b66999b2d43d00, 0x44a582290064292c},
      {{CenterCropConfig{20, 9}, ResizeConfig{12}, CenterCropConfig{15, 15}},
       13,
       30,
       0x051a1c6852f1733b,
       0xa297ddcd10e6b06d}};
  PipelineScratch scratch;
  for (const Known& known : all) {
    const Pipeline pipeline(normalized(known.transforms));
    const ImageU8 image = pattern(known.height, known.width);
    const ImageSize size = pipeline.output_size(image.size()).value();
    Output bytes(PixelFormat::u8_hwc, size.height, size.width), floats(PixelFormat::f32_chw, size.height, size.width),
        interleaved(PixelFormat::f32_hwc, size.height, size.width);
    pipeline.run(image.view(), 0, bytes.destination, scratch);
    pipeline.run(image.view(), 0, floats.destination, scratch);
    pipeline.run(image.view(), 0, interleaved.destination, scratch);
    CHECK(bytes.hash() == known.bytes);
    CHECK(floats.hash() == known.floats);
    const int64_t pixels = size.height * size.width;
    for (int64_t i = 0; i < pixels * 3; ++i)
      REQUIRE(interleaved.floats()[i] == floats.floats()[i % 3 * pixels + i / 3]);
  }
}

TEST_CASE("joined transforms equal the same transforms one at a time") {
  const std::vector<std::vector<TransformConfig>> lists{
      {RandomCropConfig{30, 26, 0}, CenterCropConfig{40, 40}, RandomHorizontalFlipConfig{1.0},
       CenterCropConfig{33, 21}},
      {RandomHorizontalFlipConfig{1.0}, RandomCropConfig{20, 20, 5}, ResizeConfig{31}, CenterCropConfig{17, 40}},
      {RandomCropConfig{32, 32, 4}, RandomHorizontalFlipConfig{1.0}},
      {ResizeConfig{60}, RandomCropConfig{50, 41, 0}, ResizeConfig{20}, RandomHorizontalFlipConfig{1.0}},
      {RandomResizedCropConfig{24, 24}, RandomHorizontalFlipConfig{1.0}, RandomCropConfig{24, 24, 3}}};
  PipelineScratch scratch;
  for (const auto& list : lists) {
    for (uint64_t key = 0; key < 20; ++key) {
      ImageU8 image = pattern(37, 45), next;
      const Pipeline pipeline(list);
      const ImageSize size = pipeline.output_size(image.size()).value();
      Output joined(PixelFormat::u8_hwc, size.height, size.width);
      pipeline.run(image.view(), key, joined.destination, scratch);
      for (size_t i = 0; i < list.size(); ++i) {
        // Draws depend on the place in the list, so the others become resizes to the size there is, which do nothing.
        std::vector<TransformConfig> one(i, ResizeConfig{std::nullopt, {image.size().height, image.size().width}});
        one.push_back(list[i]);
        const Pipeline step(one);
        next.set_size(step.output_size(image.size()).value());
        step.run(image.view(), key, {PixelFormat::u8_hwc, next.row(0), next.size().height, next.size().width}, scratch);
        std::swap(image, next);
      }
      REQUIRE(image.size() == size);
      REQUIRE(std::memcmp(joined.bytes.data(), image.row(0), joined.bytes.size()) == 0);
    }
  }
}

TEST_CASE("a file decoded in part gives what the whole image gives") {
  const auto name = GENERATE(as<std::string>(), "420.jpg", "422.jpg", "444_restart.jpg", "progressive.jpg", "grey.jpg",
                             "cmyk.jpg", "rgba.png");
  const std::vector<uint8_t> file = file_bytes(name);
  ImageU8 image;
  decode_image(file, image);
  PipelineScratch scratch, fresh;
  for (const auto& transforms :
       {normalized({RandomResizedCropConfig{20, 24}, RandomHorizontalFlipConfig{}}),
        normalized({ResizeConfig{40}, CenterCropConfig{20, 24}}), normalized({RandomCropConfig{20, 24, 2}})}) {
    const Pipeline pipeline(transforms);
    for (uint64_t key = 0; key < 60; ++key) {
      Output complete(PixelFormat::f32_chw, 20, 24), part(PixelFormat::f32_chw, 20, 24);
      pipeline.run(image.view(), key, complete.destination, fresh);
      pipeline.run_encoded(file, {}, ReadTo::end, key, part.destination, scratch);
      REQUIRE(part.bytes == complete.bytes);
    }
  }
}

TEST_CASE("decoding at reduced size gives nearly the same picture") {
  const std::vector<uint8_t> file = file_bytes("smooth.jpg");  // 300 x 240, up to 2.5 grey levels from pixel to pixel
  PipelineScratch scratch;
  const auto mean_difference = [&](const Pipeline& pipeline, uint64_t key) {
    Output full(PixelFormat::u8_hwc, 16, 16), reduced(PixelFormat::u8_hwc, 16, 16);
    pipeline.run_encoded(file, {}, ReadTo::end, key, full.destination, scratch);
    pipeline.run_encoded(file, {.size = DecodeSize::reduced}, ReadTo::end, key, reduced.destination, scratch);
    CHECK(full.bytes != reduced.bytes);
    double difference = 0;
    for (size_t i = 0; i < full.bytes.size(); ++i) difference += std::abs(full.bytes[i] - reduced.bytes[i]);
    return difference / static_cast<double>(full.bytes.size());
  };
  CHECK(mean_difference(Pipeline({ResizeConfig{std::nullopt, {16, 16}}}), 0) < 3.0);
  // A crop moves by up to half a reduced pixel: four of the full ones.
  const Pipeline random({RandomResizedCropConfig{16, 16, {0.5, 1.0}}});
  for (uint64_t key = 0; key < 30; ++key) CHECK(mean_difference(random, key) < 10.0);
}

TEST_CASE("the time of a sample is filed under decoding and transforming") {
  const auto name = GENERATE(as<std::string>(), "smooth.jpg", "rgba.png");
  const std::vector<uint8_t> file = file_bytes(name);
  const Pipeline pipeline({ResizeConfig{std::nullopt, {16, 16}}});
  Output out(PixelFormat::u8_hwc, 16, 16);
  for (const auto size : {DecodeSize::full, DecodeSize::reduced}) {
    PipelineScratch scratch;
    pipeline.run_encoded(file, {.size = size}, ReadTo::end, 0, out.destination, scratch);
    CHECK((scratch.times.read_ns == 0 && scratch.times.decode_ns > 0 && scratch.times.transform_ns > 0));
  }
  PipelineScratch pixels, damaged;
  pipeline.run(pattern(20, 30).view(), 0, out.destination, pixels);
  CHECK((pixels.times.decode_ns == 0 && pixels.times.transform_ns > 0));
  CHECK_THROWS_AS(
      pipeline.run_encoded(std::span(file).first(file.size() / 2), {}, ReadTo::end, 0, out.destination, damaged),
      BadSample);
  CHECK((damaged.times.decode_ns > 0 && damaged.times.transform_ns == 0));
}

TEST_CASE("a large image's memory is given back, and one that does not fit is a bad sample") {
  ImageU8 image;
  image.set_size({4200, 5500});  // 66 MiB
  for (int64_t y = 0; y < image.size().height; ++y) std::fill_n(image.row(y), image.size().width * 3, uint8_t{7});
  const std::vector<uint8_t> large = encode_png(image.view()), small = file_bytes("420.jpg");
  const Pipeline pipeline({CenterCropConfig{8, 8}});
  Output out(PixelFormat::u8_hwc, 8, 8);
  PipelineScratch scratch;
  const DecodeOptions options{.memory = std::make_shared<DecodeMemory>(int64_t{100} << 20)};
  const auto run = [&](const std::vector<uint8_t>& file) {
    return pipeline.run_encoded(file, options, ReadTo::end, 0, out.destination, scratch);
  };
  CHECK(run(small) == ImageSize{61, 83});
  CHECK(scratch.kept_bytes > 0);
  CHECK(run(large) == ImageSize{4200, 5500});
  CHECK(out.bytes[0] == 7);
  CHECK(scratch.decoded.allocated_bytes() == 0);
  CHECK(scratch.kept_bytes < kLargeDecode);
  run(large);  // what the first took was given back
  const auto buffers = DecodeMemory::reserve(options.memory, int64_t{90} << 20);
  run(large);  // whatever else there is: the verdict must not depend on the number of threads
  const DecodeOptions less{.memory = std::make_shared<DecodeMemory>(int64_t{66} << 20)};
  CHECK_THROWS_WITH(pipeline.run_encoded(large, less, ReadTo::end, 0, out.destination, scratch),
                    ContainsSubstring("decoding it takes 66.1 MiB, more than data.memory_limit, 66.0 MiB"));
  CHECK(run(small) == ImageSize{61, 83});
}

TEST_CASE("large images wait for each other") {
  const auto memory = std::make_shared<DecodeMemory>(100);
  auto first = DecodeMemory::take(memory, 80);
  std::atomic<bool> has_second{false};
  std::thread other([&] {
    const auto second = DecodeMemory::take(memory, 30);
    has_second = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK_FALSE(has_second);
  first = nullptr;
  other.join();
  CHECK(has_second);
  CHECK_THROWS_AS(DecodeMemory::take(memory, 101), BadSample);
  CHECK(DecodeMemory::take(nullptr, 101) == nullptr);
}

TEST_CASE("normalize comes last and once") {
  CHECK_THROWS_AS(Pipeline({kImageNet, ResizeConfig{3}}), UserError);
  CHECK_THROWS_AS(Pipeline({kImageNet, kImageNet}), UserError);
  CHECK_THROWS_AS(Pipeline({NormalizeConfig{{0, 0, 0}, {1, 0, 1}}}), UserError);
  CHECK_THROWS_AS(Pipeline({NormalizeConfig{{0, std::numeric_limits<double>::infinity(), 0}, {1, 1, 1}}}), UserError);
  CHECK(Pipeline(std::vector<TransformConfig>{}).normalization().std == std::array<float, 3>{1, 1, 1});
  CHECK(Pipeline({kImageNet}).normalization().mean[1] == 0.456f);
}

TEST_CASE("an image that comes out in another size is a bad sample") {
  PipelineScratch scratch;
  Output out(PixelFormat::f32_chw, 8, 8);
  CHECK_THROWS_AS(Pipeline({ResizeConfig{8}}).run(pattern(20, 30).view(), 0, out.destination, scratch), BadSample);
}
