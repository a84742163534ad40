#include "data/identity.h"

#include "base/checksum.h"
#include "base/error.h"
#include "base/files/file_calls.h"
#include "base/philox.h"
#include "base/progress.h"
#include "base/threads.h"
#include "data/sampler.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iterator>

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

namespace {

constexpr size_t kMostThreads = 16, kPlacesOfThread = 64;

int64_t blocks_of(const BlockFile& file) { return (file.bytes + kBlockBytes - 1) / kBlockBytes; }

uint64_t hash_of_block(const BlockPlace& place) {
  std::array<uint8_t, kBlockBytes> block;
  try {
    const size_t bytes = File::open(place.path, ExitCode::data).read_at(place.offset, block.data(), block.size());
    return XXH3_64bits(block.data(), bytes);
  } catch (const FileError&) {
    return 0;
  }
}

}  // namespace

FileStatus status_of(const std::string& path) {
  note_progress();
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_size, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec};
}

std::vector<BlockPlace> draw_blocks(const std::vector<BlockFile>& files, uint64_t key) {
  std::vector<int64_t> first;  // block of each file
  int64_t all = 0;
  for (const auto& file : files) {
    first.push_back(all);
    all += blocks_of(file);
  }
  if (all == 0) return {};
  std::vector<int64_t> drawn;
  const KeyedPermutation order(all, key);
  for (int64_t i = 0; i < std::min(all, kDrawnBlocks); ++i) drawn.push_back(all <= kDrawnBlocks ? i : order(i));
  std::sort(drawn.begin(), drawn.end());
  std::vector<BlockPlace> places;
  for (const int64_t block : drawn) {
    const auto file = std::distance(first.begin(), std::upper_bound(first.begin(), first.end(), block)) - 1;
    places.push_back({files[static_cast<size_t>(file)].path, (block - first[static_cast<size_t>(file)]) * kBlockBytes});
  }
  return places;
}

BlockPlace draw_block(const BlockFile& file, uint64_t key) {
  const auto blocks = static_cast<uint64_t>(blocks_of(file));
  return {file.path, static_cast<int64_t>(PhiloxStream(key).next_below(blocks)) * kBlockBytes};
}

uint64_t block_key(const DataIdentity& identity) {
  return mix_key(1, fmt::format("{} {} {} {}", identity.kind, identity.samples, identity.classes, identity.content));
}

std::string hash_of_blocks(const std::vector<BlockPlace>& places) {
  std::vector<uint64_t> hashes(places.size());
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < places.size(); i = next++) hashes[i] = hash_of_block(places[i]);
  };
  with_helping_threads(std::min(kMostThreads - 1, places.size() / kPlacesOfThread), work);
  return hex(XXH3_64bits(hashes.data(), hashes.size() * sizeof(hashes[0])));
}

DataIdentity with_files(DataIdentity identity, const std::vector<const DataFile*>& files) {
  Checksum versions;
  std::vector<BlockFile> local;
  for (const DataFile* file : files) {
    versions.add(file->version().data(), file->version().size() + 1);  // with the zero byte at its end
    if (file->is_mapped()) local.push_back({file->name(), file->size()});
  }
  identity.versions = hex(versions.value());
  if (local.size() == files.size()) identity.blocks = hash_of_blocks(draw_blocks(local, block_key(identity)));
  return identity;
}

}  // namespace trainopt
