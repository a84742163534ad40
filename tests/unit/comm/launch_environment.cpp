#include "comm/launch/launch_environment.h"

#include "base/error.h"
#include "support/catch.h"

using namespace trainopt;
using Variables = std::map<std::string, std::string>;

namespace {

/// Merges two sets of variables: `more` overrides `base`, and the value "-" removes a variable.
Variables with(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) {
    base[name] = value;
    if (value == "-") base.erase(name);
  }
  return base;
}

std::string refusal(const Variables& variables) {
  try {
    const Launch launch = read_launch(variables);
    return fmt::format("not refused: '{}' rank {} of {}", launch.launcher, launch.position.rank, launch.position.ranks);
  } catch (const UserError& error) {
    CHECK(error.code() == ExitCode::recipe);
    return error.what();
  }
}

// Recorded from real launchers: torchrun 2.x --nproc-per-node 2, mpirun 4.1.4 -n 2, Intel's and MPICH's hydra -n 2.
const Variables kTorchrun{{"RANK", "1"},
                          {"LOCAL_RANK", "1"},
                          {"WORLD_SIZE", "2"},
                          {"LOCAL_WORLD_SIZE", "2"},
                          {"GROUP_RANK", "0"},
                          {"GROUP_WORLD_SIZE", "1"},
                          {"ROLE_RANK", "1"},
                          {"ROLE_WORLD_SIZE", "2"},
                          {"MASTER_ADDR", "localhost"},
                          {"MASTER_PORT", "34753"},
                          {"TORCHELASTIC_RUN_ID", "e9b09cda-3784"},
                          {"TORCHELASTIC_RESTART_COUNT", "0"},
                          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kOpenMpi{{"OMPI_COMM_WORLD_RANK", "1"},
                         {"OMPI_COMM_WORLD_SIZE", "2"},
                         {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                         {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                         {"OMPI_COMM_WORLD_NODE_RANK", "1"},
                         {"OMPI_UNIVERSE_SIZE", "2"},
                         {"OMPI_MCA_ess_base_jobid", "1470234625"},
                         {"PMIX_RANK", "1"},
                         {"PMIX_NAMESPACE", "1470234625"},
                         {"PMIX_ID", "1470234625.1"},
                         {"PMIX_HOSTNAME", "vm"}};
const Variables kHydra{
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"PMI_FD", "9"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
// srun -N 2 --ntasks-per-node=4 on node003 and node004: task 5, the second task of the second machine.
const Variables kSrun{{"SLURM_JOB_ID", "200505"},
                      {"SLURM_STEP_ID", "2"},
                      {"SLURM_PROCID", "5"},
                      {"SLURM_LOCALID", "1"},
                      {"SLURM_NODEID", "1"},
                      {"SLURM_NTASKS", "8"},
                      {"SLURM_NPROCS", "8"},
                      {"SLURM_STEP_NUM_TASKS", "8"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_NNODES", "2"},
                      {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                      {"SLURM_TASKS_PER_NODE", "4(x2)"},
                      {"SLURM_NTASKS_PER_NODE", "4"},
                      {"SLURM_STEP_NODELIST", "node[003-004]"},
                      {"SLURM_JOB_NODELIST", "node[001-004]"},
                      {"SLURM_JOB_NAME", "interactive"}};
const Variables kSrunOneMachine = with(kSrun, {{"SLURM_PROCID", "1"},
                                               {"SLURM_NODEID", "0"},
                                               {"SLURM_NTASKS", "4"},
                                               {"SLURM_STEP_NUM_TASKS", "4"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "4"},
                                               {"SLURM_STEP_NODELIST", "node003"}});
// An sbatch script: Slurm calls it task 0 of eight, but it belongs to no step.
const Variables kBatch{{"SLURM_JOB_ID", "200505"},
                       {"SLURM_PROCID", "0"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", "0"},
                       {"SLURM_NTASKS", "8"},
                       {"SLURM_NPROCS", "8"},
                       {"SLURM_NNODES", "2"},
                       {"SLURM_TASKS_PER_NODE", "4(x2)"},
                       {"SLURM_JOB_NODELIST", "node[003-004]"}};

}  // namespace

TEST_CASE("a process without a launcher is a single rank") {
  for (const Variables& variables :
       {Variables{}, Variables{{"WORLD_SIZE", "1"}}, Variables{{"MASTER_ADDR", "left.over"}, {"PATH", "/bin"}}}) {
    const Launch launch = read_launch(variables);
    CHECK(launch.position == RankPosition{});
    CHECK(launch.launcher.empty());
    CHECK_FALSE(launch.master_address);
    CHECK(launch.notice.empty());
  }
}

TEST_CASE("the variables of every launcher give rank, rendezvous and job") {
  struct Case {
    const char* what;
    Variables variables;
    const char* launcher;
    RankPosition position;
    const char* master;  // "address:port", or empty
    const char* job;
  };
  const std::vector<Case> cases{
      {"torchrun", kTorchrun, "torchrun", {1, 2, 1, 2}, "localhost:34753", "torchrun-e9b09cda-3784"},
      {"torchrun without an id",
       with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "none"}}),
       "torchrun",
       {1, 2, 1, 2},
       "localhost:34753",
       ""},
      {"torchrun with an id unsafe in file names",
       with(kTorchrun, {{"TORCHELASTIC_RUN_ID", "../a b"}}),
       "torchrun",
       {1, 2, 1, 2},
       "localhost:34753",
       "torchrun-.._a_b"},
      {"torchrun on two machines",
       with(kTorchrun, {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "node003"}}),
       "torchrun",
       {5, 8, 1, 4},
       "node003:34753",
       "torchrun-e9b09cda-3784"},
      {"by hand, one machine",
       {{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}},
       "torchrun",
       {0, 2, 0, 2},
       "",
       ""},
      {"by hand, one rank", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}, "torchrun", {}, "", ""},
      {"trainopt launch",
       with(kTorchrun, {{"TRAINOPT_LAUNCH", "1"}, {"TORCHELASTIC_RUN_ID", "-"}}),
       "trainopt launch",
       {1, 2, 1, 2},
       "localhost:34753",
       ""},
      {"Open MPI", kOpenMpi, "mpirun", {1, 2, 1, 2}, "", "mpirun-1470234625"},
      {"Open MPI 5",
       with(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-vm-311@1"}, {"OMPI_MCA_ess_base_jobid", "-"}}),
       "mpirun",
       {1, 2, 1, 2},
       "",
       "mpirun-prterun-vm-311_1"},
      {"Open MPI without PMIx",
       with(kOpenMpi, {{"PMIX_NAMESPACE", "-"}, {"PMIX_RANK", "-"}}),
       "mpirun",
       {1, 2, 1, 2},
       "",
       "mpirun-1470234625"},
      {"Open MPI on two machines",
       with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                       {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                       {"MASTER_ADDR", "a"},
                       {"MASTER_PORT", "1"}}),
       "mpirun",
       {1, 2, 0, 1},
       "a:1",
       "mpirun-1470234625"},
      {"MPICH", kHydra, "mpirun", {1, 2, 1, 2}, "", ""},
      {"Cray",
       {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"PMI_LOCAL_RANK", "3"}, {"PMI_LOCAL_SIZE", "4"}},
       "mpirun",
       {3, 4, 3, 4},
       "",
       ""},
      {"srun", kSrun, "srun", {5, 8, 1, 4}, "node003:20767", "srun-200505-2"},
      {"srun, one machine", kSrunOneMachine, "srun", {1, 4, 1, 4}, "", "srun-200505-2"},
      {"srun, uneven",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "6,2"}, {"SLURM_NTASKS_PER_NODE", "-"}, {"SLURM_PROCID", "7"}}),
       "srun",
       {7, 8, 1, 2},
       "node003:20767",
       "srun-200505-2"},
      {"srun without a list of tasks",
       with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "-"}, {"SLURM_TASKS_PER_NODE", "-"}}),
       "srun",
       {5, 8, 1, 4},
       "node003:20767",
       "srun-200505-2"},
      {"srun of a single task",
       with(kSrunOneMachine, {{"SLURM_PROCID", "0"},
                              {"SLURM_LOCALID", "0"},
                              {"SLURM_STEP_NUM_TASKS", "1"},
                              {"SLURM_STEP_TASKS_PER_NODE", "1"}}),
       "srun",
       {},
       "",
       "srun-200505-2"},
      {"srun with a master",
       with(kSrun, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "5000"}}),
       "srun",
       {5, 8, 1, 4},
       "10.0.0.1:5000",
       "srun-200505-2"},
      {"srun with MASTER_PORT only",
       with(kSrun, {{"MASTER_PORT", "5000"}}),
       "srun",
       {5, 8, 1, 4},
       "node003:5000",
       "srun-200505-2"},
      {"srun --mpi=pmix",
       with(kSrun, {{"PMIX_RANK", "5"}, {"PMIX_NAMESPACE", "slurm.pmix.200505.2"}}),
       "srun",
       {5, 8, 1, 4},
       "node003:20767",
       "srun-200505-2"},
      {"srun --mpi=pmi2",
       with(kSrun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "8"}}),
       "srun",
       {5, 8, 1, 4},
       "node003:20767",
       "srun-200505-2"},
      {"a script under srun",
       with(kSrun, {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}}),
       "srun",
       {5, 8, 1, 4},
       "node003:20767",
       "srun-200505-2"},
      {"a script under mpirun",
       with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
       "mpirun",
       {1, 2, 1, 2},
       "",
       "mpirun-1470234625"},
      {"one torchrun per machine under srun",
       with(with(kSrun, kTorchrun), {{"SLURM_PROCID", "1"},
                                     {"SLURM_LOCALID", "0"},
                                     {"SLURM_STEP_NUM_TASKS", "2"},
                                     {"WORLD_SIZE", "8"},
                                     {"RANK", "5"},
                                     {"LOCAL_WORLD_SIZE", "4"},
                                     {"PMIX_RANK", "1"}}),
       "torchrun",
       {5, 8, 1, 4},
       "localhost:34753",
       "torchrun-e9b09cda-3784"},
      {"trainopt launch in a task of srun",
       with(with(kSrunOneMachine, kTorchrun), {{"TRAINOPT_LAUNCH", "1"},
                                               {"TORCHELASTIC_RUN_ID", "-"},
                                               {"SLURM_PROCID", "0"},
                                               {"SLURM_LOCALID", "0"},
                                               {"SLURM_STEP_NUM_TASKS", "1"}}),
       "trainopt launch",
       {1, 2, 1, 2},
       "localhost:34753",
       ""},
      {"trainopt launch in mpirun -n 1",
       with(with(kOpenMpi, kTorchrun), {{"TRAINOPT_LAUNCH", "1"},
                                        {"TORCHELASTIC_RUN_ID", "-"},
                                        {"OMPI_COMM_WORLD_RANK", "0"},
                                        {"PMIX_RANK", "0"},
                                        {"OMPI_COMM_WORLD_SIZE", "1"},
                                        {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}}),
       "trainopt launch",
       {1, 2, 1, 2},
       "localhost:34753",
       ""},
      {"mpirun in a batch script", with(kBatch, kOpenMpi), "mpirun", {1, 2, 1, 2}, "", "mpirun-1470234625"},
      {"mpirun on another machine, where srun started its daemon",
       with(with(kSrun, kOpenMpi), {{"SLURM_PROCID", "0"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_STEP_NUM_TASKS", "1"},
                                    {"SLURM_STEP_TASKS_PER_NODE", "1"}}),
       "mpirun",
       {1, 2, 1, 2},
       "",
       "mpirun-1470234625"},
      {"hydra in an allocation",
       with(with(kSrun, kHydra), {{"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
       "mpirun",
       {1, 2, 1, 2},
       "",
       ""},
  };
  for (const auto& [what, variables, launcher, position, master, job] : cases) {
    INFO(what);
    Launch launch;
    try {
      launch = read_launch(variables);
    } catch (const UserError& error) {
      FAIL_CHECK(error.what());
      continue;
    }
    CHECK(launch.launcher == launcher);
    CHECK(fmt::format("{} {} {} {}", launch.position.rank, launch.position.ranks, launch.position.local_rank,
                      launch.position.local_ranks) ==
          fmt::format("{} {} {} {}", position.rank, position.ranks, position.local_rank, position.local_ranks));
    CHECK((launch.master_address ? fmt::format("{}:{}", *launch.master_address, *launch.master_port) : "") == master);
    CHECK(launch.job == job);
    CHECK(launch.notice.empty());
  }
}

TEST_CASE("a batch script and the shell of an allocation are one rank, with a notice if Slurm allots tasks") {
  const Variables shell =
      with(kBatch, {{"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_JOB_NAME", "interactive"}});
  for (const Variables& variables : {kBatch, shell}) {
    const Launch launch = read_launch(variables);
    CHECK(launch.position == RankPosition{});
    CHECK(launch.launcher.empty());
    CHECK_THAT(launch.notice, ContainsSubstring("8 tasks") && ContainsSubstring("srun"));
  }
  CHECK(read_launch(with(kBatch, {{"SLURM_NTASKS", "1"}})).notice.empty());
  CHECK(read_launch(with(kBatch, {{"SLURM_NTASKS", "-"}})).notice.empty());
}

TEST_CASE("only torchrun's agent serves the store") {
  CHECK(read_launch(kTorchrun).launcher_serves_store);
  CHECK_FALSE(read_launch(with(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}})).launcher_serves_store);
  CHECK_FALSE(read_launch(with(kTorchrun, {{"TRAINOPT_LAUNCH", "1"}})).launcher_serves_store);
  CHECK_FALSE(read_launch(kOpenMpi).launcher_serves_store);
}

TEST_CASE("torchrun and trainopt launch say how often they have started the ranks again") {
  const Variables restarted{{"TORCHELASTIC_RESTART_COUNT", "2"}, {"TORCHELASTIC_MAX_RESTARTS", "3"}};
  for (const Variables& variables : {kTorchrun, with(kTorchrun, {{"TRAINOPT_LAUNCH", "1"}})}) {
    CHECK(read_launch(variables).restarts.done == 0);
    const Restarts restarts = read_launch(with(variables, restarted)).restarts;
    CHECK((restarts.done == 2 && restarts.allowed == 3));
  }
  CHECK(read_launch(with(kOpenMpi, restarted)).restarts.done == 0);
}

TEST_CASE("incomplete and impossible variables are refused, and the message shows them") {
  struct Case {
    Variables variables;
    const char *says, *shows;
  };
  const std::vector<Case> cases{
      {{{"RANK", "0"}}, "RANK, WORLD_SIZE and LOCAL_RANK", "RANK=0"},
      {{{"WORLD_SIZE", "2"}}, "some are missing", "WORLD_SIZE=2"},
      {{{"LOCAL_RANK", "0"}}, "some are missing", "LOCAL_RANK=0"},
      {{{"LOCAL_WORLD_SIZE", "1"}}, "some are missing", "LOCAL_WORLD_SIZE=1"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "some are missing", "RANK=0 WORLD_SIZE=2"},
      {with(kTorchrun, {{"RANK", "2"}}), "less than the number of ranks", "RANK=2 WORLD_SIZE=2"},
      {with(kTorchrun, {{"RANK", "-1"}}), "the launcher's RANK must be a whole number of at least 0", "RANK=-1"},
      {with(kTorchrun, {{"RANK", "one"}}), "whole number", "RANK=one"},
      {with(kTorchrun, {{"RANK", "1.0"}}), "whole number", "RANK=1.0"},
      {with(kTorchrun, {{"RANK", " 1"}}), "whole number", "RANK= 1"},
      {with(kTorchrun, {{"RANK", "0x1"}}), "whole number", "RANK=0x1"},
      {with(kTorchrun, {{"RANK", "99999999999999999999"}}), "whole number", "RANK=9999"},
      {with(kTorchrun, {{"RANK", ""}}), "is empty", "RANK="},
      {with(kTorchrun, {{"WORLD_SIZE", "0"}}), "at least 1", "WORLD_SIZE=0"},
      {{{"WORLD_SIZE", ""}}, "is empty", "WORLD_SIZE="},
      {with(kTorchrun, {{"LOCAL_RANK", "2"}}), "on this machine must be less", "LOCAL_RANK=2"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "3"}}), "more ranks than the job", "LOCAL_WORLD_SIZE=3"},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "-"}, {"LOCAL_RANK", "0"}}), "set LOCAL_WORLD_SIZE", "LOCAL_RANK=0"},
      {with(kTorchrun, {{"MASTER_PORT", "0"}}), "at least 1", "MASTER_PORT=0"},
      {with(kTorchrun, {{"MASTER_PORT", "65536"}}), "from 1 to 65535", "MASTER_PORT=65536"},
      {with(kTorchrun, {{"MASTER_PORT", "http"}}), "whole number", "MASTER_PORT=http"},
      {with(kTorchrun, {{"MASTER_PORT", "-"}}), "go together", "MASTER_ADDR=localhost"},
      {with(kTorchrun, {{"MASTER_ADDR", "-"}}), "go together", "MASTER_PORT=34753"},
      {with(kTorchrun, {{"MASTER_ADDR", ""}}), "is empty", "MASTER_ADDR="},
      {with(kTorchrun, {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "-"}, {"MASTER_PORT", "-"}}),
       "set MASTER_ADDR and MASTER_PORT", "LOCAL_WORLD_SIZE=1"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "-"}}), "some are missing", "OMPI_COMM_WORLD_RANK=1"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "-"}}), "some are missing", "OMPI_COMM_WORLD_LOCAL_RANK=1"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "two"}}), "whole number", "OMPI_COMM_WORLD_SIZE=two"},
      {with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}}),
       "-x MASTER_ADDR=HOST -x MASTER_PORT=PORT", "OMPI_COMM_WORLD_LOCAL_SIZE=1"},
      {with(kHydra, {{"PMI_SIZE", "-"}}), "some are missing", "PMI_RANK=1"},
      {with(kHydra, {{"MPI_LOCALRANKID", "-"}}), "some are missing", "PMI_RANK=1"},
      {{{"PMIX_RANK", "1"}}, "how many ranks", "PMIX_RANK=1"},
      {with(kSrun, {{"SLURM_LOCALID", "-"}}), "some are missing", "SLURM_PROCID=5"},
      {with(kSrun, {{"SLURM_STEP_ID", "-"}, {"SLURM_STEP_NUM_TASKS", "-"}}), "start the tasks with srun",
       "SLURM_PROCID=5"},
      {with(kSrun, {{"SLURM_STEP_NODELIST", "node[3-"}}), "not a valid Slurm list", "node[3-"},
      {with(kSrun, {{"SLURM_STEP_NODELIST", "-"}, {"SLURM_JOB_NODELIST", "-"}}), "does not list the machines",
       "SLURM_PROCID=5"},
      {with(kSrun, {{"SLURM_STEP_TASKS_PER_NODE", "-"}, {"SLURM_TASKS_PER_NODE", "-"}, {"SLURM_NTASKS_PER_NODE", "-"}}),
       "how many tasks this machine runs", "SLURM_STEP_NUM_NODES=2"},
      {with(kSrun, {{"SLURM_JOB_ID", "-"}}), "MASTER_PORT", "SLURM_PROCID=5"},
  };
  for (const auto& [variables, says, shows] : cases) {
    INFO(shows);
    CHECK_THAT(refusal(variables), ContainsSubstring(says) && ContainsSubstring(shows));
  }
}

TEST_CASE("launchers that contradict each other are refused, and the message shows the variables of both") {
  struct Case {
    Variables variables;
    const char *first, *second;
  };
  const Variables task = with(kSrunOneMachine, {{"SLURM_LOCALID", "0"}});
  const std::vector<Case> cases{
      {with(with(kTorchrun, kOpenMpi), {{"RANK", "0"}}), "RANK=0", "OMPI_COMM_WORLD_RANK=1"},
      {with(with(kTorchrun, kOpenMpi), {{"WORLD_SIZE", "4"}}), "WORLD_SIZE=4", "OMPI_COMM_WORLD_SIZE=2"},
      {with(with(kTorchrun, kOpenMpi), {{"LOCAL_RANK", "0"}}), "LOCAL_RANK=0", "OMPI_COMM_WORLD_LOCAL_RANK=1"},
      {with(kOpenMpi, {{"WORLD_SIZE", "1"}}), "WORLD_SIZE=1", "OMPI_COMM_WORLD_SIZE=2"},
      {with(with(kTorchrun, kHydra), {{"RANK", "0"}}), "RANK=0", "PMI_RANK=1"},
      {with(kOpenMpi, {{"PMIX_RANK", "0"}}), "OMPI_COMM_WORLD_RANK=1", "PMIX_RANK=0"},
      {{{"RANK", "0"}, {"LOCAL_RANK", "0"}, {"WORLD_SIZE", "2"}, {"PMIX_RANK", "1"}}, "RANK=0", "PMIX_RANK=1"},
      {with(kSrun, {{"RANK", "0"}, {"WORLD_SIZE", "8"}}), "RANK=0", "SLURM_PROCID=5"},
      {with(kSrun, {{"WORLD_SIZE", "2"}}), "WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=8"},
      {with(kSrun, {{"PMIX_RANK", "0"}}), "PMIX_RANK=0", "SLURM_PROCID=5"},
      {with(kSrun, {{"PMI_RANK", "5"}, {"PMI_SIZE", "4"}}), "PMI_SIZE=4", "SLURM_STEP_NUM_TASKS=8"},
      // srun starts four tasks that each claim to be one of two ranks, so they are neither daemons nor those ranks.
      {with(task, kOpenMpi), "OMPI_COMM_WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=4"},
      {with(task, kTorchrun), "WORLD_SIZE=2", "SLURM_STEP_NUM_TASKS=4"},
  };
  for (const auto& [variables, first, second] : cases) {
    INFO(first << " " << second);
    CHECK_THAT(refusal(variables), ContainsSubstring(first) && ContainsSubstring(second));
  }
}

TEST_CASE("ports under srun differ between neighbouring jobs and steps and stay below the ephemeral range") {
  const auto port = [](int64_t job, int64_t step) {
    return *read_launch(with(kSrun, {{"SLURM_JOB_ID", std::to_string(job)}, {"SLURM_STEP_ID", std::to_string(step)}}))
                .master_port;
  };
  for (const int64_t job : {int64_t{0}, int64_t{1}, int64_t{200505}, int64_t{4294967000}, int64_t{999999999999999999}})
    for (const int64_t step : {0, 1, 2, 4000000}) {
      CHECK(port(job, step) >= 15000);
      CHECK(port(job, step) < 28000);
    }
  CHECK(port(7, 0) != port(7, 1));
  CHECK(port(7, 0) != port(8, 0));
  CHECK(port(7, 1) != port(8, 0));
}

TEST_CASE("without a launcher's variables a process is no launcher's") {
  for (const Variables& launched : {kTorchrun, kSrun, kSrunOneMachine, kBatch}) {
    Variables rest = with(launched, {{"PATH", "/bin"}, {"RANKED", "1"}});
    for (const std::string& name : launcher_variables(rest)) rest.erase(name);
    CHECK(read_launch(rest).launcher.empty());
    CHECK(rest == Variables{{"PATH", "/bin"}, {"RANKED", "1"}});
  }
}

TEST_CASE("launchers whose variables are not read are refused, unless another one started the ranks") {
  const Variables mvapich{{"MV2_COMM_WORLD_RANK", "1"}, {"MV2_COMM_WORLD_SIZE", "2"}},
      horovod{{"HOROVOD_RANK", "1"}, {"HOROVOD_SIZE", "2"}};
  CHECK_THAT(refusal(mvapich), ContainsSubstring("MVAPICH2's mpirun_rsh are not read") &&
                                   ContainsSubstring("MV2_COMM_WORLD_SIZE=2 MV2_COMM_WORLD_RANK=1"));
  CHECK_THAT(refusal(horovod), ContainsSubstring("horovodrun are not read") && ContainsSubstring("HOROVOD_SIZE=2"));
  CHECK(read_launch(with(kOpenMpi, horovod)).launcher == "mpirun");
  CHECK(read_launch({{"HOROVOD_RANK", "0"}, {"HOROVOD_SIZE", "1"}}).position.ranks == 1);
}

TEST_CASE("the brackets of an IPv6 address are left out") {
  const auto address = [](const char* written) {
    return read_launch(with(kTorchrun, {{"MASTER_ADDR", written}})).master_address;
  };
  CHECK(address("[::1]") == "::1");
  CHECK(address("::1") == "::1");
  CHECK(address("[]") == "[]");
}
