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
  return std::nullopt;
}

}  // namespace trainopt
