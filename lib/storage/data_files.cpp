#include "storage/data_files.h"

#include "base/error.h"
#include "base/progress.h"
#include "base/units.h"
#include "storage/http.h"
#include "storage/remote_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <utility>

#include <fnmatch.h>
#include <glob.h>

namespace trainopt {
namespace {

namespace fs = std::filesystem;

std::atomic<int64_t> made_data_files{0};

struct RemotePath {
  std::string bucket, key;
};

RemotePath remote_path(const std::string& path) {
  const std::string rest = path.substr(kRemoteScheme.size());
  const size_t slash = rest.find('/');
  RemotePath remote{rest.substr(0, slash), slash == std::string::npos ? "" : rest.substr(slash + 1)};
  const bool is_name = !remote.bucket.empty() && remote.bucket.find_first_not_of(
                                                     "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                                     "0123456789.-_") == std::string::npos;
  if (!is_name) throw UserError(fmt::format("a remote path must be s3://bucket/key: {}", path), ExitCode::data);
  return remote;
}

std::string remote_name(const std::string& bucket, const std::string& key) {
  return fmt::format("{}{}/{}", kRemoteScheme, bucket, key);
}

std::string variable(const Variables& variables, std::initializer_list<const char*> names, std::string otherwise) {
  for (const char* name : names)
    if (const auto found = variables.find(name); found != variables.end() && !found->second.empty())
      return found->second;
  return otherwise;
}

/// Asks an endpoint that hands out credentials: one attempt, because most machines have none.
PlainAnswer ask(const PlainRequest& request, const std::string& ca_bundle) {
  HttpConnection connection;
  HttpRequest http{.method = request.method,
                   .url = request.url,
                   .headers = {},
                   .timeout_s = request.timeout_s,
                   .direct = request.url.starts_with("http://"),  // the endpoint is on this machine or beside it
                   .ca_bundle = ca_bundle};
  for (const std::string& header : request.headers)
    if (const size_t colon = header.find(": "); colon != std::string::npos)
      http.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
  HttpResponse response = connection.send(http);
  if (!response.failure.empty()) throw UserError(response.failure, ExitCode::data);
  return {response.status, std::move(response.body)};
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> found;
  try {
    for (const auto& entry : fs::directory_iterator(path)) {
      note_progress();
      std::error_code unreadable;  // opening it will say why
      found.push_back(entry.path().string() + (entry.is_directory(unreadable) ? "/" : ""));
    }
  } catch (const fs::filesystem_error& error) {
    throw UserError(fmt::format("cannot list the folder {}: {}", path, error.code().message()), ExitCode::data);
  }
  std::sort(found.begin(), found.end());
  return found;
}

bool fits(const std::string& name, const std::string& pattern) {
  return ::fnmatch(pattern.c_str(), name.c_str(), FNM_PATHNAME | FNM_PERIOD) == 0;
}

/// glob() asks about each match whether it is a folder; listing a folder tells it.
std::vector<std::string> local_matches(const std::string& pattern) {
  const size_t slash = pattern.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : pattern.substr(0, slash + 1);
  std::error_code unreadable;
  if (!is_pattern(folder) && fs::is_directory(folder.empty() ? "." : folder, unreadable)) {
    std::vector<std::string> matches;
    for (const std::string& entry : list_folder(folder.empty() ? "." : folder)) {
      const bool is_folder = entry.ends_with('/');
      const std::string name = fs::path(is_folder ? entry.substr(0, entry.size() - 1) : entry).filename().string();
      if (fits(name, pattern.substr(folder.size()))) matches.push_back(folder + name + (is_folder ? "/" : ""));
    }
    return matches;
  }
  glob_t found{};
  const int status = ::glob(pattern.c_str(), GLOB_ERR | GLOB_MARK | GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> matches(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  const int error = errno;
  ::globfree(&found);
  const bool is_missing = status == GLOB_ABORTED && (error == ENOENT || error == ENOTDIR);
  if (status != 0 && status != GLOB_NOMATCH && !is_missing)
    throw UserError(fmt::format("cannot list what fits {}: {}", pattern, std::strerror(error)), ExitCode::data);
  std::sort(matches.begin(), matches.end());
  return matches;
}

}  // namespace

std::optional<double> StorageUse::hit_pct() const {
  const int64_t all = hit_bytes + missed_bytes;
  return all > 0 ? std::optional(100 * static_cast<double>(hit_bytes) / static_cast<double>(all)) : std::nullopt;
}

namespace {

constexpr int64_t kEnoughReads = 50;

/// Little's law: throughput is the requests under way divided by the time of each. Answers that take much longer than
/// the fastest ones wait for each other.
bool all_under_way(const StorageUse& use) {
  return use.speed.under_way() >= 0.7 * static_cast<double>(use.concurrency);
}
bool is_full(const StorageUse& use) { return use.speed.median_ms > 2 * use.speed.fast_ms; }

}  // namespace

double StorageUse::mib_per_s() const { return speed.active_s > 0 ? mib(fetched_bytes) / speed.active_s : 0; }

bool StorageUse::more_concurrency_helps() const {
  return speed.reads >= kEnoughReads && all_under_way(*this) && !is_full(*this);
}

std::string StorageUse::speed_text() const {
  if (speed.reads == 0) return "";
  const auto time = [](double ms) {
    return ms < 1000 ? fmt::format("{:.3g} ms", ms) : fmt::format("{:.3g} s", ms / 1e3);
  };
  const std::string text =
      fmt::format("{:.1f} MiB/s, answers in {}, 99 % of them within {}; {:.1f} of {} requests under way", mib_per_s(),
                  time(speed.median_ms), time(speed.slow_ms), speed.under_way(), concurrency);
  if (speed.reads < kEnoughReads) return text;
  if (!all_under_way(*this)) return text + ", so more concurrency gives nothing";
  if (is_full(*this))
    return text + fmt::format(
                      ": answers take {:.1f} times as long as the fastest, so the link or the server is full, "
                      "and more concurrency gives nothing",
                      speed.median_ms / speed.fast_ms);
  return text + ": answers take no longer than the fastest, so twice data.storage.concurrency may give twice as much";
}

std::string StorageUse::text() const {
  std::string text =
      fmt::format("{} fetched in {}", human_bytes(static_cast<double>(fetched_bytes)), counted(requests, "request"));
  if (retries > 0) text += fmt::format(", {} of them repeated", retries);
  if (const auto pct = hit_pct()) text += fmt::format("; {:.1f} % of the bytes were in the cache", *pct);
  if (damaged > 0) text += fmt::format(", {} of it damaged and fetched again", counted(damaged, "block"));
  return text;
}

Json to_json(const StorageUse& use) {
  return {{"fetched_mib", mib(use.fetched_bytes)},
          {"requests", use.requests},
          {"retries", use.retries},
          {"cache_hit_pct", use.hit_pct() ? Json(*use.hit_pct()) : Json()},
          {"cache_damaged_blocks", use.damaged},
          {"mib_per_s", use.mib_per_s()},
          {"answer_ms", {{"p5", use.speed.fast_ms}, {"p50", use.speed.median_ms}, {"p99", use.speed.slow_ms}}},
          {"requests_under_way", use.speed.under_way()},
          {"concurrency", use.concurrency}};
}

DataFiles::DataFiles(const StorageConfig& config, const FileCaches& caches, Variables variables)
    : number_(++made_data_files), config_(config), caches_(caches), variables_(std::move(variables)) {}
DataFiles::~DataFiles() = default;

std::shared_ptr<RemoteStore> DataFiles::store() {
  const std::lock_guard lock(mutex_);
  if (store_) return store_;
  const std::string endpoint =
      config_.endpoint.value_or(variable(variables_, {"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"}, ""));
  const std::string ca_bundle = variable(variables_, {"AWS_CA_BUNDLE"}, "");
  CredentialsQuery query{.variables = variables_,
                         .profile = config_.profile,
                         .ask = [=](const PlainRequest& request) { return ask(request, ca_bundle); },
                         .now_s = [] { return std::time(nullptr); }};
  std::string region = config_.region.value_or(variable(variables_, {"AWS_REGION", "AWS_DEFAULT_REGION"}, ""));
  if (region.empty()) region = region_of_profile(query).value_or("us-east-1");
  S3Options options{.endpoint = endpoint,
                    .region = std::move(region),
                    .path_style = config_.path_style.value_or(!endpoint.empty()),
                    .anonymous = config_.anonymous,
                    .timeout_s = config_.timeout.seconds,
                    .retries = config_.retries,
                    .ca_bundle = ca_bundle};
  if (caches_.disk) disk_cache_ = std::make_unique<DiskCache>(*caches_.disk);
  if (caches_.memory) memory_cache_ = std::make_unique<MemoryCache>(*caches_.memory);
  store_ =
      std::make_shared<RemoteStore>(std::move(options), std::move(query), config_.concurrency, config_.part_size.count);
  return store_;
}

void require_remote_path(const std::string& path) {
  const std::string key = remote_path(path).key;
  if (key.find('/', key.find_first_of(kPatternCharacters)) != std::string::npos && is_pattern(key))
    throw UserError(fmt::format("in object storage a pattern must be in a path's last part: {}", path), ExitCode::data);
}

std::vector<std::string> DataFiles::list(const std::string& path) {
  if (!is_remote(path)) return list_folder(path);
  auto [bucket, key] = remote_path(path);
  if (!key.empty() && !key.ends_with('/')) key += '/';
  std::vector<std::string> found;
  for (const auto& object : store()->list(bucket, key)) found.push_back(remote_name(bucket, object.key));
  return found;
}

std::vector<std::string> DataFiles::matching(const std::string& pattern) {
  if (!is_remote(pattern)) return local_matches(pattern);
  require_remote_path(pattern);
  const auto [bucket, key] = remote_path(pattern);
  const size_t first = key.find_first_of(kPatternCharacters);
  std::vector<std::string> found;
  for (const auto& object : store()->list(bucket, key.substr(0, first))) {
    const std::string name = object.key.substr(0, object.key.size() - (object.key.ends_with('/') ? 1 : 0));
    if (fits(name, key)) found.push_back(remote_name(bucket, object.key));
  }
  return found;
}

std::unique_ptr<const DataFile> DataFiles::open(const std::string& path) {
  if (!is_remote(path)) return open_local_file(path);
  const auto [bucket, key] = remote_path(path);
  if (key.empty() || key.ends_with('/')) throw UserError(fmt::format("this names no object: {}", path), ExitCode::data);
  auto file = open_remote_file(store(), bucket, key);
  if (disk_cache_) return disk_cache_->through(std::move(file));
  return memory_cache_ ? memory_cache_->through(std::move(file)) : std::move(file);
}

std::optional<StorageUse> DataFiles::use() const {
  const std::lock_guard lock(mutex_);
  if (!store_) return {};
  StorageUse use{.fetched_bytes = store_->counters().bytes,
                 .requests = store_->counters().requests,
                 .retries = store_->counters().retries,
                 .concurrency = config_.concurrency,
                 .speed = store_->counters().reads.speed()};
  if (disk_cache_) {
    use.hit_bytes = disk_cache_->counters().hit_bytes;
    use.missed_bytes = disk_cache_->counters().missed_bytes;
    use.damaged = disk_cache_->counters().damaged;
  } else if (memory_cache_) {
    use.hit_bytes = memory_cache_->hit_bytes();
    use.missed_bytes = memory_cache_->missed_bytes();
  }
  return use;
}

}  // namespace trainopt
