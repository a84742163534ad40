#include "trace/nesting.h"

#include "trace/events.h"

#include <algorithm>
#include <array>

namespace trainopt::trace {
namespace {

/// Operations that Python leaves out before it builds the tree (profiler_util.py, _filter_name).
constexpr std::array<std::string_view, 6> kLeftOut = {"profiler::_record_function_enter",
                                                      "profiler::_record_function_enter_new",
                                                      "profiler::_record_function_exit",
                                                      "aten::is_leaf",
                                                      "aten::output_nr",
                                                      "aten::_version"};

/// What a name means for the tree, looked up once per name.
struct NameFacts {
  bool left_out = false, asynchronous = false, unit = false;
};

std::vector<NameFacts> facts_of(const Names& names) {
  std::vector<NameFacts> facts(names.size());
  for (uint32_t i = 0; i < facts.size(); ++i) {
    const std::string_view name = names[i];
    facts[i].left_out = std::find(kLeftOut.begin(), kLeftOut.end(), name) != kLeftOut.end();
    facts[i].asynchronous = is_collective_range(name);
    facts[i].unit = name.starts_with(kUnitLabel) || name.starts_with(kUnitBackwardLabel);
  }
  return facts;
}

/// Positions of the events that form the tree, thread by thread, parents first. A runtime call is on the thread of its
/// operation.
std::vector<uint32_t> tree_order(const RankTrace& trace, const Launches& launches,
                                 const std::vector<NameFacts>& facts) {
  const auto thread = [&](uint32_t i) {
    const uint32_t caller = launches.caller.empty() ? kNone : launches.caller[i];
    return trace.host[caller == kNone ? i : caller].thread;
  };
  std::vector<uint32_t> order;
  for (uint32_t i = 0; i < trace.host.size(); ++i) {
    const NameFacts& fact = facts[trace.host[i].name];
    if (!fact.left_out && !fact.asynchronous) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    const uint32_t left = thread(a), right = thread(b);
    if (left != right) return left < right;
    const HostEvent &one = trace.host[a], &other = trace.host[b];
    return one.start_ns != other.start_ns ? one.start_ns < other.start_ns : one.end_ns > other.end_ns;
  });
  return order;
}

/// An event's parent is the innermost open event that contains it. An event that outlasts the innermost one closes it.
void find_parents(const RankTrace& trace, const Launches& launches, const std::vector<uint32_t>& order,
                  Nesting& nesting) {
  std::vector<uint32_t> open;
  uint32_t thread = kNone;
  for (const uint32_t i : order) {
    const HostEvent& event = trace.host[i];
    const uint32_t caller = launches.caller.empty() ? kNone : launches.caller[i];
    const uint32_t own = trace.host[caller == kNone ? i : caller].thread;
    if (own != thread) open.clear();
    thread = own;
    while (!open.empty() &&
           (event.start_ns >= trace.host[open.back()].end_ns || event.end_ns > trace.host[open.back()].end_ns))
      open.pop_back();
    if (!open.empty()) nesting.parent[i] = open.back();
    open.push_back(i);
  }
}

/// An only child with its parent's name is hidden: its parent takes over its children and kernels (_remove_dup_nodes).
/// `order` has parents first.
void hide_repetitions(const RankTrace& trace, const std::vector<uint32_t>& order, Nesting& nesting) {
  std::vector<uint32_t> children(trace.host.size());
  for (const uint32_t i : order)
    if (nesting.parent[i] != kNone) ++children[nesting.parent[i]];
  for (const uint32_t i : order) {
    uint32_t& parent = nesting.parent[i];
    while (parent != kNone && nesting.hidden[parent]) parent = nesting.parent[parent];
    if (parent == kNone || children[parent] != 1 || trace.host[parent].name != trace.host[i].name) continue;
    nesting.hidden[i] = 1;
    children[parent] = children[i];
    if (nesting.device_self_ns.empty()) continue;
    nesting.device_self_ns[parent] += nesting.device_self_ns[i];
    nesting.device_self_ns[i] = 0;
  }
}

void add_device_times(const RankTrace& trace, Launches& launches, Nesting& nesting) {
  if (trace.device.empty()) return;
  nesting.device_self_ns.assign(trace.host.size(), 0);
  for (size_t k = 0; k < trace.device.size(); ++k) {
    uint32_t& operation = launches.operation[k];
    if (operation == kNone && launches.call[k] != kNone) operation = nesting.parent[launches.call[k]];
    if (operation != kNone) nesting.device_self_ns[operation] += trace.device[k].duration_ns();
  }
}

}  // namespace

Nesting nest(const RankTrace& trace, Launches& launches) {
  Nesting nesting;
  const size_t events = trace.host.size();
  const auto facts = facts_of(*trace.names);
  const auto order = tree_order(trace, launches, facts);
  nesting.parent.assign(events, kNone);
  nesting.hidden.assign(events, 0);
  nesting.children_ns.assign(events, 0);
  nesting.unit.assign(events, kNone);
  find_parents(trace, launches, order, nesting);
  add_device_times(trace, launches, nesting);
  hide_repetitions(trace, order, nesting);
  for (uint32_t i = 0; i < events; ++i) {
    const NameFacts& fact = facts[trace.host[i].name];
    if (fact.left_out) nesting.hidden[i] = 1;
    // Such a range has no time of its own, only a total (FunctionEvent.self_cpu_time_total).
    if (fact.asynchronous) nesting.children_ns[i] = trace.host[i].duration_ns();
  }
  nesting.device_total_ns = nesting.device_self_ns;
  for (const uint32_t i : order) {
    const uint32_t parent = nesting.parent[i];
    if (parent != kNone && !nesting.hidden[i]) nesting.children_ns[parent] += trace.host[i].duration_ns();
    nesting.unit[i] = facts[trace.host[i].name].unit ? i : parent == kNone ? kNone : nesting.unit[parent];
  }
  if (nesting.device_total_ns.empty()) return nesting;
  for (auto i = order.rbegin(); i != order.rend(); ++i)
    if (nesting.parent[*i] != kNone) nesting.device_total_ns[nesting.parent[*i]] += nesting.device_total_ns[*i];
  return nesting;
}

}  // namespace trainopt::trace
