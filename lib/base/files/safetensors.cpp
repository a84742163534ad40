#include "base/files/safetensors.h"

#include "base/error.h"
#include "base/files/file_kind.h"
#include "base/files/files.h"
#include "base/json.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <set>
#include <utility>

namespace trainopt {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and nothing here swaps bytes");

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the limit of the reference implementation
constexpr size_t kLengthBytes = 8;
constexpr size_t kPieceBytes = size_t{512} << 10;  // hashed while it is in the CPU cache

/// Bytes of a tensor of this shape; false if the product does not fit in 63 bits.
bool tensor_bytes(const std::vector<int64_t>& shape, size_t item_bytes, uint64_t& bytes) {
  bytes = item_bytes;
  bool fits = true;
  for (const int64_t size : shape) fits = !__builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes) && fits;
  // A zero in the shape makes the product zero whatever overflowed before it.
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) {
    bytes = 0;
    return true;
  }
  return fits && bytes < uint64_t{1} << 63;
}

/// Parses the header and rejects what JSON allows but the format does not: duplicate keys and deep nesting.
nlohmann::json parse_header(std::string_view text) {
  std::vector<std::set<std::string>> open_keys;
  const auto watch = [&](int depth, nlohmann::json::parse_event_t event, nlohmann::json& value) {
    if (depth > 3) throw std::runtime_error("its header is nested too deeply");
    if (event == nlohmann::json::parse_event_t::object_start) open_keys.emplace_back();
    if (event == nlohmann::json::parse_event_t::object_end) open_keys.pop_back();
    if (event == nlohmann::json::parse_event_t::key && !open_keys.back().insert(value.get<std::string>()).second)
      throw std::runtime_error(fmt::format("its header has the key '{}' twice", value.get<std::string>()));
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::parse_error& error) {
    throw std::runtime_error(fmt::format("its header is not valid JSON (byte {})", error.byte));
  } catch (const nlohmann::json::out_of_range&) {
    throw std::runtime_error("its header has a number too large for any file");
  }
}

/// Untrusted text as one short line.
std::string display_text(std::string text) {
  constexpr size_t kMaxLength = 300;
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; }, ' ');
  if (text.size() <= kMaxLength) return text;
  size_t end = kMaxLength;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // do not split a character
  return text.substr(0, end) + "…";
}

bool is_size(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() < uint64_t{1} << 63;
}

/// One tensor's entry without its data; `range` receives its offsets. Throws runtime_error with what is wrong.
SafetensorsEntry read_entry(const std::string& name, const nlohmann::json& value,
                            std::pair<uint64_t, uint64_t>& range) {
  if (!value.is_object() || value.size() != 3 || !value.contains("dtype") || !value.contains("shape") ||
      !value.contains("data_offsets"))
    throw std::runtime_error("its entry is not {dtype, shape, data_offsets}");
  SafetensorsEntry entry{.name = name};
  const nlohmann::json &dtype = value["dtype"], &shape = value["shape"], &offsets = value["data_offsets"];
  if (!dtype.is_string() || safetensors_item_bytes(dtype.get<std::string>()) == 0)
    throw std::runtime_error(fmt::format("unknown dtype {}", json_text(dtype)));
  entry.dtype = dtype.get<std::string>();
  if (!shape.is_array() || !std::all_of(shape.begin(), shape.end(), is_size))
    throw std::runtime_error(fmt::format("its shape is not a list of sizes: {}", json_text(shape)));
  entry.shape = shape.get<std::vector<int64_t>>();
  if (!offsets.is_array() || offsets.size() != 2 || !is_size(offsets[0]) || !is_size(offsets[1]) ||
      offsets[0] > offsets[1])
    throw std::runtime_error(fmt::format("its data_offsets are not [begin, end]: {}", json_text(offsets)));
  range = {offsets[0].get<uint64_t>(), offsets[1].get<uint64_t>()};
  uint64_t bytes = 0;
  if (!tensor_bytes(entry.shape, safetensors_item_bytes(entry.dtype), bytes))
    throw std::runtime_error("its shape overflows");
  if (bytes != range.second - range.first)
    throw std::runtime_error(
        fmt::format("dtype and shape need {} bytes, but data_offsets span {}", bytes, range.second - range.first));
  entry.bytes = bytes;
  return entry;
}

/// Maps all pages of new memory at once, because a page fault for each costs more than hashing the data. Needs Linux
/// 5.14; if the call fails, pages are faulted in one by one.
void populate(char* memory, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(memory), first = begin / page * page;
  ::madvise(reinterpret_cast<void*>(first), begin + bytes - first, MADV_POPULATE_WRITE);
}

}  // namespace

size_t safetensors_item_bytes(const std::string& dtype) {
  constexpr std::array<std::pair<const char*, size_t>, 10> kItemBytes{{{"F64", 8},
                                                                       {"I64", 8},
                                                                       {"F32", 4},
                                                                       {"I32", 4},
                                                                       {"F16", 2},
                                                                       {"BF16", 2},
                                                                       {"I16", 2},
                                                                       {"I8", 1},
                                                                       {"U8", 1},
                                                                       {"BOOL", 1}}};
  for (const auto& [name, bytes] : kItemBytes)
    if (dtype == name) return bytes;
  return 0;
}

Checksum append_safetensors(File& file, const std::vector<SafetensorsEntry>& entries,
                            const SafetensorsMetadata& metadata) {
  std::vector<const SafetensorsEntry*> order;
  for (const auto& entry : entries) order.push_back(&entry);
  std::stable_sort(order.begin(), order.end(), [](auto* a, auto* b) {
    return safetensors_item_bytes(a->dtype) > safetensors_item_bytes(b->dtype);
  });

  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::set<std::string> names{"__metadata__"};
  uint64_t offset = 0;
  for (const auto* entry : order) {
    TRAINOPT_CHECK(names.insert(entry->name).second);
    uint64_t bytes = 0;
    TRAINOPT_CHECK(tensor_bytes(entry->shape, safetensors_item_bytes(entry->dtype), bytes));
    TRAINOPT_CHECK_EQUAL(bytes, entry->bytes);
    // Not operator[]: on an ordered object it searches all earlier keys.
    header.get_ref<Json::object_t&>().emplace_back(
        entry->name,
        Json{{"dtype", entry->dtype}, {"shape", entry->shape}, {"data_offsets", {offset, offset + bytes}}});
    offset += bytes;
  }
  std::string text(kLengthBytes, '\0');
  text += json_text(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size() - kLengthBytes;
  std::memcpy(text.data(), &length, kLengthBytes);
  if (length > kMaxHeaderBytes)
    throw UserError(fmt::format("cannot write {}: too many tensors for one safetensors file: {}", file.path().string(),
                                entries.size()),
                    ExitCode::storage);

  file.reserve(static_cast<int64_t>(text.size() + offset));
  Checksum checksum;
  const auto append = [&](const void* data, size_t bytes) {
    for (size_t done = 0; done < bytes; done += kPieceBytes) {
      const char* piece = static_cast<const char*>(data) + done;
      const size_t piece_bytes = std::min(kPieceBytes, bytes - done);
      checksum.add(piece, piece_bytes);
      file.append(piece, piece_bytes);
    }
  };
  append(text.data(), text.size());
  for (const auto* entry : order) append(entry->data, entry->bytes);
  return checksum;
}

void write_safetensors(const std::filesystem::path& path, const std::vector<SafetensorsEntry>& entries,
                       const SafetensorsMetadata& metadata) {
  replace_file(path, [&](File& file) { append_safetensors(file, entries, metadata); });
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(File::open(path, ExitCode::checkpoint)) {
  parse();
}

void SafetensorsFile::refuse(const std::string& why) const {
  throw UserError(fmt::format("{} is not a safetensors file: {}", file_.path().string(), display_text(why)),
                  ExitCode::checkpoint);
}

Checksum SafetensorsFile::read(const std::function<void*(size_t entry)>& destination) const {
  Checksum checksum;
  checksum.add(header_.data(), header_.size());
  int64_t offset = static_cast<int64_t>(header_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    char* to = static_cast<char*>(destination(i));
    for (size_t done = 0; done < entries_[i].bytes;) {
      const size_t bytes = std::min(kPieceBytes, entries_[i].bytes - done);
      if (bytes == kPieceBytes) populate(to + done, bytes);
      if (file_.read_at(offset, to + done, bytes) != bytes) refuse("it became shorter while it was read");
      checksum.add(to + done, bytes);
      done += bytes;
      offset += static_cast<int64_t>(bytes);
    }
  }
  return checksum;
}

void SafetensorsFile::parse() {
  const uint64_t data_bytes = read_header();
  nlohmann::json header;
  try {
    header = parse_header(std::string_view(header_).substr(kLengthBytes));
  } catch (const std::runtime_error& error) {
    refuse(error.what());
  }
  Ranges ranges;
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") {
      const auto is_text = [](const nlohmann::json& item) { return item.is_string(); };
      if (!value.is_object() || !std::all_of(value.begin(), value.end(), is_text))
        refuse("its __metadata__ is not a map of strings");
      metadata_ = value.get<SafetensorsMetadata>();
      continue;
    }
    try {
      entries_.push_back(read_entry(name, value, ranges.emplace_back()));
    } catch (const std::runtime_error& error) {
      refuse(fmt::format("tensor '{}': {}", name, error.what()));
    }
  }
  sort_entries(ranges, data_bytes);
}

uint64_t SafetensorsFile::read_header() {
  const int64_t size_now = file_.size();
  if (size_now < 0) throw FileError("read", file_.path(), EINVAL, ExitCode::checkpoint);
  const auto size = static_cast<uint64_t>(size_now);
  if (size < kLengthBytes) refuse(fmt::format("it has only {} bytes", size));
  const auto read_first = [&](uint64_t bytes) {
    header_.resize(bytes);
    if (file_.read_at(0, header_.data(), bytes) != bytes) refuse("it became shorter while it was read");
  };
  read_first(kLengthBytes);
  uint64_t length = 0;
  std::memcpy(&length, header_.data(), kLengthBytes);
  const bool in_bounds = length >= 2 && length <= kMaxHeaderBytes && length <= size - kLengthBytes;
  if (in_bounds) read_first(kLengthBytes + length);
  if (!in_bounds || header_[kLengthBytes] != '{') {
    // Checked only now, because the length of a valid header may begin with 0x80 too.
    if (header_.starts_with("PK\x03\x04") || header_[0] == '\x80')
      refuse("this is a pickle/torch.save file, which can execute code; convert it to safetensors");
    std::string start(std::min<uint64_t>(size, kKindBytes), '\0');
    file_.read_at(0, start.data(), start.size());
    if (const auto kind = what_it_is(start); !kind.empty()) refuse(fmt::format("it is {}", kind));
    refuse(in_bounds ? "its header does not begin with '{'"
                     : fmt::format("its header claims {} bytes (the limit is {}, and the file has {})", length,
                                   kMaxHeaderBytes, size));
  }
  return size - kLengthBytes - length;
}

void SafetensorsFile::sort_entries(const Ranges& ranges, uint64_t data_bytes) {
  std::vector<size_t> order(entries_.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ranges[a] < ranges[b]; });
  uint64_t end = 0;
  std::vector<SafetensorsEntry> sorted;
  for (const size_t i : order) {
    const auto [from, to] = ranges[i];
    const std::string& name = entries_[i].name;
    if (from != end)
      refuse(fmt::format("tensor '{}': its data begins at {}, but the data before it ends at {}", name, from, end));
    if (to > data_bytes)
      refuse(fmt::format("tensor '{}': its data ends at {}, but the file has {} bytes of data", name, to, data_bytes));
    end = to;
    sorted.push_back(std::move(entries_[i]));
  }
  if (end != data_bytes) refuse(fmt::format("{} bytes belong to no tensor", data_bytes - end));
  entries_ = std::move(sorted);
}

}  // namespace trainopt
