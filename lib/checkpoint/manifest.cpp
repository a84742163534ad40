#include "checkpoint/manifest.h"

#include "base/checksum.h"
#include "base/json.h"

#include <algorithm>

namespace trainopt {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 50;  // the most for one file: 1 PiB
constexpr int64_t kMaxRanks = 1 << 20;
constexpr size_t kMaxNameLength = 255;

[[noreturn]] void refuse(const std::string& why) { throw UserError(why, ExitCode::checkpoint); }

/// Untrusted JSON as one printable line of at most 80 characters.
std::string shown_value(const nlohmann::json& value) {
  return value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 80);
}

nlohmann::json parse_shallow(std::string_view text) {
  const auto shallow = [](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    if (depth > 3) refuse("its manifest is nested too deeply");
    return true;
  };
  try {
    return nlohmann::json::parse(text.begin(), text.end(), shallow);
  } catch (const nlohmann::json::exception&) {
    refuse("its manifest is not JSON");
  }
}

const nlohmann::json& member(const nlohmann::json& json, const std::string& key) {
  if (!json.is_object() || !json.contains(key)) refuse(fmt::format("its manifest has no '{}'", key));
  return json[key];
}

int64_t integer_field(const nlohmann::json& json, const std::string& key, int64_t minimum, int64_t maximum) {
  const nlohmann::json& value = member(json, key);
  if (!value.is_number_integer() || value < minimum || value > maximum)
    refuse(fmt::format("its manifest's '{}' is not a number from {} to {}: {}", key, minimum, maximum,
                       shown_value(value)));
  return value.get<int64_t>();
}

uint64_t hash_of(const nlohmann::json& json) {
  const nlohmann::json& value = member(json, "xxh3");
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  const auto* text = value.get_ptr<const std::string*>();
  if (text == nullptr || text->size() != 16 || !std::all_of(text->begin(), text->end(), is_digit))
    refuse("its manifest's 'xxh3' is not sixteen hexadecimal digits");
  return std::stoull(*text, nullptr, 16);
}

}  // namespace

bool is_stored_name(std::string_view name) {
  const auto is_bad = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '/' || c == '\\'; };
  return !name.empty() && name.size() <= kMaxNameLength && name.front() != '.' && name != kManifestName &&
         std::none_of(name.begin(), name.end(), is_bad);
}

std::string manifest_text(const Manifest& manifest) {
  Json json{{"format_version", Manifest::kFormatVersion}, {"step", manifest.step}, {"world_size", manifest.world_size}};
  json["versions"] = Json::object();
  for (const auto& [name, version] : manifest.versions) json["versions"][name] = version;
  json["files"] = Json::object();
  for (const auto& [name, file] : manifest.files)
    json["files"][name] = Json{{"bytes", file.bytes}, {"xxh3", hex(file.xxh3)}};
  std::string text = json_text(json, 2);
  text.resize(text.size() - 2);  // without "\n}", because one more key follows
  Checksum checksum;
  checksum.add(text.data(), text.size());
  return text + fmt::format(",\n  \"xxh3\": \"{}\"\n}}\n", hex(checksum.value()));
}

Manifest parse_manifest(std::string_view text) {
  if (static_cast<int64_t>(text.size()) > kMaxManifestBytes)
    refuse(fmt::format("its manifest has {} bytes; at most {} are allowed", text.size(), kMaxManifestBytes));
  const nlohmann::json json = parse_shallow(text);
  const nlohmann::json& version = member(json, "format_version");
  if (version != Manifest::kFormatVersion)
    refuse(fmt::format("its manifest has format version {}, but this program reads version {}", shown_value(version),
                       Manifest::kFormatVersion));
  Manifest manifest;
  manifest.step = integer_field(json, "step", 0, INT64_MAX);
  manifest.world_size = integer_field(json, "world_size", 1, kMaxRanks);
  if (!member(json, "versions").is_object()) refuse("its manifest's 'versions' is not an object");
  for (const auto& [name, value] : json["versions"].items()) {
    if (!value.is_string()) refuse("its manifest's 'versions' are not all strings");
    manifest.versions[name] = value.get<std::string>();
  }
  if (!member(json, "files").is_object()) refuse("its manifest's 'files' is not an object");
  for (const auto& [name, file] : json["files"].items()) {
    if (!is_stored_name(name))
      refuse(fmt::format("its manifest lists a file with an invalid name: {}", shown_value(name)));
    manifest.files[name] = {integer_field(file, "bytes", 0, kMaxBytes), hash_of(file)};
  }
  hash_of(json);
  // The text of a manifest is canonical and contains its own hash, so any change shows here.
  if (manifest_text(manifest) != text) refuse("its manifest was changed: it does not match its own hash");
  return manifest;
}

}  // namespace trainopt
