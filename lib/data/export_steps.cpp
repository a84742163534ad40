#include "base/error.h"
#include "base/files/safetensors.h"
#include "data/loader_bench.h"
#include "data/token_counts.h"
#include "device/tensor.h"

#include <ATen/ops/constant_pad_nd.h>

#include <algorithm>

namespace trainopt {
namespace {

/// Micro-batches of documents differ in width; the narrower ones are filled up with `value`.
at::Tensor concatenated(std::vector<at::Tensor> parts, int64_t value) {
  int64_t width = 0;
  for (const auto& part : parts) width = std::max(width, part.size(-1));
  if (parts.front().dim() == 2)
    for (auto& part : parts) part = at::constant_pad_nd(part, {0, width - part.size(1)}, value);
  return at::cat(parts);
}

}  // namespace

void export_steps(BatchSource& batches, int64_t steps, const std::filesystem::path& path) {
  TRAINOPT_CHECK(steps >= 1);
  const at::NoGradGuard no_grad;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (int64_t step = 1; step <= steps; ++step) {
    std::vector<at::Tensor> input, target, sample_id;
    for (bool last = false; !last;) {
      const Batch batch = batches.next();
      // Copied, because on the CPU the batch is the loader's memory.
      const auto type = batch.step_tokens > 0 ? at::kLong : at::kFloat;
      input.push_back(batch.input.to(at::kCPU, type, /*non_blocking=*/false, /*copy=*/true).contiguous());
      target.push_back(batch.target.to(at::kCPU, at::kLong, false, true));
      sample_id.push_back(at::tensor(batch.sample_ids, at::kLong));
      last = batch.is_last;
    }
    const std::string name = fmt::format("step-{:08}", step);
    tensors.emplace_back(name + ".input", concatenated(std::move(input), 0));
    tensors.emplace_back(name + ".target", concatenated(std::move(target), kNoTarget));
    tensors.emplace_back(name + ".sample_id", at::cat(sample_id));
  }
  std::vector<SafetensorsEntry> entries;
  for (const auto& [name, tensor] : tensors)
    entries.push_back({.name = name,
                       .dtype = tensor.scalar_type() == at::kFloat ? "F32" : "I64",
                       .shape = tensor.sizes().vec(),
                       .data = tensor.const_data_ptr(),
                       .bytes = tensor.nbytes()});
  write_safetensors(path, entries);
}

}  // namespace trainopt
