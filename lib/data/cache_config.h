// `data.cache`: a word, or a map of `kind` and options.
#pragma once

#include "config/form.h"

namespace trainopt {

enum class CacheKind { none, memory, device, disk };
template <>
struct Choices<CacheKind> {
  static constexpr std::array all = {
      Choice<CacheKind>{"none", CacheKind::none}, Choice<CacheKind>{"memory", CacheKind::memory},
      Choice<CacheKind>{"device", CacheKind::device}, Choice<CacheKind>{"disk", CacheKind::disk}};
};

struct CacheConfig {
  CacheKind kind = CacheKind::none;
  std::optional<std::string> path;
  std::optional<Bytes> size;
  bool verify = true;

  bool operator==(CacheKind other) const { return kind == other; }
};
template <class V>
void describe(V& v, CacheConfig& c) {
  v.field("kind", c.kind, "none, memory, device or disk.");
  v.field("path", c.path, "disk: folder of the cache, on a local disk; shared by all runs that name it.");
  v.field("size", c.size, "disk: bytes that the folder may take.", at_least(1 << 20));
  v.field("verify", c.verify,
          "disk: compare every block with its checksum whenever it is read; false: only the first time in a process.");
}

template <>
struct Form<CacheConfig> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<CacheConfig> read(const Value& value, const Location& location);
  static Value write(const CacheConfig& cache);
};

}  // namespace trainopt
