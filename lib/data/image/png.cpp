#include "data/image/png.h"

#include "base/error.h"

#include <csetjmp>
#include <cstdio>
#include <cstring>

#include <png.h>

namespace trainopt {

namespace {

/// State that must survive libpng's longjmp; see jpeg.cpp.
struct PngReader {
  std::span<const uint8_t> file;
  size_t position = 0;
  size_t behind = 0;     ///< bytes read of the image data after its last row was complete
  bool in_rows = false;  ///< image data is being read
  bool stopped = false;  ///< what follows the last row was not read
  char reason[160] = {};
  png_structp png = nullptr;
  png_infop info = nullptr;
  std::vector<uint8_t> grey16;  // big-endian

  ~PngReader() { png_destroy_read_struct(&png, &info, nullptr); }

  template <class Calls>
  void guarded(const Calls& calls) {
    if (setjmp(png_jmpbuf(png))) {
      if (stopped) return;
      throw BadSample(fmt::format("PNG: {}", reason));
    }
    calls();
  }
};

[[noreturn]] void fail(png_structp png, png_const_charp message) {
  auto* reader = static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader->reason, sizeof(reader->reason), "%s", message);
  png_longjmp(png, 1);
}

/// Warnings are about chunks that do not affect pixels; libpng reports damaged image data as an error.
void ignore_warning(png_structp, png_const_charp) {}

/// Whether the last row of the last pass has been decoded. libpng inflates the rest of the data all the same.
bool has_all_rows(png_const_structp png, png_const_infop info) {
  if (png_get_interlace_type(png, info) == PNG_INTERLACE_NONE)
    return png_get_current_row_number(png) >= png_get_image_height(png, info);
  return png_get_current_pass_number(png) >= PNG_INTERLACE_ADAM7_PASSES;
}

void read_bytes(png_structp png, png_bytep out, size_t count) {
  constexpr size_t kMostBehind = 16 << 10;  // the end of the compressed stream; inflates to 17 MB at most
  auto* reader = static_cast<PngReader*>(png_get_io_ptr(png));
  if (reader->in_rows && has_all_rows(png, reader->info) && (reader->behind += count) > kMostBehind) {
    reader->stopped = true;
    png_longjmp(png, 1);
  }
  if (count > reader->file.size() - reader->position) png_error(png, "the file is truncated");
  std::memcpy(out, reader->file.data() + reader->position, count);
  reader->position += count;
}

}  // namespace

DecodeMemory::Hold decode_png(std::span<const uint8_t> file, ImageU8& out, const DecodeOptions& options) {
  PngReader reader;
  reader.file = file;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &reader, fail, ignore_warning);
  TRAINOPT_CHECK(reader.png != nullptr);
  const png_structp png = reader.png;
  const png_infop info = reader.info = png_create_info_struct(png);
  TRAINOPT_CHECK(info != nullptr);
  reader.guarded([&] {
    png_set_read_fn(png, &reader, read_bytes);
    png_set_user_limits(png, 0x7FFFFFFF, 0x7FFFFFFF);                       // check_image_size() has the better message
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);  // do not even unpack text, profiles, times
    png_read_info(png, info);
  });
  const ImageSize size{png_get_image_height(png, info), png_get_image_width(png, info)};
  check_image_size(size, options.max_pixels);

  const int color = png_get_color_type(png, info), depth = png_get_bit_depth(png, info);
  const bool grey16 = color == PNG_COLOR_TYPE_GRAY && depth == 16;
  int passes = 1;
  reader.guarded([&] {
    if (color == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
    if (color == PNG_COLOR_TYPE_GRAY && depth < 8) png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16 && !grey16) png_set_strip_16(png);
    png_set_strip_alpha(png);
    if ((color & PNG_COLOR_MASK_COLOR) == 0 && !grey16) png_set_gray_to_rgb(png);
    passes = png_set_interlace_handling(png);
    png_read_update_info(png, info);
  });
  TRAINOPT_CHECK_EQUAL(static_cast<int64_t>(png_get_rowbytes(png, info)), size.width * (grey16 ? 2 : 3));

  const int64_t grey_bytes = grey16 ? size.height * size.width * 2 : 0;
  auto hold = hold_for(size.height * size.width * 3 + grey_bytes, options);
  out.set_size(size);
  reader.grey16.resize(static_cast<size_t>(grey_bytes));
  reader.in_rows = true;
  reader.guarded([&] {
    for (int pass = 0; pass < passes; ++pass)
      for (int64_t y = 0; y < size.height; ++y)
        png_read_row(png, grey16 ? &reader.grey16[static_cast<size_t>(y * size.width * 2)] : out.row(y), nullptr);
    reader.in_rows = false;
    png_read_end(png, nullptr);
  });
  for (size_t i = 0; i < reader.grey16.size() / 2; ++i)
    std::memset(out.row(0) + i * 3, reader.grey16[i * 2] != 0 ? 255 : reader.grey16[i * 2 + 1], 3);
  return hold;
}

std::vector<uint8_t> encode_png(const ImageView& image) {
  png_image description{};
  description.version = PNG_IMAGE_VERSION;
  description.format = PNG_FORMAT_RGB;
  description.height = static_cast<png_uint_32>(image.height);
  description.width = static_cast<png_uint_32>(image.width);
  std::vector<uint8_t> file(PNG_IMAGE_PNG_SIZE_MAX(description));
  png_alloc_size_t bytes = file.size();
  const int written = png_image_write_to_memory(&description, file.data(), &bytes, /*convert_to_8_bit=*/0, image.pixels,
                                                static_cast<png_int_32>(image.stride), /*colormap=*/nullptr);
  TRAINOPT_CHECK(written != 0);
  file.resize(bytes);
  return file;
}

}  // namespace trainopt
