#include "trace/gzip_writer.h"

#include "base/error.h"

#include <zlib.h>

namespace trainopt::trace {
namespace {

constexpr size_t kGzipPieceBytes = size_t{1} << 18;
constexpr int kGzipFormat = 15 + 16;  // the largest window; + 16: with a gzip header (zlib.h)
constexpr int kGzipMemory = 8;        // zlib's default

}  // namespace

GzipWriter::GzipWriter(File& file) : file_(file), deflater_(std::make_unique<z_stream>()), output_(kGzipPieceBytes) {
  TRAINOPT_CHECK_EQUAL(
      deflateInit2(deflater_.get(), Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipFormat, kGzipMemory, Z_DEFAULT_STRATEGY),
      Z_OK);
}

GzipWriter::~GzipWriter() { deflateEnd(deflater_.get()); }

void GzipWriter::append(std::string_view bytes) { deflate_all(bytes, Z_NO_FLUSH); }
void GzipWriter::finish() { deflate_all({}, Z_FINISH); }

void GzipWriter::deflate_all(std::string_view bytes, int flush) {
  z_stream& stream = *deflater_;
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  do {
    stream.next_out = reinterpret_cast<Bytef*>(output_.data());
    stream.avail_out = static_cast<uInt>(output_.size());
    deflate(&stream, flush);
    const size_t written = output_.size() - stream.avail_out;
    if (written > 0) file_.append(output_.data(), written);
  } while (stream.avail_out == 0);
}

}  // namespace trainopt::trace
