#include "data/loader_work.h"

namespace trainopt {

LoaderWork& LoaderWork::operator+=(const LoaderWork& other) {
  samples += other.samples;
  worker_ns += other.worker_ns;
  busy_ns += other.busy_ns;
  stages.read_ns += other.stages.read_ns;
  stages.decode_ns += other.stages.decode_ns;
  stages.transform_ns += other.stages.transform_ns;
  return *this;
}

LoaderWork LoaderWork::operator-(const LoaderWork& earlier) const {
  return {.samples = samples - earlier.samples,
          .worker_ns = worker_ns - earlier.worker_ns,
          .busy_ns = busy_ns - earlier.busy_ns,
          .stages = {.read_ns = stages.read_ns - earlier.stages.read_ns,
                     .decode_ns = stages.decode_ns - earlier.stages.decode_ns,
                     .transform_ns = stages.transform_ns - earlier.stages.transform_ns}};
}

void WorkCounter::add(int64_t busy_ns, const StageTimes& stages) {
  const std::lock_guard lock(mutex_);
  work_ += {.samples = 1, .worker_ns = 0, .busy_ns = busy_ns, .stages = stages};
}

LoaderWork WorkCounter::so_far() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

}  // namespace trainopt
