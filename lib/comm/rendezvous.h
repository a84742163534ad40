// Rendezvous: the ranks of a job meet at a key-value store that rank 0 (or torchrun) serves.
#pragma once

#include "comm/config.h"
#include "comm/store.h"

#include <atomic>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

struct RendezvousOptions {
  RankPosition position;
  std::optional<std::string> address;  ///< rank 0's machine; null: all ranks are on this machine, see PortFile
  int port = 0;                        ///< used only with an address
  bool external_store = false;         ///< the launcher serves the store at this port (torchrun)
  std::string job;                     ///< identifies the job on this machine and in this store
  std::string key;                     ///< the job's secret; empty: its store accepts everybody's values
  bool made_key = false;               ///< the key is that of another job's part, of which this job is a part
  std::filesystem::path port_folder;   ///< the folder for temporary files, where the port file is
  double timeout_s = 600;
  std::vector<std::string> variables;      ///< "SLURM_NTASKS=4": what made this process a rank, for messages
  const std::atomic<int>* stop = nullptr;  ///< the signal that asks for a stop, 0 before; null: none can come
  std::string kept = "the newest checkpoint is unaffected";  ///< what outlives a lost rank, for its message
};

/// A job's part of a store, and the key made for it; the key is empty if everybody's values are accepted.
struct StorePart {
  c10::intrusive_ptr<c10d::Store> store;
  std::string key;
};

/// Where the ranks have met, and where other processes of the job can join them.
struct Rendezvous {
  StorePart part;
  std::string address;
  int port = 0;
  std::filesystem::path port_file;  ///< to be removed by rank 0 once all ranks have joined; empty: none
};

/// If all ranks are on this machine, rank 0 listens at `address` only, or on 127.0.0.1. Throws UserError: `recipe` if
/// this rank's key is not that of rank 0; `peer` if the port is in use,
/// the address cannot be resolved or reached, or rank 0 does not appear in time; `storage` if there is no folder for
/// the port file.
Rendezvous join_rendezvous(const RendezvousOptions& options);

// Where rank 0 publishes its port for ranks of the same machine whose launcher gives no address (mpirun, srun).

/// `<folder>/trainopt-<user id>/port-<job>`. Only this user can read it, or put a file there.
class PortFile {
 public:
  /// `folder`: for temporary files. Throws UserError(storage) if it does not exist, or if somebody else has the folder
  /// of this user's name in it.
  PortFile(const std::filesystem::path& folder, const std::string& job);

  const std::filesystem::path& path() const { return path_; }

  struct Contents {
    int port = 0;
    std::string key;
  };
  void write(const Contents& contents) const;
  /// nullopt if there is no such file, or if it is not one that this user wrote.
  std::optional<Contents> read() const;

 private:
  std::filesystem::path path_;
};

/// This machine's source address for packets to `host`:`port`. Sends nothing. Throws UserError(peer) if the name cannot
/// be resolved or there is no route.
std::string local_address_towards(const std::string& host, int port);

}  // namespace trainopt
