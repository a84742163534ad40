#include "comm/launch/launch_environment.h"

#include "base/error.h"
#include "comm/launch/launch_claims.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace trainopt {
namespace {

constexpr size_t kMinKeyLength = 16;

bool differ(const std::optional<int64_t>& left, const std::optional<int64_t>& right) {
  return left && right && *left != *right;
}
bool disagree(const LaunchClaim& left, const LaunchClaim& right) {
  return differ(left.rank, right.rank) || differ(left.ranks, right.ranks) ||
         differ(left.local_rank, right.local_rank) || differ(left.local_ranks, right.local_ranks);
}

/// Whether the outer launcher started daemons or agents rather than the ranks: there is one per machine, so never more
/// of them than ranks.
bool starts_daemons(const LaunchClaim& slurm, const LaunchClaim& ranks) { return *slurm.ranks <= *ranks.ranks; }

/// Whether an agent (torchrun or trainopt launch) identifies itself as the one that started this process.
bool names_agent(const LaunchClaim& torch, const LaunchVariables& variables) {
  return torch.any() && (torch.launcher == kOwnLauncher || variables.has("TORCHELASTIC_RUN_ID"));
}
/// Hand-written scripts usually set fewer.
bool fully_set(const LaunchClaim& torch) { return torch.rank && torch.ranks && torch.local_rank && torch.local_ranks; }

/// Fills in what a hand-written script may omit. LOCAL_WORLD_SIZE may be missing only on a single machine.
void complete_torch(LaunchClaim& torch, const LaunchVariables& variables) {
  if (!torch.rank || !torch.ranks || (*torch.ranks > 1 && !torch.local_rank))
    variables.refuse(
        "launchers set RANK, WORLD_SIZE and LOCAL_RANK together, but some are missing; set all of them or none");
  if (!torch.local_rank) torch.local_rank = 0;
  if (torch.local_ranks) return;
  if (*torch.local_rank != *torch.rank)
    variables.refuse("with several machines, set LOCAL_WORLD_SIZE to the number of ranks on this machine");
  torch.local_ranks = torch.ranks;
}

/// PMI's variables, if set, must agree with the chosen launcher's. PMI_* is compared only under srun, which serves PMI
/// itself; processes of mpirun may have inherited PMI_* from an enclosing task.
void compare_pmi(const LaunchClaim& chosen, LaunchVariables& variables) {
  bool differs = differ(chosen.rank, variables.number("PMIX_RANK"));
  if (chosen.launcher == "srun")
    differs |= differ(chosen.rank, variables.number("PMI_RANK")) || differ(chosen.ranks, variables.number("PMI_SIZE"));
  if (differs)
    variables.refuse(fmt::format(
        "the variables of {} and PMI contradict each other; start the ranks with only one launcher", chosen.launcher));
}

/// mpirun's claim, or srun's if mpirun makes none.
LaunchClaim choose_system_claim(const LaunchClaim& mpi, const LaunchClaim& slurm, const LaunchVariables& variables) {
  if (!mpi.any()) return slurm;
  if (slurm.any() && (differ(mpi.rank, slurm.rank) || differ(mpi.ranks, slurm.ranks)) &&
      (!starts_daemons(slurm, mpi) || *slurm.local_rank != 0))
    variables.refuse("the variables of mpirun and srun contradict each other; start the ranks with only one of them");
  return mpi;
}

/// Launchers whose ranks would each train alone, because nothing says where the others are.
void refuse_unread_launchers(LaunchVariables& variables) {
  constexpr std::array kUnread{std::array{"MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MVAPICH2's mpirun_rsh"},
                               std::array{"HOROVOD_RANK", "HOROVOD_SIZE", "horovodrun"}};
  for (const auto& [rank, ranks, launcher] : kUnread)
    if (variables.number(ranks).value_or(1) > 1) {
      variables.number(rank);  // so that the message shows it
      variables.refuse(fmt::format(
          "the variables of {} are not read; start the ranks with trainopt launch, torchrun, srun, or the mpirun of "
          "Open MPI or MPICH",
          launcher));
    }
}

LaunchClaim choose(LaunchVariables& variables) {
  LaunchClaim torch = read_torch_claim(variables);
  const LaunchClaim slurm = read_slurm_claim(variables);
  const LaunchClaim mpi = read_mpi_claim(variables, slurm.any());
  LaunchClaim system = choose_system_claim(mpi, slurm, variables);
  // Agents started by mpirun, one per machine, look like ranks. So under mpirun the only agent recognised is trainopt
  // launch as mpirun's single process.
  const bool may_be_above = system.launcher == "srun" || (torch.launcher == kOwnLauncher && system.ranks == 1);
  const bool above_system =
      may_be_above && (names_agent(torch, variables) || (fully_set(torch) && disagree(torch, system)));
  if (!system.any() || above_system) {
    if (!torch.any()) {
      refuse_unread_launchers(variables);
      if (variables.number("PMIX_RANK"))
        variables.refuse("PMIX_RANK does not say how many ranks there are; start with mpirun, srun or torchrun");
      return {};
    }
    if (!torch.rank && !torch.local_rank && !torch.local_ranks && torch.ranks == 1) return {};  // only WORLD_SIZE=1
    complete_torch(torch, variables);
    if (!above_system)
      compare_pmi(torch, variables);
    else if (!starts_daemons(system, torch))
      variables.refuse(fmt::format(
          "{} started more processes than there are ranks; start one torchrun or trainopt launch per machine",
          system.launcher));
    return torch;
  }
  if (system.launcher == "srun") system.local_ranks = slurm_local_ranks(variables, *system.ranks);
  compare_pmi(system, variables);
  if (disagree(torch, system))
    variables.refuse(
        fmt::format("the variables of {} and torchrun contradict each other; start the ranks with only one launcher",
                    system.launcher));
  return system;
}

void check_position(const RankPosition& position, const LaunchVariables& variables) {
  if (position.rank >= position.ranks) variables.refuse("the rank must be less than the number of ranks");
  if (position.local_rank >= position.local_ranks)
    variables.refuse("the rank on this machine must be less than the number of ranks on this machine");
  if (position.local_ranks > position.ranks) variables.refuse("this machine cannot have more ranks than the job has");
}

void find_master(Launch& launch, LaunchVariables& variables) {
  auto address = variables.text("MASTER_ADDR");
  auto port = variables.number("MASTER_PORT", 1);
  if (port > 65535) variables.refuse("MASTER_PORT must be from 1 to 65535");
  const bool needed = !launch.position.one_machine();
  if (launch.launcher == "srun" && (needed || address.has_value() != port.has_value())) {
    if (!address) address = slurm_first_node(variables);
    if (!port) port = slurm_port(variables);
  }
  if (launch.position.ranks > 1 && address.has_value() != port.has_value())
    variables.refuse("MASTER_ADDR and MASTER_PORT go together; set both or neither");
  if (needed && !address) {
    if (launch.launcher == "mpirun")
      variables.refuse(
          "mpirun on several machines does not say where rank 0 is; add -x MASTER_ADDR=HOST -x MASTER_PORT=PORT "
          "(MPICH: -genv MASTER_ADDR HOST ...)");
    variables.refuse("ranks on several machines need to know where rank 0 is; set MASTER_ADDR and MASTER_PORT");
  }
  if (!address || !port) return;
  if (address->size() > 2 && address->front() == '[' && address->back() == ']')  // IPv6, as in a URL
    address = address->substr(1, address->size() - 2);
  launch.master_address = address;
  launch.master_port = static_cast<int>(*port);
}

std::string fit_for_a_file_name(std::string job) {
  const auto is_unfit = [](char c) {
    return !((c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' || c == '_' ||
             c == '.');
  };
  std::replace_if(job.begin(), job.end(), is_unfit, '_');
  return job.substr(0, 100);
}

/// A batch script that calls trainopt without srun gets one rank, which is rarely intended if Slurm allots several
/// tasks.
std::string notice_of_unused_tasks(LaunchVariables& variables) {
  const auto tasks = variables.has("SLURM_JOB_ID") ? variables.number("SLURM_NTASKS") : std::nullopt;
  if (tasks.value_or(1) <= 1) return "";
  return fmt::format(
      "this runs as a single rank although Slurm allots {} tasks; put srun before the command to start one rank per "
      "task",
      *tasks);
}

}  // namespace

std::string key_in(const std::map<std::string, std::string>& environment) {
  const auto found = environment.find(kKeyVariable);
  if (found == environment.end() || found->second.empty()) return "";
  if (found->second.size() < kMinKeyLength)
    throw UserError(
        fmt::format("{} must have at least {} characters, which nobody can guess; make one by: openssl rand "
                    "-hex 16",
                    kKeyVariable, kMinKeyLength));
  return found->second;
}

Launch read_launch(const std::map<std::string, std::string>& environment) {
  LaunchVariables variables(environment);
  Launch launch;
  const LaunchClaim chosen = choose(variables);
  if (chosen.any()) {
    launch.launcher = chosen.launcher;
    launch.position = {*chosen.rank, *chosen.ranks, *chosen.local_rank, *chosen.local_ranks};
    launch.job = fit_for_a_file_name(chosen.job);
    check_position(launch.position, variables);
    find_master(launch, variables);
    launch.launcher_serves_store = chosen.launcher == "torchrun" && launch.master_address &&
                                   variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
    if (chosen.launcher == "torchrun" || chosen.launcher == kOwnLauncher)
      launch.restarts = {.done = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0),
                         .allowed = variables.number("TORCHELASTIC_MAX_RESTARTS").value_or(0)};
  } else {
    launch.notice = notice_of_unused_tasks(variables);
  }
  launch.key = key_in(environment);
  if (const auto found = environment.find("TMPDIR"); found != environment.end() && !found->second.empty())
    launch.temporary_folder = found->second;
  launch.variables = variables.read();
  return launch;
}

std::vector<std::string> launcher_variables(const std::map<std::string, std::string>& environment) {
  static constexpr std::array kNames{"RANK",       "WORLD_SIZE",       "LOCAL_RANK",  "LOCAL_WORLD_SIZE",
                                     "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",   "ROLE_WORLD_SIZE",
                                     "ROLE_NAME",  "MASTER_ADDR",      "MASTER_PORT", "TRAINOPT_LAUNCH",
                                     kKeyVariable};
  static constexpr std::array kBeginnings{"OMPI_",  "PMI_",          "PMIX_", "MPI_LOCAL",
                                          "SLURM_", "TORCHELASTIC_", "MV2_",  "HOROVOD_"};
  std::vector<std::string> found;
  for (const auto& [name, value] : environment)
    if (std::ranges::find(kNames, name) != kNames.end() ||
        std::ranges::any_of(kBeginnings, [&](const char* beginning) { return name.starts_with(beginning); }))
      found.push_back(name);
  return found;
}

std::optional<int64_t> parse_count(std::string_view text) {
  int64_t number = 0;
  if (text.empty() || text.size() > 18 || text.find_first_not_of("0123456789") != std::string_view::npos)
    return std::nullopt;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

std::optional<std::string> LaunchVariables::text(const std::string& name) {
  const auto found = environment_.find(name);
  if (found == environment_.end()) return std::nullopt;
  const std::string shown = name + "=" + found->second;
  if (std::find(read_.begin(), read_.end(), shown) == read_.end()) read_.push_back(shown);
  if (found->second.empty()) refuse(fmt::format("the launcher's {} is empty; give it a value or unset it", name));
  return found->second;
}

std::optional<int64_t> LaunchVariables::number(const std::string& name, int64_t minimum) {
  const auto value = text(name);
  if (!value) return std::nullopt;
  const auto number = parse_count(*value);
  if (!number || *number < minimum)
    refuse(fmt::format("the launcher's {} must be a whole number of at least {}", name, minimum));
  return number;
}

void LaunchVariables::refuse(const std::string& sentence) const {
  throw UserError(fmt::format("{}: {}", sentence, fmt::join(read_, " ")));
}

namespace {

// No cluster has more nodes. Limits memory use for a damaged list.
constexpr size_t kMaxNodes = 100000;

[[noreturn]] void refuse(const std::string& text) {
  throw UserError(
      fmt::format("this is not a valid Slurm list; set MASTER_ADDR and MASTER_PORT to do without it: {}", text));
}

/// Splits at commas outside brackets.
std::vector<std::string> split(const std::string& text, const std::string& list) {
  std::vector<std::string> parts(1);
  bool inside = false;
  for (const char c : text) {
    if (c == (inside ? '[' : ']')) refuse(list);
    if (c == '[' || c == ']') inside = c == '[';
    if (c == ',' && !inside)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  if (inside) refuse(list);
  for (const auto& part : parts)
    if (part.empty()) refuse(list);
  return parts;
}

/// "003-005" → 003 004 005: padded to the width of the first number.
void add_range(const std::string& range, const std::string& list, std::vector<std::string>& numbers) {
  const size_t dash = range.find('-');
  const std::string first = range.substr(0, dash);
  const auto from = parse_count(first),
             to = dash == std::string::npos ? from : parse_count(std::string_view(range).substr(dash + 1));
  if (!from || !to || *to < *from || static_cast<size_t>(*to - *from) >= kMaxNodes) refuse(list);
  for (int64_t number = *from; number <= *to; ++number) numbers.push_back(fmt::format("{:0{}}", number, first.size()));
}

/// "rack[0-1]node[1-2]-ib": combines the text before the first bracket, each number in the bracket, and each expansion
/// of the rest.
std::vector<std::string> expand_name(const std::string& name, const std::string& list) {
  const size_t open = name.find('[');
  if (open == std::string::npos) return {name};
  const size_t close = name.find(']', open);
  std::vector<std::string> numbers, names;
  for (const auto& range : split(name.substr(open + 1, close - open - 1), list)) add_range(range, list, numbers);
  const auto suffixes = expand_name(name.substr(close + 1), list);
  if (numbers.size() * suffixes.size() > kMaxNodes) refuse(list);
  for (const auto& number : numbers)
    for (const auto& rest : suffixes) names.push_back(name.substr(0, open) + number + rest);
  return names;
}

}  // namespace

std::vector<std::string> expand_node_list(const std::string& text) {
  std::vector<std::string> nodes;
  for (const auto& part : split(text, text)) {
    const auto names = expand_name(part, text);
    nodes.insert(nodes.end(), names.begin(), names.end());
    if (nodes.size() > kMaxNodes) refuse(text);
  }
  return nodes;
}

std::vector<int64_t> expand_task_counts(const std::string& text) {
  std::vector<int64_t> counts;
  for (const auto& part : split(text, text)) {
    const size_t open = part.find("(x");
    const bool repeated = open != std::string::npos;
    if (repeated && part.back() != ')') refuse(text);
    const auto count = parse_count(std::string_view(part).substr(0, open));
    const auto times = repeated ? parse_count(std::string_view(part).substr(open + 2, part.size() - open - 3))
                                : std::optional<int64_t>(1);
    if (!count || !times || counts.size() + static_cast<size_t>(*times) > kMaxNodes) refuse(text);
    counts.insert(counts.end(), static_cast<size_t>(*times), *count);
  }
  return counts;
}

}  // namespace trainopt
