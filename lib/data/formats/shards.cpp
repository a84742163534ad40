#include "data/formats/shards.h"

#include <fmt/format.h>

namespace trainopt {

std::string shard_name(int64_t shard, int64_t shards, std::string_view ending) {
  return fmt::format("{:05}-of-{:05}{}", shard, shards, ending);
}

}  // namespace trainopt
