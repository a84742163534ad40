#include "data/image/decode.h"

#include "base/philox.h"
#include "data/image/jpeg.h"
#include "data/image/png.h"
#include "unit/image/samples.h"
#include "support/catch.h"
#include "support/sanitized.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include <jpeglib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zlib.h>

using namespace trainopt;

namespace {

std::string reason(const std::vector<uint8_t>& file) {
  try {
    ImageU8 image;
    decode_image(file, image);
  } catch (const BadSample& bad) {
    return bad.what();
  }
  return "";
}

/// A JPEG with the first component sampled h × v times as finely as the others.
enum class Scans { one, progressive, one_each };
std::vector<uint8_t> encode(const ImageU8& image, int h, int v, Scans scans, unsigned restart) {
  jpeg_compress_struct info;
  jpeg_error_mgr error;
  info.err = jpeg_std_error(&error);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long count = 0;
  jpeg_mem_dest(&info, &bytes, &count);
  info.image_height = static_cast<JDIMENSION>(image.size().height);
  info.image_width = static_cast<JDIMENSION>(image.size().width);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  info.comp_info[0].h_samp_factor = h;
  info.comp_info[0].v_samp_factor = v;
  info.restart_interval = restart;
  if (scans == Scans::progressive) jpeg_simple_progression(&info);
  const jpeg_scan_info each[3] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (scans == Scans::one_each) {
    info.scan_info = each;
    info.num_scans = 3;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = const_cast<uint8_t*>(image.view().pixels) + info.next_scanline * image.view().stride;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  const std::vector<uint8_t> file(bytes, bytes + count);
  std::free(bytes);
  jpeg_destroy_compress(&info);
  return file;
}

/// The last component's scan again and again: small to store, long to decode.
std::vector<uint8_t> with_more_scans(int64_t height, int64_t width, int times) {
  std::vector<uint8_t> file = encode(pattern(height, width), 1, 1, Scans::one_each, 0);
  file.resize(file.size() - 2);
  const uint8_t scan_marker[] = {0xFF, 0xDA};
  const std::vector<uint8_t> last(
      std::find_end(file.begin(), file.end(), std::begin(scan_marker), std::end(scan_marker)), file.end());
  for (int i = 0; i < times; ++i) file.insert(file.end(), last.begin(), last.end());
  file.insert(file.end(), {0xFF, 0xD9});
  return file;
}

/// Grey, with a header and not much else.
std::vector<uint8_t> png_of(uint32_t height, uint32_t width) {
  std::vector<uint8_t> file{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
  const auto number = [&](uint32_t value) {
    for (const int shift : {24, 16, 8, 0}) file.push_back(static_cast<uint8_t>(value >> shift));
  };
  const auto chunk = [&](const std::string& name, const std::vector<uint8_t>& content) {
    number(static_cast<uint32_t>(content.size()));
    const size_t begin = file.size();
    file.insert(file.end(), name.begin(), name.end());
    file.insert(file.end(), content.begin(), content.end());
    uint32_t sum = 0xFFFFFFFF;  // the format's checksum, CRC-32
    for (size_t i = begin; i < file.size(); ++i) {
      sum ^= file[i];
      for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320 : 0);
    }
    number(~sum);
  };
  std::vector<uint8_t> header;
  for (const uint32_t value : {width, height})
    for (const int shift : {24, 16, 8, 0}) header.push_back(static_cast<uint8_t>(value >> shift));
  header.insert(header.end(), {8, 0, 0, 0, 0});
  chunk("IHDR", header);
  chunk("IDAT", {0x78, 0x9C, 0x63, 0x00, 0x00});
  return file;
}

/// How far decoding raises the memory of a process of its own, which refuses the file for this reason; huge if it does
/// not.
double peak_growth_mib(const std::vector<uint8_t>& file, const std::string& expected) {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const auto peak_kib = [] {
      struct rusage usage {};
      ::getrusage(RUSAGE_SELF, &usage);
      return static_cast<double>(usage.ru_maxrss);
    };
    const double before = peak_kib();
    const bool refused = reason(file).find(expected) != std::string::npos;
    const double growth = refused ? (peak_kib() - before) / 1024 : 1e9;
    ::_exit(::write(ends[1], &growth, sizeof(growth)) == sizeof(growth) ? 0 : 1);
  }
  double growth = 1e9;
  const bool reported = ::close(ends[1]) == 0 && ::read(ends[0], &growth, sizeof(growth)) == sizeof(growth);
  ::close(ends[0]);
  int status = 0;
  ::waitpid(child, &status, 0);
  REQUIRE(reported);
  return growth;
}

}  // namespace

TEST_CASE("files decode to Pillow's bytes") {
  // Image.open(file).convert("RGB").tobytes(), Pillow 12.0 with libjpeg-turbo 3.1.2
  struct Known {
    const char* name;
    ImageSize size;
    uint64_t hash;
  };
  const auto known =
      GENERATE(Known{"420.jpg", {61, 83}, 0x273261ce1c362f45}, Known{"422.jpg", {61, 83}, 0x13e5b5419e8e7ba9},
               Known{"444_restart.jpg", {61, 83}, 0x6c0ff676208677ba},
               Known{"progressive.jpg", {61, 83}, 0x0eeaf6a2f0ed10c3}, Known{"grey.jpg", {61, 83}, 0x701d5392db1d2d61},
               Known{"cmyk.jpg", {61, 83}, 0xd5674c6a9cc37c82}, Known{"rotated_exif.jpg", {61, 83}, 0x9f8925430315a76a},
               Known{"icc.jpg", {61, 83}, 0x9f8925430315a76a}, Known{"palette_alpha.png", {23, 31}, 0x415c412f7688e867},
               Known{"rgba.png", {23, 31}, 0x3b937b902d87b860}, Known{"grey_alpha.png", {23, 31}, 0x6043f7bb3bf5f9b8},
               Known{"grey1.png", {23, 31}, 0x0be1e421ebd37891}, Known{"grey16.png", {23, 31}, 0xdda9cd2959a6757d},
               Known{"rgb16.png", {11, 19}, 0x9224dba533c18a5b}, Known{"interlaced.png", {11, 19}, 0x81f181b15fd2be7b});
  INFO(known.name);
  ImageU8 image = pattern(100, 100);  // as if used before
  decode_image(file_bytes(known.name), image);
  CHECK(image.size() == known.size);
  CHECK(hash_bytes(image.row(0), static_cast<size_t>(known.size.height * known.size.width * 3)) == known.hash);
}

TEST_CASE("a part of a JPEG has the pixels of the whole") {
  PhiloxStream random(mix_key(2, "parts"));
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random.next_below(high - low + 1));
  };
  for (const auto& [h, v] : {std::pair{1, 1}, {2, 1}, {2, 2}, {1, 2}, {4, 1}, {4, 2}}) {
    for (const Scans scans : {Scans::one, Scans::progressive, Scans::one_each}) {
      for (const unsigned restart : {0u, 5u}) {
        for (const ImageSize size : {ImageSize{97, 131}, {64, 64}, {33, 47}, {1, 1}, {7, 90}, {130, 18}}) {
          const std::vector<uint8_t> file = encode(pattern(size.height, size.width), h, v, scans, restart);
          ImageU8 all, buffer;
          decode_image(file, all);
          for (int i = 0; i < 25; ++i) {
            const int64_t height = between(1, size.height), width = between(1, size.width);
            const Rect part{between(0, size.height - height), between(0, size.width - width), height, width};
            JpegReader reader(file);
            const InputRegion region = reader.read(part, 1, buffer);
            for (int64_t y = part.top; y < part.bottom(); ++y)
              REQUIRE(std::memcmp(
                          all.row(y) + part.left * 3,
                          region.view.pixels + (y - region.top) * region.view.stride + (part.left - region.left) * 3,
                          static_cast<size_t>(width * 3)) == 0);
          }
        }
      }
    }
  }
}

TEST_CASE("a part of a progressive JPEG that ends early has the pixels of the whole") {
  const std::vector<uint8_t> full = encode(pattern(97, 131), 2, 2, Scans::progressive, 0);
  const uint8_t scan_marker[] = {0xFF, 0xDA};
  int cuts = 0;
  for (auto scan = full.begin() + 1;; ++scan, ++cuts) {
    scan = std::search(scan, full.end(), std::begin(scan_marker), std::end(scan_marker));
    if (scan == full.end()) break;
    if (cuts == 0) continue;  // no scan at all
    std::vector<uint8_t> file(full.begin(), scan);
    file.insert(file.end(), {0xFF, 0xD9});
    ImageU8 all, buffer;
    decode_image(file, all);
    for (const Rect& part : {Rect{0, 0, 97, 131}, {40, 60, 20, 20}, {0, 50, 97, 30}, {90, 0, 7, 131}, {33, 65, 1, 1}}) {
      JpegReader reader(file);
      const InputRegion region = reader.read(part, 1, buffer);
      for (int64_t y = part.top; y < part.bottom(); ++y)
        REQUIRE(std::memcmp(all.row(y) + part.left * 3,
                            region.view.pixels + (y - region.top) * region.view.stride + (part.left - region.left) * 3,
                            static_cast<size_t>(part.width * 3)) == 0);
    }
  }
  CHECK(cuts > 5);
}

TEST_CASE("what is no image is said to be none") {
  const std::vector<uint8_t> jpeg = file_bytes("420.jpg");
  CHECK(reason({}) == "the file is empty");
  CHECK(reason({jpeg.begin(), jpeg.begin() + 10}) != "");
  CHECK(reason(std::vector<uint8_t>(200, 'x')) == "the file is neither JPEG nor PNG");
}

TEST_CASE("cut off files are bad wherever the cut is") {
  const auto name =
      GENERATE(as<std::string>(), "420.jpg", "444_restart.jpg", "progressive.jpg", "grey16.png", "interlaced.png");
  const std::vector<uint8_t> file = file_bytes(name);
  const size_t end =
      name.ends_with(".jpg") ? file.size() - 12 : file.size();  // the last bits of a JPEG may be padding only
  for (size_t count = 0; count < end; count += 7)
    CHECK(reason({file.begin(), file.begin() + static_cast<int64_t>(count)}) != "");

  if (name.ends_with(".jpg")) {  // also when only the top is asked for
    JpegReader reader({file.data(), end});
    ImageU8 buffer;
    CHECK_THROWS_AS(reader.read({0, 0, 4, 4}, 1, buffer, ReadTo::end), BadSample);
  }
}

TEST_CASE("sizes beyond the limits are refused from the header") {
  std::vector<uint8_t> jpeg = file_bytes("420.jpg"), png = file_bytes("rgba.png");
  const uint8_t frame_marker[] = {0xFF, 0xC0};
  const auto frame = std::search(jpeg.begin(), jpeg.end(), std::begin(frame_marker), std::end(frame_marker));
  REQUIRE(frame != jpeg.end());
  for (int i = 0; i < 2; ++i) {  // 65,000 rows and columns
    frame[5 + i * 2] = 0xFD;
    frame[6 + i * 2] = 0xE8;
  }
  CHECK_THAT(reason(jpeg), ContainsSubstring("65000x65000"));
  CHECK_NOTHROW(check_image_size({16384, 10922}, kMaxPixels));
  CHECK_THROWS_AS(check_image_size({16384, 10923}, kMaxPixels), BadSample);
  CHECK_NOTHROW(check_image_size({1, kMaxPixels}, kMaxPixels));
  CHECK_NOTHROW(check_image_size({10, 20000}, 200000));
  CHECK_THROWS_WITH(
      check_image_size({10, 20000}, 199999),
      "an image of 20000x10 pixels (width x height) has more than data.max_pixels allows; raise that key to "
      "read it: 199999");
  CHECK_THROWS_AS(check_image_size({int64_t{1} << 31, int64_t{1} << 31}, kMaxPixels), BadSample);
  CHECK_THROWS_AS(check_image_size({0, 1}, kMaxPixels), BadSample);
}

TEST_CASE("a side may be as long as the pixels allow") {
  for (const ImageSize size : {ImageSize{10, 20000}, {65500, 2}, {1, 65500}}) {
    const std::vector<uint8_t> file = encode_png(pattern(size.height, size.width).view());
    ImageU8 image;
    decode_image(file, image);
    CHECK(image.size() == size);
  }
}

TEST_CASE("a JPEG with hundreds of scans is refused") {
  CHECK(reason(with_more_scans(16, 16, kMaxScans - 3)) == "");
  CHECK_THAT(reason(with_more_scans(16, 16, kMaxScans - 2)), ContainsSubstring("more than 500 scans"));
}

TEST_CASE("D3: what a header announces is refused before memory is taken for it") {
  const auto jpeg = [](const char* name, int height, int width) {
    std::vector<uint8_t> file = file_bytes(name);
    for (size_t i = 0; i + 9 < file.size(); ++i)
      if (file[i] == 0xFF && (file[i + 1] == 0xC0 || file[i + 1] == 0xC2)) {
        file[i + 5] = static_cast<uint8_t>(height >> 8), file[i + 6] = static_cast<uint8_t>(height);
        file[i + 7] = static_cast<uint8_t>(width >> 8), file[i + 8] = static_cast<uint8_t>(width);
        return file;
      }
    throw std::runtime_error("no frame");
  };
  for (const char* name : {"420.jpg", "progressive.jpg", "cmyk.jpg"}) {
    CHECK(peak_growth_mib(jpeg(name, 65000, 65000), "data.max_pixels") < 8);
    CHECK(peak_growth_mib(jpeg(name, 16384, 10923), "data.max_pixels") < 8);
  }
  CHECK(peak_growth_mib(with_more_scans(512, 512, 5000), "more than 500 scans") < 16);
  CHECK(peak_growth_mib(png_of(65000, 65000), "data.max_pixels") < 8);
  CHECK(peak_growth_mib(png_of(0x7FFFFFFF, 0x7FFFFFFF), "data.max_pixels") < 8);
  if (kSanitized) return;  // it surrounds and keeps what is allocated
  // The largest that is allowed takes its own three bytes a pixel, 512 MiB, and no more, although nothing else is in
  // the file.
  CHECK(peak_growth_mib(png_of(16384, 10922), "PNG: ") < 528);
  CHECK(peak_growth_mib(jpeg("420.jpg", 16384, 10922), "JPEG: ") < 528);
  CHECK(peak_growth_mib(jpeg("progressive.jpg", 16384, 10922), "JPEG: ") < 528);
}

namespace {

using Bytes = std::vector<uint8_t>;

/// Where the last scan's coded data begin.
size_t coded_at(const Bytes& jpeg) {
  const uint8_t marker[] = {0xFF, 0xDA};
  const auto scan = std::find_end(jpeg.begin(), jpeg.end(), std::begin(marker), std::end(marker));
  return static_cast<size_t>(scan - jpeg.begin()) + 2 + static_cast<size_t>(scan[2] * 256 + scan[3]);
}

Bytes with_bytes(Bytes jpeg, size_t at, const Bytes& more) {
  jpeg.insert(jpeg.begin() + static_cast<std::ptrdiff_t>(at), more.begin(), more.end());
  return jpeg;
}

/// Every part of the image, and the whole, has the same verdict; "" for a good file.
std::string one_verdict(const Bytes& file) {
  const std::string whole = reason(file);
  ImageU8 buffer;
  for (const Rect& part : {Rect{0, 0, 4, 4}, {30, 40, 8, 8}, {0, 60, 61, 23}, {57, 0, 4, 83}}) {
    std::string found;
    try {
      JpegReader reader(file);
      reader.read(part, 1, buffer, ReadTo::end);
    } catch (const BadSample& bad) {
      found = bad.what();
    }
    CHECK(found == whole);
  }
  return whole;
}

}  // namespace

TEST_CASE("libjpeg's warnings that change no pixel are let pass, and all others refuse the file") {
  const Bytes good = encode(pattern(61, 83), 2, 2, Scans::one, 0),
              restarts = encode(pattern(61, 83), 2, 2, Scans::one, 3),
              progressive = encode(pattern(61, 83), 2, 2, Scans::progressive, 0);
  ImageU8 expected, found;
  decode_image(good, expected);
  const auto same = [&](const Bytes& file) {
    if (one_verdict(file) != "") return false;
    decode_image(file, found);
    return found.size() == expected.size() &&
           std::memcmp(found.row(0), expected.row(0), static_cast<size_t>(61 * 83 * 3)) == 0;
  };
  const size_t coded = coded_at(good), end = good.size() - 2;
  REQUIRE(same(good));
  Bytes major = good;  // JFIF 7.01
  major[11] = 7;
  CHECK(same(major));
  CHECK(same(with_bytes(good, 2, {0xFF, 0xEE, 0, 14, 'A', 'd', 'o', 'b', 'e', 0, 100, 0, 0, 0, 0, 9})));
  CHECK(same(with_bytes(good, end, Bytes(99, 0x55))));  // before the end's marker
  Bytes spectrum = good;                                // what progressive files say of a scan
  spectrum[coded - 3] = spectrum[coded - 2] = spectrum[coded - 1] = 0;
  CHECK(same(spectrum));
  decode_image(progressive, expected);
  CHECK(same(with_bytes(progressive, progressive.size() - 2, Bytes(99, 0x55))));
  const uint8_t scan[] = {0xFF, 0xDA};
  const auto second = std::search(std::search(progressive.begin(), progressive.end(), scan, scan + 2) + 2,
                                  progressive.end(), scan, scan + 2);
  CHECK(same(with_bytes(progressive, static_cast<size_t>(second - progressive.begin()), Bytes(5, 0x33))));

  Bytes premature(good.begin(), good.begin() + static_cast<std::ptrdiff_t>((coded + end) / 2));
  CHECK_THAT(one_verdict(premature), ContainsSubstring("Premature end of JPEG file"));
  premature.insert(premature.end(), {0xFF, 0xD9});
  CHECK_THAT(one_verdict(premature), ContainsSubstring("premature end of data segment"));
  Bytes code = good;
  for (size_t i = (coded + end) / 2; i + 1 < end; i += 2) code[i] = 0xFF, code[i + 1] = 0;
  CHECK_THAT(one_verdict(code), ContainsSubstring("bad Huffman code"));
  Bytes resync = restarts;
  for (size_t i = coded_at(resync); i + 1 < resync.size(); ++i)
    if (resync[i] == 0xFF && resync[i + 1] == 0xD1) resync[i + 1] = 0xD5;
  CHECK_THAT(one_verdict(resync), ContainsSubstring("Corrupt JPEG data"));
  Bytes before_restart = restarts;
  const uint8_t first_restart[] = {0xFF, 0xD0};
  const auto restart = std::search(before_restart.begin() + static_cast<std::ptrdiff_t>(coded_at(restarts)),
                                   before_restart.end(), first_restart, first_restart + 2);
  REQUIRE(restart != before_restart.end());
  CHECK_THAT(one_verdict(with_bytes(restarts, static_cast<size_t>(restart - before_restart.begin()), Bytes(9, 0x55))),
             ContainsSubstring("extraneous bytes before marker 0xd0"));
  const Bytes last(progressive.begin() + static_cast<std::ptrdiff_t>(coded_at(progressive) - 2 - 8),
                   progressive.end() - 2);  // a refinement, again
  CHECK_THAT(one_verdict(with_bytes(progressive, progressive.size() - 2, last)),
             ContainsSubstring("Inconsistent progression sequence"));
}

TEST_CASE("flipped bits give a picture or a reason, never a crash") {
  const auto name = GENERATE(as<std::string>(), "420.jpg", "progressive.jpg", "cmyk.jpg", "palette_alpha.png",
                             "interlaced.png", "grey16.png");
  const std::vector<uint8_t> file = file_bytes(name);
  PhiloxStream random(mix_key(3, name));
  int bad = 0;
  for (int i = 0; i < 400; ++i) {
    std::vector<uint8_t> flipped = file;
    for (int flip = 0; flip < 1 + i % 3; ++flip)
      flipped[random.next_below(file.size())] ^= static_cast<uint8_t>(1u << random.next_below(8));
    bad += reason(flipped) != "";
  }
  CHECK(bad > 20);  // most flips in a JPEG only change the picture
}

namespace {

void add_big_endian(std::vector<uint8_t>& bytes, uLong value) {
  for (const int shift : {24, 16, 8, 0}) bytes.push_back(static_cast<uint8_t>(value >> shift));
}

void add_chunk(std::vector<uint8_t>& png, const char* kind, const std::vector<uint8_t>& data) {
  add_big_endian(png, data.size());
  const size_t checked = png.size();
  png.insert(png.end(), kind, kind + 4);
  png.insert(png.end(), data.begin(), data.end());
  add_big_endian(png, crc32(0, png.data() + checked, static_cast<uInt>(png.size() - checked)));
}

/// 8 × 8 pixels of black, whose image data go on for so many bytes.
std::vector<uint8_t> png_with_more(size_t more_bytes, uint8_t interlaced) {
  const size_t rows = interlaced ? 8 * 25 + 7 : 8 * 25;  // 25 bytes a row; interlaced rows have a few more in all
  std::vector<uint8_t> packed(compressBound(rows + more_bytes));
  uLong bytes = packed.size();
  const std::vector<uint8_t> zeros(rows + more_bytes);
  REQUIRE(compress2(packed.data(), &bytes, zeros.data(), zeros.size(), 9) == Z_OK);
  packed.resize(bytes);
  std::vector<uint8_t> png{0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
  add_chunk(png, "IHDR", {0, 0, 0, 8, 0, 0, 0, 8, 8, 2, 0, 0, interlaced});
  add_chunk(png, "IDAT", packed);
  add_chunk(png, "IEND", {});
  return png;
}

}  // namespace

TEST_CASE("a PNG is not read beyond the rows that its header promises") {
  for (const uint8_t interlaced : {0, 1}) {
    std::vector<uint8_t> png = png_with_more(64 << 20, interlaced);
    REQUIRE(png.size() > 40'000);
    png.resize(40'000);  // whoever reads on finds a truncated file
    CHECK(reason(png) == "");
    CHECK(reason(png_with_more(0, interlaced)) == "");
    std::vector<uint8_t> cut = png_with_more(0, interlaced);
    cut.resize(cut.size() - 20);  // within the image data
    CHECK(reason(cut) != "");
  }
}
