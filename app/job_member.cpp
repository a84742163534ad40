#include "app/job_member.h"

#include "base/host_name.h"
#include "device/process.h"

#include <spdlog/spdlog.h>
#include <torch/version.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

namespace trainopt {
namespace {

constexpr auto kPatience = std::chrono::seconds(15);

MeetingPlace meeting_place(const Launch& launch, double timeout_s) {
  return {.place = launch.place, .address = launch.master_address, .port = launch.master_port.value_or(0), .served_elsewhere = launch.launcher_serves_store,
          .job = !launch.job.empty() ? launch.job : launch.master_address ? "ranks" : fmt::format("of-{}", ::getppid()),   // of the launcher, where it gives no name
          .port_folder = std::filesystem::temp_directory_path(), .timeout_s = timeout_s};
}

/// Where 127.0.0.1 is the same place: names alone are not unique, and a container may have a network of its own.
std::string machine_id() {
  std::error_code error;
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(boot_id, id);
  return fmt::format("{} {} {}", host_name(), id, std::filesystem::read_symlink("/proc/self/ns/net", error).string());
}

}  // namespace

JobMember::JobMember(const Launch& launch, const Recipe& recipe) : place_(launch.place), communicator_(make_single_communicator()) {
  if (!launch.notice.empty()) spdlog::warn("{}", launch.notice);
  if (place_.ranks == 1) return;
  job_ = std::make_unique<Job>(meeting_place(launch, recipe.parallel.timeout.seconds),
                               RankFacts{.recipe = recipe_yaml(recipe), .build = "trainopt " TRAINOPT_VERSION " libtorch " TORCH_VERSION, .host = machine_id(), .cpus = allowed_cpus()});
}

std::optional<int> JobMember::cores() const { return job_ ? std::optional(static_cast<int>(job_->cores())) : std::nullopt; }

void JobMember::open_communicator(at::Device device, const NcclConfig& nccl) {
  if (job_) communicator_ = job_->make_communicator(device, nccl);
}

void JobMember::at(const char* stage, int64_t steps) noexcept {
  if (job_) job_->at(stage, steps);
}

Json JobMember::decided(const std::string& what, const std::function<Json()>& decide) {
  if (!job_) return decide();
  if (!is_first()) return Json::parse(job_->get(what));
  const Json decision = decide();
  job_->put(what, decision.dump());
  return decision;
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
    } catch (const std::exception& cause) {   // named recovery: it always throws; what it throws is the answer
      end_ = End{explain(cause), dynamic_cast<const PeerFailed*>(&cause) != nullptr};
    }
    return *end_;
  }
  end_ = End{explain(error), dynamic_cast<const PeerFailed*>(&error) != nullptr};
  if (job_ && !end_->told) end_->told = !job_->tell_failure(end_->code, end_->message);
  return *end_;
}

void JobMember::leave_together() {
  if (job_) communicator_->gather(std::array{0.0});
}

void JobMember::leave_alone(int code) {
  std::promise<void> said;
  std::thread([&] {   // goodbye; a store whose rank was stopped never answers
    job_.reset();
    said.set_value();
  }).detach();
  said.get_future().wait_for(is_first() ? kPatience : kPatience / 5);   // rank 0 waits for the others to read why
  spdlog::default_logger()->flush();
  std::fflush(stdout);
  ::_exit(code);
}

}  // namespace trainopt
