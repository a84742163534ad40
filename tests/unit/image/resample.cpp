#include "base/philox.h"
#include "unit/image/samples.h"
#include "support/catch.h"

#include <algorithm>

using namespace trainopt;

namespace {

Stage full_resize(int64_t height, int64_t width, int64_t to_height, int64_t to_width) {
  const Rect all{0, 0, to_height, to_width};
  return {{0, 0, height, width}, {to_height, to_width}, all, all, false};
}

const Normalization kImageNetMoments{{0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f}};

}  // namespace

TEST_CASE("resize gives Pillow's bytes") {
  // Image.fromarray(pattern(h, w)).resize((to_w, to_h), Image.BILINEAR), Pillow 12.0
  struct Known {
    int64_t height, width, to_height, to_width;
    uint64_t hash;
  };
  const auto known = GENERATE(Known{32, 32, 224, 224, 0xd4041435c3a2c610}, Known{37, 50, 22, 22, 0x88cd2837de81a867},
                              Known{5, 3, 9, 11, 0xe1c94681f6a627ea}, Known{120, 90, 17, 300, 0x6a65edd3782f5cea},
                              Known{1, 1, 4, 4, 0x86bee04fee429465}, Known{40, 40, 40, 20, 0x7ce68cf20d6c3b95},
                              Known{61, 7, 7, 61, 0xca795f1611044c2e});
  const ImageU8 image = pattern(known.height, known.width);
  Output out(PixelFormat::u8_hwc, known.to_height, known.to_width);
  ResampleScratch scratch;
  resample({image.view(), 0, 0}, full_resize(known.height, known.width, known.to_height, known.to_width), {},
           out.destination, scratch);
  CHECK(out.hash() == known.hash);
}

TEST_CASE("resample agrees with its obvious twin on any stage") {
  PhiloxStream random(mix_key(1, "stages"));
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.next_below(high - low + 1));
  };
  const auto part_of = [&](int64_t height, int64_t width) {
    const int64_t part_height = between(1, height), part_width = between(1, width);
    return Rect{between(0, height - part_height), between(0, width - part_width), part_height, part_width};
  };
  ResampleScratch scratch;
  for (int i = 0; i < 300; ++i) {
    const ImageU8 image = pattern(between(1, 90), between(1, 90));
    Stage stage;
    stage.source = part_of(image.size().height, image.size().width);
    stage.resized =
        i % 3 == 0 ? ImageSize{stage.source.height, stage.source.width} : ImageSize{between(1, 120), between(1, 120)};
    stage.valid = part_of(stage.resized.height, stage.resized.width);
    stage.window = i % 2 == 0 ? Rect{between(-9, 9), between(-9, 9), between(1, 130), between(1, 130)}
                              : part_of(stage.resized.height, stage.resized.width);
    stage.flip = random.next_unit() < 0.5;
    for (const PixelFormat format : {PixelFormat::u8_hwc, PixelFormat::f32_chw, PixelFormat::f32_hwc}) {
      Output fast(format, stage.window.height, stage.window.width),
          slow(format, stage.window.height, stage.window.width);
      resample_reference({image.view(), 0, 0}, stage, kImageNetMoments, slow.destination);
      resample({image.view(), 0, 0}, stage, kImageNetMoments, fast.destination, scratch);
      REQUIRE(fast.bytes == slow.bytes);

      // The same from no more than the needed part, in memory that ends with it.
      const Rect needed = needed_input(stage, scratch.tables);
      const ImageView all = image.view();
      std::vector<uint8_t> part;
      for (int64_t y = needed.top; y < needed.bottom(); ++y) {
        const uint8_t* row = all.pixels + y * all.stride + needed.left * 3;
        part.insert(part.end(), row, row + needed.width * 3);
      }
      part.shrink_to_fit();
      Output partial(format, stage.window.height, stage.window.width);
      resample({{part.data(), needed.height, needed.width, needed.width * 3}, needed.top, needed.left}, stage,
               kImageNetMoments, partial.destination, scratch);
      REQUIRE(partial.bytes == slow.bytes);
    }
  }
}

TEST_CASE("every byte becomes torchvision's float") {
  const Normalization normalization =
      GENERATE(Normalization{}, kImageNetMoments, Normalization{{0.1f, 0.5f, -3.0f}, {1e-3f, 0.3333f, 77.0f}});
  ImageU8 image;
  image.set_size({16, 16});
  for (int i = 0; i < 256 * 3; ++i) image.row(0)[i] = static_cast<uint8_t>(i / 3);
  Output planar(PixelFormat::f32_chw, 16, 16);
  ResampleScratch scratch;
  resample({image.view(), 0, 0}, full_resize(16, 16, 16, 16), normalization, planar.destination, scratch);
  for (int channel = 0; channel < 3; ++channel)
    for (int value = 0; value < 256; ++value)
      REQUIRE(planar.floats()[channel * 256 + value] ==
              (static_cast<float>(value) / 255.0f - normalization.mean[channel]) / normalization.std[channel]);
}

TEST_CASE("weights sum to one and tables are remembered") {
  ResampleTableCache cache;
  for (const auto& [input, output] : {std::pair{500, 224}, {32, 224}, {7, 7}, {1, 9}, {16384, 1}}) {
    const auto table = cache.get(input, output);
    CHECK(cache.get(input, output) == table);
    for (int64_t i = 0; i < output; ++i) {
      int64_t sum = 0;
      for (int64_t tap = 0; tap < table->taps; ++tap) sum += table->coefficients[i * table->taps + tap];
      REQUIRE(std::abs(sum - (1 << kResampleBits)) <= table->taps);
      REQUIRE((table->count[i] >= 1 && table->first[i] >= 0 && table->first[i] + table->count[i] <= input));
      if (i > 0) REQUIRE(table->first[i] >= table->first[i - 1]);
    }
  }
}
