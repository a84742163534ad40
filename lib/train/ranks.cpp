#include "train/ranks.h"

#include "base/error.h"
#include "base/json.h"
#include "base/units.h"
#include "device/tensor.h"
#include "model/model.h"

#include <algorithm>
#include <array>
#include <map>

namespace trainopt {

void RankAgreement::agree(const RankRequests& mine) {
  const std::array<double, 3> numbers{static_cast<double>(mine.stop_signal), mine.save ? 1.0 : 0.0,
                                      mine.out_of_time ? 1.0 : 0.0};
  const auto all = communicator_.gather(numbers);
  agreed_ = {.stop_signal = 0, .save = false, .out_of_time = all[2] != 0};
  for (size_t at = 0; at < all.size(); at += numbers.size()) {
    if (agreed_.stop_signal == 0) agreed_.stop_signal = static_cast<int>(all[at]);
    agreed_.save |= all[at + 1] != 0;
  }
}

void RankAgreement::broadcast_buffers(const Model& model, Communicator& replicas) {
  if (replicas.ranks() == 1) return;
  for (const auto& [name, buffer] : model.buffers()) replicas.broadcast(buffer, 0)->wait();
  drop_traffic();
}

RankAgreement::Sent RankAgreement::add_traffic(PendingRecord& record) {
  Sent sent;
  if (communicator_.ranks() == 1) return sent;
  std::array<int64_t, kCollectiveCount> bytes{};
  double waited_ms = 0;
  for (Communicator* communicator : counted_) {
    Traffic traffic = communicator->take_traffic();
    for (size_t i = 0; i < kCollectiveCount; ++i) bytes[i] += traffic.bytes[i];
    waited_ms += traffic.waited_ms;
    for (auto& stall : traffic.stalls) record.add(Metric::comm_exposed_ms, std::move(stall));
    traffic.bytes[static_cast<size_t>(Collective::send)] = 0;
    const double wire = traffic.wire_bytes(communicator->ranks());
    sent.all += wire;
    if (communicator->position().local_ranks == 1) sent.across += wire;
  }
  constexpr Metric kMetrics[kCollectiveCount] = {Metric::all_reduce_mib, Metric::reduce_scatter_mib,
                                                 Metric::all_gather_mib, Metric::broadcast_mib, Metric::send_mib};
  for (size_t i = 0; i < kCollectiveCount; ++i) record.set(kMetrics[i], mib(bytes[i]));
  record.set(Metric::comm_exposed_ms, waited_ms);
  return sent;
}

StepRecord RankAgreement::over_ranks(const StepRecord& row) {
  if (communicator_.ranks() == 1) return row;
  const auto number = [&](Metric metric) { return row[metric].value_or(0); };
  const std::array<double, 6> mine{number(Metric::loss),         number(Metric::grad_norm),
                                   number(Metric::nonfinite),    number(Metric::step_ms),
                                   number(Metric::data_wait_ms), number(Metric::comm_exposed_ms)};
  const auto all = communicator_.gather(mine);
  StepRecord merged = row;
  merged[Metric::loss] = 0;
  for (size_t at = 0; at < all.size(); at += mine.size()) {
    // Summed in float and in rank order, as a single rank would sum its micro-batches.
    merged[Metric::loss] = static_cast<float>(*merged[Metric::loss]) + static_cast<float>(all[at]);
    if (merged[Metric::grad_norm]) merged[Metric::grad_norm] = all[1];
    if (merged[Metric::nonfinite]) merged[Metric::nonfinite] = std::max(*merged[Metric::nonfinite], all[at + 2]);
    merged.ranks.push_back({.step_ms = all[at + 3], .data_wait_ms = all[at + 4], .comm_exposed_ms = all[at + 5]});
  }
  return merged;
}

std::vector<int64_t> RankAgreement::over_ranks(const std::vector<int64_t>& mine) {
  std::vector<int64_t> all;
  for (const std::string& one : gather_texts(communicator_, json_text(mine)))
    for (const Json& number : parse_json(one)) all.push_back(number.get<int64_t>());
  return all;
}

RankGroups::RankGroups(Communicator& job, const StagePlan& plan) : job_(job) {
  if (plan.stages() == 1) return;
  std::vector<int64_t> same_stage, same_model;
  for (int64_t replica = 0; replica < plan.replica.ranks; ++replica)
    same_stage.push_back(plan.first_rank_of(plan.stage) + replica);
  for (int64_t stage = 0; stage < plan.stages(); ++stage)
    same_model.push_back(plan.first_rank_of(stage) + plan.replica.rank);
  replicas_ = job.among(same_stage);
  stages_forward_ = job.among(same_model);
  stages_backward_ = job.among(same_model);
}

std::vector<Communicator*> RankGroups::of_pipeline() {
  if (!replicas_) return {};
  return {replicas_.get(), stages_forward_.get(), stages_backward_.get()};
}

namespace {

constexpr int64_t kPiece = 1 << 21;  // elements for which temporary memory is needed at once
constexpr int64_t kListedValues = 4;

c10::ScalarType integer_of(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return at::kByte;
    case 2:
      return at::kShort;
    case 4:
      return at::kInt;
    default:
      return at::kLong;
  }
}

// gather() carries doubles, which hold 32 bits exactly.
double high_half(uint64_t value) { return static_cast<double>(value >> 32); }
double low_half(uint64_t value) { return static_cast<double>(value & 0xffffffff); }
uint64_t joined(double high, double low) { return static_cast<uint64_t>(high) << 32 | static_cast<uint64_t>(low); }

/// The checksums of all tensors, on the host.
std::vector<uint64_t> checksums(const NamedTensors& tensors) {
  std::vector<at::Tensor> each;
  for (const auto& [name, tensor] : tensors) each.push_back(checksum(tensor));
  const at::Tensor all = at::stack(each).cpu();
  std::vector<uint64_t> values;
  for (int64_t i = 0; i < all.numel(); ++i) values.push_back(static_cast<uint64_t>(all.const_data_ptr<int64_t>()[i]));
  return values;
}

uint64_t checksum_of(const std::vector<uint64_t>& values) {
  uint64_t sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += (2 * i + 1) * values[i];
  return sum;
}

std::vector<uint64_t> gather_one(Communicator& communicator, uint64_t mine) {
  const auto all = communicator.gather(std::array{high_half(mine), low_half(mine)});
  std::vector<uint64_t> values;
  for (size_t at = 0; at < all.size(); at += 2) values.push_back(joined(all[at], all[at + 1]));
  return values;
}

/// The first tensor that differs between ranks.
struct Difference {
  std::string tensor;
  std::vector<uint64_t> of_rank;  ///< its checksums
  bool finite_somewhere = false;
};

Difference first_difference(Communicator& communicator, const NamedTensors& tensors,
                            const std::vector<uint64_t>& mine) {
  std::vector<double> sent;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool finite = at::isfinite(tensors[i].second).all().item<bool>();
    sent.insert(sent.end(), {high_half(mine[i]), low_half(mine[i]), finite ? 1.0 : 0.0});
  }
  const auto all = communicator.gather(sent);
  for (size_t i = 0; i < tensors.size(); ++i) {
    Difference found{.tensor = tensors[i].first, .of_rank = {}};
    for (size_t at = 3 * i; at < all.size(); at += sent.size()) {
      found.of_rank.push_back(joined(all[at], all[at + 1]));
      found.finite_somewhere |= all[at + 2] != 0;
    }
    if (std::adjacent_find(found.of_rank.begin(), found.of_rank.end(), std::not_equal_to<>()) != found.of_rank.end())
      return found;
  }
  TRAINOPT_CHECK(false);  // the checksum over all tensors differed
  return {};
}

std::string ranks_of(const std::vector<int64_t>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

/// Who has which checksum, the most frequent first.
std::vector<std::pair<uint64_t, std::vector<int64_t>>> by_value(const std::vector<uint64_t>& of_rank) {
  std::map<uint64_t, std::vector<int64_t>> ranks;
  for (size_t rank = 0; rank < of_rank.size(); ++rank) ranks[of_rank[rank]].push_back(static_cast<int64_t>(rank));
  std::vector<std::pair<uint64_t, std::vector<int64_t>>> groups(ranks.begin(), ranks.end());
  std::sort(groups.begin(), groups.end(), [](const auto& left, const auto& right) {
    return left.second.size() != right.second.size() ? left.second.size() > right.second.size()
                                                     : left.second.front() < right.second.front();
  });
  return groups;
}

/// One sentence, the same on all ranks.
std::string sentence(const Difference& found, int64_t step, const std::optional<int64_t>& passed_step) {
  const auto groups = by_value(found.of_rank);
  const size_t ranks = found.of_rank.size();
  std::string who, checksums_text;
  if (2 * groups.front().second.size() > ranks) {
    std::vector<int64_t> odd;
    for (size_t i = 1; i < groups.size(); ++i) odd.insert(odd.end(), groups[i].second.begin(), groups[i].second.end());
    std::sort(odd.begin(), odd.end());
    who = fmt::format("the weights of {} differ from those of the other {} after step {}", ranks_of(odd),
                      ranks - odd.size(), step);
  } else {
    who =
        fmt::format("the weights of {} ranks differ after step {}, and no majority shows which are right", ranks, step);
  }
  for (size_t i = 0; i < groups.size() && i < kListedValues; ++i)
    checksums_text += fmt::format("{}{} {:016x}", i == 0 ? "" : "; ", ranks_of(groups[i].second), groups[i].first);
  if (groups.size() > kListedValues) checksums_text += fmt::format("; {} more values", groups.size() - kListedValues);
  return fmt::format(
      "suspected hardware fault: {}; without the faulty machine, {}: first difference in {}, checksums {}", who,
      passed_step ? fmt::format("resume from a checkpoint of step {} or before, when they were equal", *passed_step)
                  : "start again, or resume from the checkpoint that this run began with",
      found.tensor, checksums_text);
}

}  // namespace

at::Tensor checksum(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = tensor.detach().as_strided({tensor.numel()}, {1}).view(integer_of(tensor));
  at::Tensor sum = at::zeros({}, bits.options().dtype(at::kLong));
  const at::Tensor odd = at::arange(1, 2 * std::min(kPiece, bits.numel()), 2, sum.options());
  for (int64_t begin = 0; begin < bits.numel(); begin += kPiece) {
    const int64_t count = std::min(kPiece, bits.numel() - begin);
    sum += ((odd.narrow(0, 0, count) + 2 * begin).mul_(bits.narrow(0, begin, count))).sum();
  }
  return sum;
}

void ReplicaCheck::compare(const NamedTensors& tensors, int64_t step) {
  TRAINOPT_CHECK(!tensors.empty());
  const auto mine = checksums(tensors);
  const auto totals = gather_one(communicator_, checksum_of(mine));
  if (std::adjacent_find(totals.begin(), totals.end(), std::not_equal_to<>()) == totals.end()) {
    passed_step_ = step;
    return;
  }
  const Difference found = first_difference(communicator_, tensors, mine);
  if (!found.finite_somewhere)
    throw UserError(fmt::format("the weights are non-finite after step {}; lower optimizer.lr, add warm-up, or inspect "
                                "the data of this step: {}",
                                step, found.tensor),
                    ExitCode::diverged);
  throw UserError(sentence(found, step, passed_step_), ExitCode::hardware);
}

}  // namespace trainopt
