#include "run/job_member.h"

#include "base/files/program_files.h"
#include "base/host_name.h"
#include "base/log.h"
#include "base/print.h"
#include "base/sha256.h"
#include "device/process.h"
#include "run/signals.h"
#include "run/version.h"

#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

namespace trainopt {
namespace {

constexpr auto kExitWait = std::chrono::seconds(15);

/// Every attempt is a job of its own: torchrun's store outlives the ranks, with what they wrote.
std::string job_name(const Launch& launch) {
  const std::string name = !launch.job.empty() ? launch.job
                           : launch.master_address
                               ? "ranks"
                               : fmt::format("of-{}", ::getppid());  // the launcher's process, if it sets no job name
  return launch.restarts.done > 0 ? fmt::format("{}-restart-{}", name, launch.restarts.done) : name;
}

RendezvousOptions rendezvous_options(const Launch& launch, double timeout_s) {
  return {.position = launch.position,
          .address = launch.master_address,
          .port = launch.master_port.value_or(0),
          .external_store = launch.launcher_serves_store,
          .job = job_name(launch),
          .key = launch.key,
          .port_folder = launch.temporary_folder,
          .timeout_s = timeout_s,
          .variables = launch.variables,
          .stop = &stop_signal()};
}

/// Without a key, a store that other machines can reach believes whoever writes to it.
void say_if_open(const Launch& launch) {
  const std::string address = launch.master_address.value_or("127.0.0.1");
  const bool is_own = address.starts_with("127.") || address == "localhost" || address == "::1";
  const bool reachable = !launch.position.one_machine() || launch.launcher_serves_store || !is_own;
  if (launch.position.is_first() && launch.position.ranks > 1 && reachable && launch.key.empty())
    log_warning(
        "whoever reaches port {} of {} can disturb this job or end it; to refuse others' messages, set {} to the same "
        "secret for all ranks",
        launch.master_port.value_or(0), address, kKeyVariable);
}

RendezvousOptions for_measurement(RendezvousOptions options) {
  options.kept = "complete blocks measured before are kept";
  return options;
}

/// An id that only processes with the same 127.0.0.1 share: host names alone are not unique, and a container may have
/// its own network.
std::string machine_id() {
  std::error_code error;
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot_id, id);
  return fmt::format("{} {} {}", host_name(), id, std::filesystem::read_symlink("/proc/self/ns/net", error).string());
}

}  // namespace

JobMember::JobMember(const Launch& launch, const Recipe& recipe)
    : JobMember(rendezvous_options(launch, recipe.parallel.timeout.seconds), recipe_yaml(recipe)) {
  restarts_ = launch.restarts;
  if (!launch.notice.empty()) log_warning("{}", launch.notice);
  say_if_open(launch);
}

JobMember::JobMember(const Launch& launch, double timeout_s, std::string recipes)
    : JobMember(for_measurement(rendezvous_options(launch, timeout_s)), std::move(recipes)) {
  if (!launch.notice.empty()) log_warning("{}", launch.notice);
  say_if_open(launch);
}

JobMember::JobMember(RendezvousOptions rendezvous, std::string recipes)
    : position_(rendezvous.position), key_(rendezvous.key), communicator_(make_single_communicator()) {
  if (position_.ranks == 1) return;
  job_ = std::make_unique<Job>(
      std::move(rendezvous), RankFacts{.recipe = std::move(recipes),
                                       .build = fmt::format("trainopt {} libtorch {} {}", kBuild.version, TORCH_VERSION,
                                                            build_id_of("/proc/self/exe")),
                                       .host = machine_id(),
                                       .cpus = allowed_cpus()});
  // The processes of arms need the key to join their counterparts in this job's store.
  if (!job_->key().empty()) ::setenv(kKeyVariable, job_->key().c_str(), /*overwrite=*/1);
}

std::string JobMember::mark() const {
  return key_.empty() ? "" : in_hex(hmac_sha256(key_, "run directory")).substr(0, 16);
}

std::optional<int> JobMember::cores() const {
  return job_ ? std::optional(static_cast<int>(job_->cores())) : std::nullopt;
}

void JobMember::open_communicator(at::Device device) {
  if (job_) communicator_ = connect(device);
}

std::shared_ptr<Communicator> JobMember::connect(at::Device device, double min_timeout_s) {
  return job_ ? job_->make_communicator(device, min_timeout_s) : make_single_communicator();
}

void JobMember::at(const char* stage, int64_t steps) noexcept {
  if (job_) job_->at(stage, steps);
}

Json JobMember::from_rank_0(const std::string& what, const std::function<Json()>& make) {
  if (!job_) return make();
  const std::string key = fmt::format("{}#{}", what, texts_++);  // every rank makes the same key
  if (!is_first()) return parse_json(job_->get(key));
  const Json made = make();
  job_->put(key, json_text(made));
  return made;
}

Json JobMember::gathered_on_rank_0(const std::string& what, const Json& mine) {
  if (!job_) return mine;
  const auto key = [&](int64_t rank) { return fmt::format("{}/{}", what, rank); };
  if (!is_first()) {
    job_->put(key(position_.rank), json_text(mine));
    return Json::array();
  }
  Json all = mine;
  for (int64_t rank = 1; rank < position_.ranks; ++rank) append_new(all, parse_json(job_->get(key(rank))));
  return all;
}

std::function<void(const std::string&, const std::string&)> JobMember::put() const {
  return [job = job_.get()](const std::string& key, const std::string& value) { job->put(key, value); };
}

std::function<std::string(const std::string&)> JobMember::get() const {
  return [job = job_.get()](const std::string& key) { return job->get(key); };
}

const JobMember::End& JobMember::end_of(const std::exception& error) {
  if (end_) return *end_;
  if (job_ && dynamic_cast<const LostRank*>(&error)) {
    try {
      job_->explain(dynamic_cast<const LostRank&>(error));
    } catch (const std::exception& cause) {  // named recovery: explain() answers by throwing
      end_ = End{explain(cause), dynamic_cast<const PeerFailed*>(&cause) != nullptr};
    }
    return *end_;
  }
  end_ = End{explain(error), dynamic_cast<const PeerFailed*>(&error) != nullptr};
  if (job_ && !end_->reported_by_other_rank)
    end_->reported_by_other_rank = !job_->report_failure(end_->code, end_->message);
  return *end_;
}

void JobMember::finish_with_other_ranks() {
  if (job_) communicator_->gather(std::array{0.0});
}

void JobMember::exit_without_other_ranks(int code) {
  std::promise<void> left;
  try {
    std::thread([&] {  // may never return: the store of a stopped rank does not answer the goodbye
      job_.reset();
      left.set_value();
    })
        .detach();
    left.get_future().wait_for(is_first() ? kExitWait : kExitWait / 5);  // rank 0 lets the others read why first
  } catch (const std::system_error&) {  // named recovery: without a thread the others find out by themselves
  }
  flush_log();
  std::fflush(stdout);
  ::_exit(code);
}

void report_end(const JobMember::End& end, const JobMember& member) {
  if (end.reported_by_other_rank)
    log_debug("{}", end.message);
  else
    print_error(fmt::format("rank {}: {}", member.position().rank, end.message));
}

}  // namespace trainopt
