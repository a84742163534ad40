#include "data/loader.h"

#include "base/error.h"
#include "device/tensor_memory.h"
#include "device/trace_range.h"

#include <pthread.h>

#include <algorithm>
#include <limits>

namespace trainopt {
namespace {

// A slot's tickets in one word, so that a claim is one compare-and-swap and a late worker cannot mistake the next batch
// in the same slot for the previous one. The low bits count unclaimed samples (batch_size is at most 2^24); the high
// bits hold the sequence number.
constexpr int kItemBits = 25;
uint64_t make_tickets(int64_t sequence, int64_t items) {
  return static_cast<uint64_t>(sequence) << kItemBits | static_cast<uint64_t>(items);
}
int64_t ticket_sequence(uint64_t tickets) { return static_cast<int64_t>(tickets >> kItemBits); }
int64_t ticket_items(uint64_t tickets) { return static_cast<int64_t>(tickets & ((uint64_t{1} << kItemBits) - 1)); }

}  // namespace

Loader::Loader(std::shared_ptr<SampleLoader> samples, const BatchSchedule& schedule, const LoaderSettings& settings,
               const BufferFormat& format, const StepRange& steps, std::optional<TokenCounter> counter)
    : samples_(std::move(samples)),
      schedule_(schedule),
      settings_(settings),
      format_(format),
      end_step_(steps.end),
      counter_(std::move(counter)),
      slot_bytes_(batch_bytes(format, schedule.largest_items())),
      counters_(static_cast<size_t>(std::max<int64_t>(settings.num_workers, 1))) {
  TRAINOPT_CHECK_EQUAL(schedule.shape().samples, samples_->dataset().size());
  const int64_t count = slot_count(settings.num_workers, settings.prefetch_factor, slot_bytes_, settings.memory_limit);
  for (BatchBuffer& memory : make_buffers(format, schedule.largest_items(), count, settings.pin_memory))
    slots_.push_back(std::make_unique<LoaderBuffer>(std::move(memory)));
  if (const auto* images = dynamic_cast<const ImageDataset*>(&samples_->dataset()))
    slots_memory_ = DecodeMemory::reserve(images->decoding().memory, slots() * slot_bytes_);
  opened_ = released_ = limit_ = delivered_ = schedule.sequence_of(steps.first);
}

Loader::~Loader() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  may_open_.notify_all();
  join();
}

void Loader::join() {
  for (auto& thread : threads_) thread.join();
  threads_.clear();
}

void Loader::start() {
  if (!work_since_) work_since_ = Clock::now();
  if (settings_.num_workers == 0 || delivered_ < limit_ || failure_) return;
  join();  // the previous epoch's threads have reached its end
  const int64_t epoch = delivered_ / schedule_.micros_per_epoch();
  limit_ =
      settings_.persistent_workers ? std::numeric_limits<int64_t>::max() : (epoch + 1) * schedule_.micros_per_epoch();
  if (end_step_) limit_ = std::max(delivered_ + 1, std::min(limit_, schedule_.sequence_of(*end_step_)));
  working_ = settings_.num_workers;
  ++thread_starts_;
  for (int64_t i = 0; i < settings_.num_workers; ++i) {
    threads_.emplace_back([this, i, sequence = delivered_] { work(i, sequence); });
    pthread_setname_np(threads_.back().native_handle(), fmt::format("loader {}", i).substr(0, 15).c_str());
  }
}

void Loader::pause() { paused_ = true; }

void Loader::resume() {
  if (!paused_) return;
  {
    const std::lock_guard lock(mutex_);
    paused_ = false;
  }
  may_open_.notify_all();
}

HostBatch Loader::next() {
  TRAINOPT_CHECK(delivered_ - released_ < slots());
  const TraceRange range("loader::wait");
  resume();
  const auto begin = Clock::now();
  start();
  if (settings_.num_workers == 0) {
    load_in_caller();
  } else {
    std::unique_lock lock(mutex_);
    const LoaderBuffer& slot = slot_of(delivered_);
    progress_.wait(lock, [&] { return slot.ready_for == delivered_ || working_ == 0; });
    if (slot.ready_for != delivered_) {
      TRAINOPT_CHECK(failure_.has_value());
      lock.unlock();
      join();
      std::rethrow_exception(failure_->error);
    }
    --ready_;
  }
  wait_ms_ += milliseconds_between(begin, Clock::now());
  return deliver();
}

int64_t Loader::loading_threads() const {
  if (settings_.num_workers == 0) return 0;
  return std::count_if(counters_.begin(), counters_.end(),
                       [](const WorkCounter& counter) { return counter.so_far().samples > 0; });
}

HostBatch Loader::deliver() {
  LoaderBuffer& slot = slot_of(delivered_);
  HostBatch batch;
  batch.where = slot.where;
  batch.sequence = delivered_++;
  batch.counts = slot.counts;
  batch.input = slot.memory.input(slot.where.items, slot.counts.width);
  batch.target = slot.memory.target(slot.where.items, slot.counts.width);
  batch.sample_ids = std::span<const int64_t>(slot.memory.sample_ids).first(static_cast<size_t>(slot.where.items));
  return batch;
}

bool Loader::ready() {
  if (delivered_ == limit_) return false;
  const std::lock_guard lock(mutex_);
  return slot_of(delivered_).ready_for == delivered_;
}

int64_t Loader::ready_batches() {
  const std::lock_guard lock(mutex_);
  return ready_;
}

void Loader::release(const HostBatch& batch, std::optional<Event> last_use) {
  TRAINOPT_CHECK_EQUAL(batch.sequence, released_);
  {
    const std::lock_guard lock(mutex_);
    slot_of(batch.sequence).last_use = std::move(last_use);
    ++released_;
  }
  may_open_.notify_one();  // the woken worker opens the slot and wakes the others
}

void Loader::work(int64_t worker, int64_t sequence) {
  const MemoryScope scope({.use = MemoryUse::batches, .phase = "loading"});
  WorkCounter& counter = counters_[static_cast<size_t>(worker)];
  SampleLoader::Scratch scratch;
  std::optional<Claim> current;
  try {
    while ((current = claim(sequence))) {
      load_sample(*current->slot, current->item, scratch, counter);
      finish_sample(*current);
    }
  } catch (...) {
    fail(current ? current->sequence : sequence, current ? current->item : -1);
  }
  const std::lock_guard lock(mutex_);
  --working_;
  progress_.notify_all();  // under the lock: once it is free, next() may return and the loader be destroyed
}

std::optional<Loader::Claim> Loader::claim(int64_t& sequence) {
  while (!stop_.load(std::memory_order_relaxed)) {
    if (paused_.load(std::memory_order_relaxed)) wait_while_paused();
    LoaderBuffer& slot = slot_of(sequence);
    uint64_t tickets = slot.tickets.load(std::memory_order_acquire);
    while (ticket_items(tickets) > 0) {
      if (!slot.tickets.compare_exchange_weak(tickets, tickets - 1, std::memory_order_acquire)) continue;
      sequence = ticket_sequence(tickets);
      return Claim{&slot, sequence, slot.where.items - ticket_items(tickets)};
    }
    if (!wait_until_open(sequence)) break;
    if (ticket_items(slot.tickets.load(std::memory_order_acquire)) == 0) ++sequence;
  }
  return std::nullopt;
}

void Loader::wait_while_paused() {
  std::unique_lock lock(mutex_);
  may_open_.wait(lock, [&] { return stop_ || !paused_; });
}

/// Opens the batch if it is next and its slot is free, or waits for another worker to do so. False: no more work.
bool Loader::wait_until_open(int64_t sequence) {
  std::unique_lock lock(mutex_);
  const auto openable = [&] { return sequence == opened_ && !opening_ && sequence - slots() < released_; };
  may_open_.wait(lock, [&] { return stop_ || sequence >= limit_ || sequence < opened_ || openable(); });
  if (stop_ || sequence >= limit_) return false;
  if (sequence < opened_) return true;
  LoaderBuffer& slot = slot_of(sequence);
  opening_ = true;
  lock.unlock();
  prepare(slot, sequence);  // may wait for the device
  lock.lock();
  slot.unfinished.store(slot.where.items, std::memory_order_relaxed);
  slot.tickets.store(make_tickets(sequence, slot.where.items), std::memory_order_release);
  opening_ = false;
  ++opened_;
  if (slot.where.items == 0) {
    slot.ready_for = sequence;
    ++ready_;
    progress_.notify_one();
  }
  lock.unlock();
  may_open_.notify_all();
  return true;
}

void Loader::prepare(LoaderBuffer& slot, int64_t sequence) {
  if (slot.last_use) slot.last_use->synchronize();
  slot.last_use.reset();
  slot.where = schedule_.at_sequence(sequence);
  if (counter_) slot.counts = (*counter_)(slot.where);
  announce(sequence);
}

/// Announces the samples of this batch and of those after it, as many as the data set wants to know ahead.
void Loader::announce(int64_t sequence) {
  const int64_t ahead = samples_->dataset().samples_ahead();
  if (ahead == 0) return;
  const int64_t batch = schedule_.shape().batch_size, batches = 1 + (ahead + batch - 1) / batch;
  const int64_t run_end = end_step_ ? schedule_.sequence_of(*end_step_) : std::numeric_limits<int64_t>::max();
  const int64_t end = std::min(sequence + batches, std::max(run_end, sequence + 1));
  for (announced_ = std::max(announced_, sequence); announced_ < end; ++announced_) {
    const MicroBatch where = schedule_.at_sequence(announced_);
    const EpochOrder order = samples_->order(where.epoch);
    for (int64_t item = 0; item < where.items; ++item) samples_->expect(where.first + item, order);
  }
}

void Loader::load_sample(LoaderBuffer& slot, int64_t item, SampleLoader::Scratch& scratch, WorkCounter& counter) {
  const TraceRange range("loader::sample");
  StageTimes& stages = scratch.load.image.times;
  stages = {};
  int64_t busy_ns = 0;
  std::optional<StageTimer> timer(std::in_place, busy_ns);
  slot.memory.sample_ids[static_cast<size_t>(item)] =
      samples_->load(slot.where.epoch, slot.where.first + item, slot.memory.place(item, slot.counts.width), scratch);
  timer.reset();
  counter.add(busy_ns, stages);
}

void Loader::finish_sample(const Claim& claim) {
  if (claim.slot->unfinished.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  {
    const std::lock_guard lock(mutex_);
    claim.slot->ready_for = claim.sequence;
    ++ready_;
  }
  progress_.notify_one();
}

/// Samples are claimed in order and every claimed sample is finished, so the earliest failure does not depend on
/// scheduling either.
void Loader::fail(int64_t sequence, int64_t item) {
  const std::lock_guard lock(mutex_);
  if (!failure_ || std::pair(sequence, item) < std::pair(failure_->sequence, failure_->item))
    failure_ = Failure{sequence, item, std::current_exception()};
  stop_ = true;
  may_open_.notify_all();
}

void Loader::load_in_caller() {
  LoaderBuffer& slot = slot_of(delivered_);
  prepare(slot, delivered_);
  for (int64_t item = 0; item < slot.where.items; ++item) load_sample(slot, item, scratch_, counters_.front());
}

LoaderWork Loader::take_work() {
  if (!work_since_) return {};
  LoaderWork all;
  for (const WorkCounter& counter : counters_) all += counter.so_far();
  LoaderWork work = all - std::exchange(counted_, all);
  const auto now = Clock::now();
  work.worker_ns = std::chrono::nanoseconds(now - *work_since_).count() * static_cast<int64_t>(counters_.size());
  work_since_ = now;
  return work;
}

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
