#include "data/identity.h"

#include <fmt/format.h>

namespace trainopt {

std::optional<std::string> first_difference(const DataIdentity& before, const DataIdentity& now) {
  const auto changed = [](const char* field, const auto& from, const auto& to) {
    return fmt::format("{} {} → {}", field, from, to);
  };
  if (before.kind != now.kind) return changed("kind", before.kind, now.kind);
  if (before.samples != now.samples) return changed("samples", before.samples, now.samples);
  if (before.classes != now.classes) return changed("classes", before.classes, now.classes);
  if (before.content != now.content) return changed("content", before.content, now.content);
  if (!before.blocks.empty() && !now.blocks.empty() && before.blocks != now.blocks)
    return changed("bytes in its files", before.blocks, now.blocks);
  return std::nullopt;
}

bool has_other_versions(const DataIdentity& before, const DataIdentity& now) {
  return !before.versions.empty() && !now.versions.empty() && before.versions != now.versions;
}

}  // namespace trainopt
