#include "train/rank_agreement.h"

#include "base/json.h"
#include "base/units.h"
#include "model/model.h"

#include <algorithm>

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

}  // namespace trainopt
