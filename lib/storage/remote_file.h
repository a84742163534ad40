// Objects of S3 as files of a data set: long reads in parts that are fetched at once, and reads that are announced.
#pragma once

#include "storage/data_file.h"
#include "storage/s3/s3_client.h"
#include "storage/transfers.h"

#include <atomic>
#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

namespace trainopt {

/// The server, and what is under way from it. Safe to use from many threads.
class RemoteStore {
 public:
  /// `parts`: transfers at once, and half of the reads to be announced; `part_size`: bytes of the largest. Their
  /// product bounds what is fetched ahead.
  RemoteStore(S3Options options, CredentialsQuery credentials, int64_t parts, int64_t part_size)
      : client_(std::move(options), std::move(credentials)),
        part_size_(part_size),
        most_ahead_(parts * part_size),
        reads_ahead_(2 * parts),
        transfers_(parts) {}

  std::vector<ListedObject> list(const std::string& bucket, const std::string& prefix);
  S3Object open(const std::string& bucket, const std::string& key);
  /// Fills `to`, in parts at once.
  void read(const S3Object& object, int64_t offset, std::span<uint8_t> to);

  using Range = std::tuple<int64_t, int64_t, int64_t>;  ///< file, offset, bytes
  /// Begins to fetch the range, unless that is under way or too much is.
  void announce(const S3Object& object, const Range& range);
  /// The announced range's bytes, waiting for them; false if it was not announced. Throws what the transfer threw.
  bool take(const Range& range, std::vector<uint8_t>& to);
  void forget(int64_t file);  ///< what was announced of this file
  int64_t reads_ahead() const { return reads_ahead_; }
  const std::string& endpoint() const { return client_.endpoint(); }
  int64_t next_file_number() { return ++files_; }
  const S3Counters& counters() const { return client_.counters(); }

 private:
  struct Ahead {
    std::shared_ptr<std::vector<uint8_t>> bytes;
    std::future<void> done;
    int64_t read_before;  ///< reads until it was announced
  };
  void drop_skipped();

  S3Client client_;
  int64_t part_size_, most_ahead_, reads_ahead_;
  std::atomic<int64_t> files_{0};
  std::mutex mutex_;
  std::map<Range, Ahead> ahead_;
  int64_t ahead_bytes_ = 0, reads_ = 0;
  Transfers transfers_;  ///< the first to end
};

std::unique_ptr<const DataFile> open_remote_file(std::shared_ptr<RemoteStore> store, const std::string& bucket,
                                                 const std::string& key);

}  // namespace trainopt
