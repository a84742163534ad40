// Other tools' names for options that cannot be aliases, because their section, shape or meaning differs. Used only by
// "did you mean". An option may also list such names itself, in describe(). Sources: Hugging Face, Lightning,
// DeepSpeed, Composer, timm, torchtitan, Megatron, nanoGPT, FFCV.
#pragma once

#include <array>
#include <string_view>

namespace trainopt {

struct KnownSpelling {
  std::string_view theirs;
  std::string_view ours;        ///< full path
  std::string_view value = {};  ///< if the shape differs: what to write after the path
};

inline constexpr auto kKnownSpellings = std::to_array<KnownSpelling>({
    // execution
    {"deterministic_mode", "deterministic"},
    {"manual_seed", "seed"},
    {"random_seed", "seed"},
    {"accelerator", "device"},
    {"intra_op_threads", "num_threads"},
    {"omp_num_threads", "num_threads"},
    // data
    {"j", "data.num_workers"},
    {"num_threads", "data.num_workers"},
    {"data_threads", "data.num_workers"},
    {"prefetch", "data.prefetch_factor"},
    {"batchsize", "data.batch_size"},
    {"mini_batch", "data.batch_size"},
    {"micro_batch", "data.batch_size"},
    {"device_train_microbatch_size", "data.batch_size"},
    {"optimizer_batch_size", "data.global_batch_size"},
    {"data_backend", "data.dataset"},
    {"in_memory", "data.cache", "memory"},
    {"data_dir", "data.path"},
    {"data_path", "data.path"},
    {"root", "data.path"},
    {"augmentations", "data.transforms"},
    // length of the run, clipping, loss
    {"max_duration", "train.max_time"},
    {"num_epochs", "train.epochs"},
    {"max_iterations", "train.max_steps"},
    {"optimizer_delay", "train.gradient_accumulation_steps"},
    {"clip_norm", "train.max_grad_norm"},
    {"smoothing", "train.label_smoothing"},
    {"label_smoothing_factor", "train.label_smoothing"},
    {"detect_anomaly", "debug.anomaly"},
    // averages of the weights
    {"ema", "average.name", "ema"},
    {"model_ema", "average.name", "ema"},
    {"ema_decay", "average.decay"},
    {"model_ema_decay", "average.decay"},
    {"swa", "average.name", "swa"},
    // optimizer and schedule
    {"optim", "optimizer.name"},
    {"opt", "optimizer.name"},
    {"beta1", "optimizer.betas", "[0.9, 0.999]"},
    {"beta2", "optimizer.betas", "[0.9, 0.999]"},
    {"adam_beta1", "optimizer.betas", "[0.9, 0.999]"},
    {"adam_beta2", "optimizer.betas", "[0.9, 0.999]"},
    {"adam_epsilon", "optimizer.eps"},
    {"epsilon", "optimizer.eps"},
    {"wd", "optimizer.weight_decay"},
    {"lr_scheduler", "scheduler.name"},
    {"lr_schedule_type", "scheduler.name"},
    {"lr_scheduler_type", "scheduler.name"},
    {"sched", "scheduler.name"},
    {"warmup_iters", "scheduler.warmup_steps"},
    {"lr_warmup_steps", "scheduler.warmup_steps"},
    {"lr_decay_iters", "scheduler.total_steps"},
    {"num_warm_iter", "bench.warmup_steps"},
    // model
    {"arch", "model.name"},
    {"pretrained", "model.weights"},
    {"nclass", "model.num_classes"},
    {"torch.export", "model.path"},
    {"torch.jit", "model.path"},
    {"torchscript", "model.path"},
    // several ranks
    {"strategy", "parallel.sharding_strategy"},
    {"ddp", "parallel.sharding_strategy", "none"},
    {"fsdp", "parallel.sharding_strategy", "zero3"},
    {"zero", "parallel.sharding_strategy", "zero2"},
    {"zero_stage", "parallel.sharding_strategy", "zero2"},
    {"zero_optimization", "parallel.sharding_strategy", "zero2"},
    {"data_parallel_shard_degree", "parallel.sharding_strategy", "zero3"},
    {"ddp_backend", "parallel.backend"},
    {"dist_backend", "parallel.backend"},
    {"reduce_bucket_size", "parallel.bucket_cap_mb"},
    {"ddp_timeout", "parallel.timeout"},
    {"sync_bn", "parallel.sync_batch_norm"},
    // logging, evaluation, checkpoints
    {"logging_steps", "logging.every_n_steps"},
    {"log_every_n_steps", "logging.every_n_steps"},
    {"log_interval", "logging.every_n_steps"},
    {"log_freq", "logging.every_n_steps"},
    {"steps_per_print", "logging.every_n_steps"},
    {"report_to", "logging.sinks"},
    {"progress_bar", "logging.progress"},
    {"enable_progress_bar", "logging.progress"},
    {"val_check_interval", "evaluation.every_n_steps"},
    {"eval_interval", "evaluation.every_n_steps"},
    {"eval_batch_size", "evaluation.batch_size"},
    {"autoresume", "checkpoint.resume", "auto"},
    {"log_dir", "output_dir"},
});

/// Options of other tools that do not exist here. The reason is shown instead of a misleading suggestion.
struct UnsupportedOption {
  std::string_view theirs, why;
};
inline constexpr auto kUnsupportedOptions = std::to_array<UnsupportedOption>({
    {"auto_find_batch_size", "the command trainopt find batch finds it; set data.batch_size"},
    {"scale_batch_size", "the command trainopt find batch finds it; set data.batch_size"},
    {"gradient_as_bucket_view", "always so: gradients are views of the buckets"},
    {"no_sync", "always so: only the last micro-batch of a step communicates"},
    {"static_graph", "always so: the models do not change between steps"},
    {"find_unused_parameters", "not needed: every step uses every parameter"},
    {"tensor_parallel",
     "there is no tensor parallelism; parallel.sharding_strategy and parallel.pipeline divide a model"},
    {"tensor_parallel_degree", "there is no tensor parallelism; parallel.sharding_strategy divides a model"},
    {"tensor_model_parallel_size", "there is no tensor parallelism; parallel.sharding_strategy divides a model"},
    {"cpu_offload", "nothing is moved to the CPU; parallel.sharding_strategy divides what a GPU holds"},
    {"offload_optimizer", "nothing is moved to the CPU; parallel.sharding_strategy divides the optimizer's state"},
    {"8bit_optimizer", "there are no 8-bit optimizers; parallel.sharding_strategy divides the optimizer's state"},
    {"adamw8bit", "there are no 8-bit optimizers; parallel.sharding_strategy divides the optimizer's state"},
    {"mixup", "batches are not mixed; augmentations are in data.transforms"},
    {"cutmix", "batches are not mixed; augmentations are in data.transforms"},
    {"drop_path", "there is no stochastic depth; model.dropout is the only random layer"},
    {"lora", "there are no adapters; all weights are trained"},
    {"freeze", "no weights are frozen; all are trained"},
    {"progressive_resizing", "images have one size throughout a run"},
    {"warmup_ratio", "warm-up is given in steps: scheduler.warmup_steps"},
    {"devices", "the number of ranks comes from the launcher: trainopt launch -n N"},
    {"num_nodes", "the number of ranks comes from the launcher"},
});

}  // namespace trainopt
