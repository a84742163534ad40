#include "data/device_dataset.h"

#include "base/log.h"
#include "base/counted.h"
#include "base/error.h"
#include "base/units.h"
#include "device/memory.h"
#include "device/tensor.h"

#include <limits>

namespace trainopt {

int64_t resident_bytes(ImageSize size, int64_t samples) {
  int64_t bytes = 0;
  return __builtin_mul_overflow(samples, size.height * size.width * 3 + static_cast<int64_t>(sizeof(int64_t)), &bytes)
             ? std::numeric_limits<int64_t>::max()
             : bytes;
}

std::optional<std::string> why_too_large(ImageSize size, int64_t samples, int64_t available, const char* limit_name) {
  const int64_t needed = resident_bytes(size, samples);
  if (needed <= available) return std::nullopt;
  return fmt::format(
      "data.cache: device does not fit; remove it or add a resize to smaller images: {} of {}×{}×3 are {}, {} is {}",
      counted(samples, "sample"), size.height, size.width, human_bytes(static_cast<double>(needed)), limit_name,
      human_bytes(static_cast<double>(available)));
}

void DeviceDataset::load(Loader& loader, c10::Device device) {
  const auto begin = Clock::now();
  const ImageSize size = loader.format().size;
  const int64_t samples = loader.samples().dataset().size();
  if (const auto free = free_memory_bytes(device))
    if (const auto reason = why_too_large(size, samples, *free, "the device's free memory"))
      throw UserError(*reason, ExitCode::memory);
  const at::NoGradGuard no_grad;
  at::Tensor images, labels;
  try {
    images = at::empty({samples, size.height, size.width, 3}, at::TensorOptions(device).dtype(at::kByte));
    labels = at::empty({samples}, at::TensorOptions(device).dtype(at::kLong));
  } catch (const std::exception& error) {  // the usual recovery, smaller micro-batches, would not help
    if (!is_out_of_memory(error)) throw;
    throw UserError(
        fmt::format("data.cache: device: cannot allocate {} of {}, {}; remove it or add a resize to smaller images",
                    counted(samples, "sample"), fmt::format("{}×{}×3", size.height, size.width),
                    human_bytes(static_cast<double>(resident_bytes(size, samples)))),
        ExitCode::memory);
  }
  for (int64_t done = 0; done < samples;) {
    const HostBatch batch = loader.next();
    TRAINOPT_CHECK_EQUAL(batch.where.first, done);
    images.narrow(0, done, batch.where.items).copy_(batch.input);  // blocks until the copy is done
    labels.narrow(0, done, batch.where.items).copy_(batch.target);
    for (size_t i = 0; i < batch.sample_ids.size(); ++i)
      if (const int64_t sample = done + static_cast<int64_t>(i); batch.sample_ids[i] != sample)
        unusable_.insert(sample);
    done += batch.where.items;
    loader.release(batch);
  }
  images_ = std::move(images), labels_ = std::move(labels);
  bad_samples_ = loader.samples().bad_samples();
  loading_threads_ = loader.loading_threads();
  log_info("data set on the device: {}, {}, read in {:.1f} s", counted(samples, "sample"),
           human_bytes(static_cast<double>(bytes())), seconds_since(begin));
}

}  // namespace trainopt
