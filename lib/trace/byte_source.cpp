#include "trace/byte_source.h"

#include "base/units.h"

#include <zlib.h>

namespace trainopt::trace {
namespace {

constexpr size_t kPieceBytes = size_t{1} << 18;
constexpr int kGzipWindow = 15 + 16;  // the largest window; + 16: a gzip header is expected (zlib.h)

[[noreturn]] void refuse_bytes(const std::filesystem::path& path, const char* problem) {
  throw UserError(fmt::format("{}: {}", problem, path.string()), ExitCode::data);
}

}  // namespace

ByteSource::ByteSource(const std::filesystem::path& path, int64_t most_bytes)
    : file_(File::open_stream(path, ExitCode::data)), input_(kPieceBytes), most_bytes_(most_bytes) {
  if (!read_input()) refuse_bytes(path, "the trace is empty");
  const bool compressed = input_bytes_ >= 2 && input_[0] == '\x1f' && input_[1] == '\x8b';
  if (!compressed) {
    if (path.extension() == ".gz") refuse_bytes(path, "the trace's name ends in .gz, but it is not gzip-compressed");
    return;
  }
  output_.resize(4 * kPieceBytes);
  inflater_ = std::make_unique<z_stream>();
  TRAINOPT_CHECK_EQUAL(inflateInit2(inflater_.get(), kGzipWindow), Z_OK);
  inflater_->next_in = reinterpret_cast<Bytef*>(input_.data());
  inflater_->avail_in = static_cast<uInt>(input_bytes_);
}

ByteSource::~ByteSource() {
  if (inflater_) inflateEnd(inflater_.get());
}

bool ByteSource::read_input() {
  input_bytes_ = file_.read(input_.data(), input_.size());
  return input_bytes_ > 0;
}

size_t ByteSource::read_plain() {
  // The constructor has read the first piece.
  if (gptr() != nullptr && !read_input()) return 0;
  setg(input_.data(), input_.data(), input_.data() + input_bytes_);
  return input_bytes_;
}

size_t ByteSource::read_compressed() {
  z_stream& stream = *inflater_;
  stream.next_out = reinterpret_cast<Bytef*>(output_.data());
  stream.avail_out = static_cast<uInt>(output_.size());
  while (stream.avail_out == output_.size()) {
    if (stream.avail_in == 0) {
      if (!read_input()) {
        if (in_member_) refuse_bytes(file_.path(), "the trace is truncated: its compressed data end too early");
        break;
      }
      stream.next_in = reinterpret_cast<Bytef*>(input_.data());
      stream.avail_in = static_cast<uInt>(input_bytes_);
    }
    if (!in_member_) {
      inflateReset(&stream);
      in_member_ = true;
    }
    const int code = inflate(&stream, Z_NO_FLUSH);
    if (code == Z_STREAM_END)
      in_member_ = false;
    else if (code != Z_OK && code != Z_BUF_ERROR)
      refuse_bytes(file_.path(), "the trace's compressed data are damaged");
  }
  const size_t bytes = output_.size() - stream.avail_out;
  setg(output_.data(), output_.data(), output_.data() + bytes);
  return bytes;
}

ByteSource::int_type ByteSource::underflow() {
  if (gptr() < egptr()) return traits_type::to_int_type(*gptr());
  const size_t bytes = inflater_ ? read_compressed() : read_plain();
  bytes_ += static_cast<int64_t>(bytes);
  if (bytes_ > most_bytes_)
    throw UserError(fmt::format("the trace has more than {} of JSON (--max-json): {}",
                                human_bytes(static_cast<double>(most_bytes_)), file_.path().string()),
                    ExitCode::data);
  return bytes == 0 ? traits_type::eof() : traits_type::to_int_type(*gptr());
}

}  // namespace trainopt::trace
