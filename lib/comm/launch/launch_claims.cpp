#include "comm/launch/launch_claims.h"

#include "base/error.h"
#include "comm/launch/launch_environment.h"

namespace trainopt {
namespace {

// Slurm gives pseudo-steps (batch script, interactive shell, …) numbers from here up.
constexpr int64_t kFirstSpecialStep = 0xfffffff0;

/// Open MPI and MPICH set either all of their variables or none.
void require_complete(const LaunchVariables& variables, const LaunchClaim& claim, const char* names) {
  if (!claim.rank || !claim.ranks || !claim.local_rank || !claim.local_ranks)
    variables.refuse(fmt::format(
        "mpirun sets {} together, but some are missing; start the ranks with mpirun, or unset these variables", names));
}

LaunchClaim read_mpich_claim(LaunchVariables& v) {
  LaunchClaim claim{.launcher = "mpirun", .rank = v.number("PMI_RANK"), .ranks = v.number("PMI_SIZE", 1)};
  const bool cray = v.has("PMI_LOCAL_RANK");
  claim.local_rank = v.number(cray ? "PMI_LOCAL_RANK" : "MPI_LOCALRANKID");
  claim.local_ranks = v.number(cray ? "PMI_LOCAL_SIZE" : "MPI_LOCALNRANKS", 1);
  require_complete(v, claim, "PMI_RANK, PMI_SIZE, MPI_LOCALRANKID and MPI_LOCALNRANKS");
  return claim;
}

}  // namespace

LaunchClaim read_torch_claim(LaunchVariables& v) {
  LaunchClaim claim{.launcher = v.has("TRAINOPT_LAUNCH") ? kOwnLauncher : "torchrun",
                    .rank = v.number("RANK"),
                    .ranks = v.number("WORLD_SIZE", 1),
                    .local_rank = v.number("LOCAL_RANK"),
                    .local_ranks = v.number("LOCAL_WORLD_SIZE", 1)};
  const auto id = v.text("TORCHELASTIC_RUN_ID");
  if (id && *id != "none")
    claim.job = "torchrun-" + *id;  // "none" is torchrun's default, shared by all jobs without an id
  return claim;
}

LaunchClaim read_mpi_claim(LaunchVariables& v, bool in_step) {
  LaunchClaim claim;
  if (v.has("OMPI_COMM_WORLD_RANK") || v.has("OMPI_COMM_WORLD_SIZE") || v.has("OMPI_COMM_WORLD_LOCAL_RANK")) {
    claim = {.launcher = "mpirun",
             .rank = v.number("OMPI_COMM_WORLD_RANK"),
             .ranks = v.number("OMPI_COMM_WORLD_SIZE", 1),
             .local_rank = v.number("OMPI_COMM_WORLD_LOCAL_RANK"),
             .local_ranks = v.number("OMPI_COMM_WORLD_LOCAL_SIZE", 1)};
    require_complete(
        v, claim,
        "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE, OMPI_COMM_WORLD_LOCAL_RANK and OMPI_COMM_WORLD_LOCAL_SIZE");
  } else if (v.has("MPI_LOCALRANKID") || (!in_step && (v.has("PMI_RANK") || v.has("PMI_SIZE")))) {
    claim = read_mpich_claim(v);
  }
  auto job = v.text("PMIX_NAMESPACE");
  if (!job) job = v.text("OMPI_MCA_ess_base_jobid");
  if (job) claim.job = "mpirun-" + *job;
  return claim;
}

LaunchClaim read_slurm_claim(LaunchVariables& v) {
  if (!v.has("SLURM_PROCID")) return {};
  const auto step = v.number("SLURM_STEP_ID");
  const auto tasks = v.number("SLURM_STEP_NUM_TASKS", 1);
  LaunchClaim claim{
      .launcher = "srun", .rank = v.number("SLURM_PROCID"), .ranks = tasks ? tasks : v.number("SLURM_NTASKS", 1)};
  if (step ? *step >= kFirstSpecialStep : !tasks) {
    if (*claim.rank != 0)
      v.refuse("SLURM_PROCID belongs to a task, but SLURM_STEP_ID does not; start the tasks with srun");
    return {};
  }
  claim.local_rank = v.number("SLURM_LOCALID");
  if (!claim.ranks || !claim.local_rank)
    v.refuse(
        "srun sets SLURM_PROCID, SLURM_STEP_NUM_TASKS and SLURM_LOCALID together, but some are missing; start the "
        "ranks "
        "with srun, or unset these variables");
  claim.job = fmt::format("srun-{}-{}", v.text("SLURM_JOB_ID").value_or("0"), step.value_or(0));
  return claim;
}

int64_t slurm_local_ranks(LaunchVariables& v, int64_t ranks) {
  auto counts = v.text("SLURM_STEP_TASKS_PER_NODE");
  if (!counts) counts = v.text("SLURM_TASKS_PER_NODE");
  if (counts) {
    const auto all = expand_task_counts(*counts);
    const auto node = v.number("SLURM_NODEID").value_or(all.size() == 1 ? 0 : -1);
    if (node >= 0 && node < static_cast<int64_t>(all.size())) return all[static_cast<size_t>(node)];
  }
  if (const auto each = v.number("SLURM_NTASKS_PER_NODE", 1)) return *each;
  auto nodes = v.number("SLURM_STEP_NUM_NODES", 1);
  if (!nodes) nodes = v.number("SLURM_NNODES", 1);
  if (ranks != 1 && nodes.value_or(0) != 1)
    v.refuse(
        "Slurm does not say how many tasks this machine runs; set SLURM_STEP_TASKS_PER_NODE and SLURM_NODEID as srun "
        "does");
  return ranks;
}

std::string slurm_first_node(LaunchVariables& v) {
  auto nodes = v.text("SLURM_STEP_NODELIST");
  if (!nodes) nodes = v.text("SLURM_JOB_NODELIST");
  if (!nodes) v.refuse("Slurm does not list the machines; set MASTER_ADDR and MASTER_PORT");
  return expand_node_list(*nodes).front();
}

int slurm_port(LaunchVariables& v) {
  const auto job = v.number("SLURM_JOB_ID"), step = v.number("SLURM_STEP_ID");
  if (!job) v.refuse("SLURM_JOB_ID is not set, so no port can be derived from it; set MASTER_PORT");
  return static_cast<int>(15000 + (*job % 13000 + 131 * (step.value_or(0) % 13000)) %
                                      13000);  // 131: jobs that run at the same time rarely have ids 131 apart
}

}  // namespace trainopt
