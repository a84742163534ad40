#include "data/cache_config.h"

#include "config/load.h"
#include "config/schema.h"
#include "config/write.h"

namespace trainopt {

std::string Form<CacheConfig>::type_text() { return Form<CacheKind>::type_text() + " | {kind, path, size, verify}"; }

Json Form<CacheConfig>::schema(const Bounds& bounds) {
  CacheConfig cache;
  Json map = map_schema(outline_of(cache));
  map["required"] = Json::array({"kind"});
  return {{"anyOf", Json::array({Form<CacheKind>::schema(bounds), std::move(map)})}};
}

std::optional<CacheConfig> Form<CacheConfig>::read(const Value& value, const Location& location) {
  CacheConfig cache;
  if (value.is_map()) {
    const size_t problems_before = location.problems->size();
    const Outline outline = outline_of(cache);
    read_map(value, outline, location.key, {outline, *location.problems});
    if (location.problems->size() != problems_before) return std::nullopt;
  } else {
    const auto kind = Form<CacheKind>::read(value, location);
    if (!kind) return std::nullopt;
    cache.kind = *kind;
  }
  const bool on_disk = cache.kind == CacheKind::disk;
  if (on_disk && (!cache.path || !cache.size)) {
    location.problem(value, "disk needs a folder and a size, such as {kind: disk, path: /local/cache, size: 100GiB}");
    return std::nullopt;
  }
  if (!on_disk && (cache.path || cache.size || !cache.verify)) {
    location.problem(value, fmt::format("path, size and verify are options of kind: disk: {}", word_of(cache.kind)));
    return std::nullopt;
  }
  return cache;
}

Value Form<CacheConfig>::write(const CacheConfig& cache) {
  if (cache.kind != CacheKind::disk) return Form<CacheKind>::write(cache.kind);
  CacheConfig copy = cache;
  return value_of(outline_of(copy));
}

}  // namespace trainopt
