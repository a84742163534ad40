#include "data/image/jpeg.h"

#include "base/error.h"

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstdio>

#include <jpeglib.h>
#include <jerror.h>

namespace trainopt {

// libjpeg is C, and its errors leave by longjmp. Functions that call it through guarded() therefore must not hold
// objects with a destructor, and the reason is stored in `reason` until control is back in C++.
struct JpegReader::State {
  jpeg_decompress_struct info{};
  jpeg_error_mgr error{};
  jpeg_progress_mgr progress{};
  std::jmp_buf on_error;
  char reason[JMSG_LENGTH_MAX] = {};
  std::span<const uint8_t> file;
  int64_t max_pixels;
  std::vector<uint8_t> ink_row;  // one row of a CMYK image

  ~State() { jpeg_destroy_decompress(&info); }

  /// Runs `calls`; throws BadSample with libjpeg's message if one of them fails.
  template <class Calls>
  void guarded(const Calls& calls) {
    if (setjmp(on_error)) throw BadSample(fmt::format("JPEG: {}", reason));
    calls();
  }

  void open();
  /// Whether a progressive image ends before all of its coefficients have full precision; libjpeg then smooths across
  /// blocks.
  bool is_unfinished() const;
  /// Reads the next rows, as many as `out` has, each as wide as `out`.
  void read_rows(ImageU8& out);
};

namespace {

[[noreturn]] void fail(j_common_ptr info) {
  auto* state = static_cast<JpegReader::State*>(info->client_data);
  info->err->format_message(info, state->reason);
  std::longjmp(state->on_error, 1);
}

/// libjpeg's warnings that change no pixel, so that every decoder shows the same picture. All others mean that pixels
/// are missing or were guessed.
constexpr std::array kHarmless = {
    JWRN_JFIF_MAJOR,       // a version in a header that nothing depends on
    JWRN_ADOBE_XFORM,      // an unknown colour transform in Adobe's header; all decoders take YCbCr
    JWRN_EXTRANEOUS_DATA,  // bytes between a scan's end and the next marker, which are skipped
    JWRN_NOT_SEQUENTIAL,   // a scan's spectral range, which only progressive files use; some phones write zeros
};

void note_message(j_common_ptr info, int level) {
  if (level >= 0) return;
  const jpeg_error_mgr& error = *info->err;
  const auto* known = std::find(kHarmless.begin(), kHarmless.end(), error.msg_code);
  // Before a restart marker they mean that the decoder lost its place within the scan.
  const int marker = error.msg_code == JWRN_EXTRANEOUS_DATA ? error.msg_parm.i[1] : 0;
  if (known == kHarmless.end() || (marker >= JPEG_RST0 && marker < JPEG_RST0 + 8)) fail(info);
}

/// A small progressive file can demand very many scans over a large image.
void limit_scans(j_common_ptr info) {
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  auto* state = static_cast<JpegReader::State*>(info->client_data);
  std::snprintf(state->reason, sizeof(state->reason), "more than %d scans", kMaxScans);
  std::longjmp(state->on_error, 1);
}

/// Pillow's conversion: all four inks stored inverted (Adobe's way), products rounded to 8 bits.
void cmyk_to_rgb(const uint8_t* cmyk, int64_t count, uint8_t* rgb) {
  for (int64_t i = 0; i < count; ++i, cmyk += 4, rgb += 3) {
    const int light = cmyk[3];
    for (int channel = 0; channel < 3; ++channel) {
      const int product = (255 - cmyk[channel]) * light + 128;
      rgb[channel] = static_cast<uint8_t>(std::max(light - (((product >> 8) + product) >> 8), 0));
    }
  }
}

}  // namespace

void JpegReader::State::open() {
  info.err = jpeg_std_error(&error);
  error.error_exit = fail;
  error.emit_message = note_message;
  info.client_data = this;
  guarded([&] {
    jpeg_create_decompress(&info);
    progress.progress_monitor = limit_scans;
    info.progress = &progress;
    jpeg_mem_src(&info, file.data(), file.size());
    jpeg_read_header(&info, TRUE);
  });
  check_image_size({info.image_height, info.image_width}, max_pixels);
  if (info.num_components != 1 && info.num_components != 3 && info.num_components != 4)
    throw BadSample(fmt::format("JPEG: {} colour components", info.num_components));
  info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
  info.dct_method = JDCT_ISLOW;
  info.do_fancy_upsampling = TRUE;
}

bool JpegReader::State::is_unfinished() const {
  if (!info.progressive_mode || !info.coef_bits) return false;
  for (int component = 0; component < info.num_components; ++component)
    for (int i = 0; i < DCTSIZE2; ++i)
      if (info.coef_bits[component][i] != 0) return true;
  return false;
}

void JpegReader::State::read_rows(ImageU8& out) {
  const bool inks = info.out_color_space == JCS_CMYK;
  const int64_t height = out.size().height, width = out.size().width;
  TRAINOPT_CHECK_EQUAL(static_cast<int64_t>(info.output_width), width);
  if (inks) ink_row.resize(static_cast<size_t>(width * 4));
  guarded([&] {
    for (int64_t y = 0; y < height; ++y) {
      JSAMPROW row = inks ? ink_row.data() : out.row(y);
      jpeg_read_scanlines(&info, &row, 1);
      if (inks) cmyk_to_rgb(row, width, out.row(y));
    }
  });
}

JpegReader::JpegReader(std::span<const uint8_t> file, int64_t max_pixels) : state_(std::make_unique<State>()) {
  state_->file = file;
  state_->max_pixels = max_pixels;
  state_->open();
}

JpegReader::~JpegReader() = default;

ImageSize JpegReader::size() const { return {state_->info.image_height, state_->info.image_width}; }

ImageSize JpegReader::reduced_size(int reduction) const {
  return {(size().height + reduction - 1) / reduction, (size().width + reduction - 1) / reduction};
}

int64_t JpegReader::bytes_to_decode() const {
  const jpeg_decompress_struct& info = state_->info;
  int64_t bytes = size().height * size().width * 3;
  if (jpeg_has_multiple_scans(const_cast<j_decompress_ptr>(&info)))
    for (int i = 0; i < info.num_components; ++i)
      bytes += int64_t{info.comp_info[i].width_in_blocks} * info.comp_info[i].height_in_blocks * sizeof(JBLOCK);
  return bytes;
}

void JpegReader::read_all(ImageU8& out) {
  state_->guarded([&] { jpeg_start_decompress(&state_->info); });
  out.set_size(size());
  state_->read_rows(out);
}

InputRegion JpegReader::read(const Rect& part, int reduction, ImageU8& buffer, ReadTo to) {
  jpeg_decompress_struct& info = state_->info;
  const ImageSize full = reduced_size(reduction);
  TRAINOPT_CHECK(intersection(part, {0, 0, full.height, full.width}) == part);
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(reduction);

  // Smooth upsampling reads the neighbouring chroma sample, which is missing at the edge of a partial decode: decode a
  // little more.
  constexpr int64_t kMargin = 2;
  int64_t top = std::max<int64_t>(part.top - kMargin, 0);
  const int64_t bottom = std::min(part.bottom() + kMargin, full.height);
  JDIMENSION left = static_cast<JDIMENSION>(std::max<int64_t>(part.left - kMargin, 0));
  JDIMENSION width = static_cast<JDIMENSION>(std::min(part.right() + kMargin, full.width) - left);
  state_->guarded([&] {
    jpeg_start_decompress(&info);
    if (state_->is_unfinished()) top = left = 0, width = info.output_width;   // smoothing reads beyond the margin
    if (width < info.output_width) jpeg_crop_scanline(&info, &left, &width);  // moves both outwards to whole blocks
    if (top > 0) jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(top));
  });
  buffer.set_size({bottom - top, info.output_width});
  state_->read_rows(buffer);

  if (to == ReadTo::end && bottom < full.height) {
    // libjpeg does not decode what is skipped up to the end of the image, so the last row is read.
    ImageU8 last;
    last.set_size({1, info.output_width});
    state_->guarded([&] { jpeg_skip_scanlines(&info, static_cast<JDIMENSION>(full.height - bottom - 1)); });
    state_->read_rows(last);
  }
  return {buffer.view(), top, left};
}

}  // namespace trainopt
