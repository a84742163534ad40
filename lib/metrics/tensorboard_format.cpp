#include "metrics/tensorboard_format.h"

#include <array>
#include <bit>
#include <cstring>

static_assert(std::endian::native == std::endian::little, "event files are little-endian");

namespace trainopt {
namespace {

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ (value & 1 ? 0x82F63B78u : 0u);
    table[byte] = value;
  }
  return table;
}
constexpr auto kCrc32cTable = crc32c_table();

/// TFRecord stores checksums in this form, because a checksum of data that contains its own checksum is weak.
uint32_t masked_checksum(std::string_view bytes) { return std::rotr(crc32c(bytes), 15) + 0xa282ead8u; }

template <class T>
void append_bytes(std::string& to, T value) {
  char bytes[sizeof value];
  std::memcpy(bytes, &value, sizeof value);
  to.append(bytes, sizeof value);
}

template <class T>
T bytes_at(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// A protobuf message in the making. Its callers leave out fields with default values where protobuf does.
class ProtoMessage {
 public:
  ProtoMessage& integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtoMessage& real64(uint32_t field, double value) {
    key(field, 1);
    append_bytes(bytes_, value);
    return *this;
  }
  ProtoMessage& real32(uint32_t field, float value) {
    key(field, 5);
    append_bytes(bytes_, value);
    return *this;
  }
  /// A string or a message.
  ProtoMessage& content(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtoMessage& content(uint32_t field, const ProtoMessage& value) { return content(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(uint32_t field, uint32_t wire_type) { varint(uint64_t{field} << 3 | wire_type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

constexpr int64_t kFloatType = 1, kStringType = 7;  // tensorboard.DataType

/// Summary.Value with a tensor that a plugin displays.
ProtoMessage plugin_value(std::string_view tag, std::string_view plugin, std::string_view plugin_content,
                          const ProtoMessage& tensor) {
  ProtoMessage plugin_data = ProtoMessage().content(1, plugin);
  if (!plugin_content.empty()) plugin_data.content(2, plugin_content);
  return ProtoMessage().content(1, tag).content(8, tensor).content(9, ProtoMessage().content(1, plugin_data));
}

/// google.protobuf.Value
ProtoMessage hyperparameter_value(const Json& value) {
  ProtoMessage message;
  if (value.is_boolean()) return message.integer(4, value.get<bool>());
  if (value.is_number()) return message.real64(2, value.get<double>());
  return message.content(3, value.get<std::string>());
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t value = ~0u;
  for (const char byte : bytes) value = (value >> 8) ^ kCrc32cTable[(value ^ static_cast<uint8_t>(byte)) & 0xFF];
  return ~value;
}

std::string framed(std::string_view payload) {
  std::string record;
  record.reserve(payload.size() + kFrameBytes);
  append_bytes(record, uint64_t{payload.size()});
  append_bytes(record, masked_checksum(record));
  record += payload;
  append_bytes(record, masked_checksum(payload));
  return record;
}

std::optional<std::string_view> unframed(std::string_view bytes) {
  if (bytes.size() < kFrameBytes) return std::nullopt;
  const auto length = bytes_at<uint64_t>(bytes, 0);
  if (bytes_at<uint32_t>(bytes, 8) != masked_checksum(bytes.substr(0, 8)) || length > bytes.size() - kFrameBytes)
    return std::nullopt;
  const std::string_view payload = bytes.substr(12, length);
  if (bytes_at<uint32_t>(bytes, 12 + length) != masked_checksum(payload)) return std::nullopt;
  return payload;
}

std::string EventMaker::event(uint32_t field, std::string_view content) const {
  ProtoMessage message = ProtoMessage().real64(1, wall_s_);
  if (step_ != 0) message.integer(2, step_);
  return message.content(field, content).bytes();
}

std::string EventMaker::file_version() const { return event(3, "brain.Event:2"); }

std::string EventMaker::restarted() const {
  constexpr int64_t kStart = 1;  // SessionLog.START
  return event(7, ProtoMessage().integer(1, kStart).bytes());
}

std::string EventMaker::scalars(const std::vector<TaggedScalar>& values) const {
  ProtoMessage summary;
  for (const TaggedScalar& scalar : values)
    summary.content(1, ProtoMessage().content(1, scalar.tag).real32(2, static_cast<float>(scalar.value)));
  return event(5, summary.bytes());
}

std::string EventMaker::text(std::string_view tag, std::string_view markdown) const {
  // The shape of a scalar has no dimensions, but must be present.
  const ProtoMessage tensor = ProtoMessage().integer(1, kStringType).content(2, "").content(8, markdown);
  return event(5, ProtoMessage().content(1, plugin_value(tag, "text", "", tensor)).bytes());
}

std::string EventMaker::hparams(std::string_view tag, uint32_t field, std::string_view content) const {
  const ProtoMessage one_empty_dimension = ProtoMessage().content(2, "");
  const ProtoMessage no_values = ProtoMessage().integer(1, kFloatType).content(2, one_empty_dimension);
  const ProtoMessage data = ProtoMessage().content(field, content);
  return event(5, ProtoMessage().content(1, plugin_value(tag, "hparams", data.bytes(), no_values)).bytes());
}

std::string EventMaker::session_started(const Json& hyperparameters) const {
  ProtoMessage start;
  for (const auto& [name, value] : hyperparameters.items())
    start.content(1, ProtoMessage().content(1, name).content(2, hyperparameter_value(value)));
  return hparams("_hparams_/session_start_info", 3, start.real64(5, wall_s_).bytes());
}

std::string EventMaker::session_ended(SessionStatus status) const {
  return hparams(kSessionEndTag, 4, ProtoMessage().integer(1, static_cast<int64_t>(status)).real64(2, wall_s_).bytes());
}

}  // namespace trainopt
