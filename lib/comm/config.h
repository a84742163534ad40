// The `parallel` section of a recipe.
#pragma once

#include "config/describe.h"

#include <cstdint>

namespace trainopt {

enum class ShardingStrategy { none, zero1, zero2, zero3, hybrid };
template <>
struct Choices<ShardingStrategy> {
  static constexpr std::array all = {Choice<ShardingStrategy>{"none", ShardingStrategy::none},
                                     Choice<ShardingStrategy>{"zero1", ShardingStrategy::zero1},
                                     Choice<ShardingStrategy>{"zero2", ShardingStrategy::zero2},
                                     Choice<ShardingStrategy>{"zero3", ShardingStrategy::zero3},
                                     Choice<ShardingStrategy>{"hybrid", ShardingStrategy::hybrid},
                                     Choice<ShardingStrategy>{"NO_SHARD", ShardingStrategy::none},
                                     Choice<ShardingStrategy>{"SHARD_GRAD_OP", ShardingStrategy::zero2},
                                     Choice<ShardingStrategy>{"FULL_SHARD", ShardingStrategy::zero3},
                                     Choice<ShardingStrategy>{"HYBRID_SHARD", ShardingStrategy::hybrid}};
};

enum class CommBackend { automatic, nccl, gloo };
template <>
struct Choices<CommBackend> {
  static constexpr std::array all = {Choice<CommBackend>{"auto", CommBackend::automatic},
                                     Choice<CommBackend>{"nccl", CommBackend::nccl},
                                     Choice<CommBackend>{"gloo", CommBackend::gloo}};
};

enum class WrapPolicy { block, size };
template <>
struct Choices<WrapPolicy> {
  static constexpr std::array all = {Choice<WrapPolicy>{"block", WrapPolicy::block},
                                     Choice<WrapPolicy>{"size", WrapPolicy::size}};
};

enum class WireType { float32, bfloat16 };
template <>
struct Choices<WireType> {
  static constexpr std::array all = {Choice<WireType>{"float32", WireType::float32},
                                     Choice<WireType>{"bfloat16", WireType::bfloat16}};
};

struct WrapConfig {
  WrapPolicy policy = WrapPolicy::block;
  int64_t min_parameters = 1000000;
  bool operator==(const WrapConfig&) const = default;
};
template <class V>
void describe(V& v, WrapConfig& c) {
  v.field("policy", c.policy, "Unit that ZeRO gathers at once: one model block, or consecutive blocks up to a size.");
  v.field("min_parameters", c.min_parameters, "With policy size: minimum number of parameters gathered at once.",
          in_range(1, 1e12));
}

enum class PipelineSchedule { gpipe, one_forward_one_backward };
template <>
struct Choices<PipelineSchedule> {
  static constexpr std::array all = {Choice<PipelineSchedule>{"gpipe", PipelineSchedule::gpipe},
                                     Choice<PipelineSchedule>{"1f1b", PipelineSchedule::one_forward_one_backward}};
};

struct PipelineConfig {
  int64_t stages = 1, micro_batches = 1;
  PipelineSchedule schedule = PipelineSchedule::one_forward_one_backward;
  bool operator==(const PipelineConfig&) const = default;
};
template <class V>
void describe(V& v, PipelineConfig& c) {
  v.field("stages", c.stages, "Parts of the model, each on its own rank; 1: no pipeline.", in_range(1, 1024),
          alias("pipeline_parallel_size", "pipeline_model_parallel_size", "pipeline_parallel_degree"));
  v.field("micro_batches", c.micro_batches,
          "Pieces of a batch that follow each other through the stages; 1: one stage works at a time.",
          in_range(1, 65536), alias("num_microbatches", "num_micro_batches", "pipeline_parallel_microbatches"));
  v.field(
      "schedule", c.schedule,
      "gpipe: all forwards, then all backwards. 1f1b: backward as early as possible, so that activations of at most "
      "as many pieces as stages are kept.",
      any(), alias("pipeline_parallel_schedule"));
}

struct AsyncUpdatesConfig {
  int64_t staleness = 0;
  bool operator==(const AsyncUpdatesConfig&) const = default;
};
template <class V>
void describe(V& v, AsyncUpdatesConfig& c) {
  v.field("staleness", c.staleness, "Steps by which the applied gradients lag behind the weights.", in_range(0, 1));
}

enum class NcclDebug { version, warn, info, trace };
template <>
struct Choices<NcclDebug> {
  static constexpr std::array all = {
      Choice<NcclDebug>{"VERSION", NcclDebug::version}, Choice<NcclDebug>{"WARN", NcclDebug::warn},
      Choice<NcclDebug>{"INFO", NcclDebug::info}, Choice<NcclDebug>{"TRACE", NcclDebug::trace}};
};

struct NcclConfig {
  std::optional<std::string> algo, proto, socket_ifname;
  std::optional<int64_t> buffer_size_mb, threads, min_ctas, max_ctas;
  std::optional<NcclDebug> debug;
  bool operator==(const NcclConfig&) const = default;
};
template <class V>
void describe(V& v, NcclConfig& c) {
  v.field("algo", c.algo, "NCCL_ALGO, such as Ring, \"Ring,Tree\" or ^NVLS (all but NVLS); null: NCCL's choice.");
  v.field("proto", c.proto, "NCCL_PROTO, such as Simple, \"LL,LL128\" or ^LL; null: NCCL's choice.");
  v.field("buffer_size_mb", c.buffer_size_mb, "NCCL_BUFFSIZE in MiB; null: NCCL's choice.", in_range(1, 1024));
  v.field("threads", c.threads, "NCCL_NTHREADS, per thread block, a multiple of 32; null: NCCL's choice.",
          in_range(64, 512));
  v.field("min_ctas", c.min_ctas, "NCCL_MIN_CTAS, minimum number of thread blocks per collective.", in_range(1, 64));
  v.field("max_ctas", c.max_ctas, "NCCL_MAX_CTAS, maximum number of thread blocks per collective.", in_range(1, 64));
  v.field("socket_ifname", c.socket_ifname,
          "NCCL_SOCKET_IFNAME, prefixes of network interfaces such as eth, =eth0 or ^docker; null: NCCL's choice.");
  v.field("debug", c.debug, "NCCL_DEBUG, what NCCL prints; null: nothing.");
}

struct ParallelConfig {
  ShardingStrategy sharding_strategy = ShardingStrategy::none;
  CommBackend backend = CommBackend::automatic;
  WrapConfig wrap;
  double bucket_cap_mb = 25;
  bool overlap_comm = true;
  std::optional<WireType> gradient_dtype;
  bool sync_batch_norm = false;
  PipelineConfig pipeline;
  AsyncUpdatesConfig async_updates;
  int64_t check_replicas_every = 0;
  Duration timeout{600};
  NcclConfig nccl;
};
template <class V>
void describe(V& v, ParallelConfig& c) {
  v.field("sharding_strategy", c.sharding_strategy,
          "What is sharded: nothing (none, DDP), optimizer state (zero1), also gradients (zero2), also parameters "
          "(zero3); zero3 inside each machine, with copies on the others (hybrid).");
  v.field("backend", c.backend, "auto: nccl on GPUs, gloo on CPUs.");
  v.section("wrap", c.wrap, "What ZeRO gathers at once.");
  v.field("bucket_cap_mb", c.bucket_cap_mb, "Size of a gradient bucket, in MiB.", in_range(0.001, 65536),
          alias("ddp_bucket_cap_mb"));
  v.field("overlap_comm", c.overlap_comm, "Overlap gradient exchange with backward.");
  v.field("gradient_dtype", c.gradient_dtype,
          "Type to which gradients are converted for the exchange; null: unchanged.");
  v.field("sync_batch_norm", c.sync_batch_norm, "Compute batch-norm statistics over all ranks.", any(),
          alias("sync_batchnorm"));
  v.section("pipeline", c.pipeline,
            "The model in stages, through which micro-batches pass; replicas of it share the data.");
  v.section("async_updates", c.async_updates, "Updates with gradients of an earlier step.");
  v.field("check_replicas_every", c.check_replicas_every,
          "Steps between comparisons of the weights over the ranks, which find silent data corruption; 0: none.",
          in_range(0, 1e15));
  v.field("timeout", c.timeout, "How long a rank waits for the others.", above(0));
  v.section("nccl", c.nccl, "NCCL settings.");
}

// A process's rank in its job and on its machine.

struct RankPosition {
  int64_t rank = 0, ranks = 1;              ///< in the job
  int64_t local_rank = 0, local_ranks = 1;  ///< on this machine

  bool is_first() const { return rank == 0; }
  bool one_machine() const { return local_ranks == ranks; }
  bool operator==(const RankPosition&) const = default;
};

}  // namespace trainopt
