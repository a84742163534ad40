#include "roofline/measure_machine.h"

#include "base/clock.h"
#include "base/files/file_calls.h"
#include "base/philox.h"
#include "device/backend_settings.h"
#include "device/device.h"
#include "device/memory.h"
#include "device/process.h"
#include "device/product.h"
#include "device/stream.h"
#include "device/tensor.h"

#include <ATen/Context.h>
#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/mm.h>
#include <sys/mman.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace trainopt {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

struct ProductType {
  std::string name;
  at::ScalarType type;
  bool rounded = false;  ///< float32 rounded to TF32
};

std::vector<ProductType> product_types(c10::Device device) {
  std::vector<ProductType> types{{.name = "float32", .type = at::kFloat}, {.name = "bfloat16", .type = at::kBFloat16}};
  if (device.is_cpu()) return types;
  types.push_back({.name = "float16", .type = at::kHalf});
  if (device_facts(device).sm_major >= 8)
    types.push_back({.name = kRoundedFloat32, .type = at::kFloat, .rounded = true});
  return types;
}

/// The fastest of products that grow until one takes as long as the time that is left.
ProductPeak product_peak(c10::Device device, const ProductType& kind, double seconds) {
  const BackendGuard settings({.allow_tf32 = kind.rounded});
  const int64_t first = device.is_cpu() ? 256 : 1024, last = device.is_cpu() ? 8192 : 16384;
  const auto until = after(seconds);
  ProductPeak peak;
  for (int64_t size = first; size <= last; size *= 2) {
    const auto options = at::TensorOptions(device).dtype(kind.type);
    const at::Tensor a = at::empty({size, size}, options).normal_(), b = at::empty({size, size}, options).normal_();
    at::Tensor result = at::empty({size, size}, options);
    const double left = -seconds_since(until);
    const double one = shortest_s(device, [&] { product_out(result, a, b); }, {.seconds = left / 3});
    const double rate = 2.0 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size) / one;
    if (rate > peak.flops_per_s) peak = {.flops_per_s = rate, .size = size};
    if (16 * one > -seconds_since(until)) break;  // the next takes eight times as long, and runs at least twice
  }
  return peak;
}

/// Four times the caches, so that none of them holds it.
int64_t copied_bytes(c10::Device device) {
  if (!device.is_cpu()) return std::min(512 * kMiB, free_memory_bytes(device).value_or(0) / 4 / kMiB * kMiB);
  const int64_t cache = std::max<int64_t>(0, ::sysconf(_SC_LEVEL3_CACHE_SIZE));
  return std::min(std::max(256 * kMiB, 4 * cache), allowed_memory_bytes() / 8) / kMiB * kMiB;
}

std::optional<double> memory_rate(c10::Device device, double seconds) {
  const int64_t bytes = copied_bytes(device);
  if (bytes == 0) return std::nullopt;
  const auto options = at::TensorOptions(device).dtype(at::kByte);
  const at::Tensor from = at::full({bytes}, 1, options), to = at::full({bytes}, 0, options);
  const auto copy = [&] {
    if (!device.is_cpu()) {
      to.copy_(from);
      return;
    }
    // libtorch's copy first reads the memory that it overwrites; that of the C library does not.
    at::parallel_for(0, bytes, kMiB, [&](int64_t begin, int64_t end) {
      std::memcpy(static_cast<char*>(to.mutable_data_ptr()) + begin,
                  static_cast<const char*>(from.const_data_ptr()) + begin, static_cast<size_t>(end - begin));
    });
  };
  return 2 * static_cast<double>(bytes) / shortest_s(device, copy, {.seconds = seconds});
}

double host_copy_rate(c10::Device device, bool pinned, double seconds) {
  const int64_t bytes = 128 * kMiB;
  const at::Tensor from = host_tensor({bytes}, at::kByte, at::MemoryFormat::Contiguous, pinned).fill_(1);
  const at::Tensor to = at::empty({bytes}, at::TensorOptions(device).dtype(at::kByte));
  return static_cast<double>(bytes) /
         shortest_s(device, [&] { to.copy_(from, /*non_blocking=*/true); }, {.seconds = seconds});
}

/// The host's time: on a GPU the small kernels run meanwhile.
double operation_us(c10::Device device) {
  const at::Tensor one = at::ones({1}, at::TensorOptions(device));
  const auto step = [&] {
    for (int i = 0; i < 100; ++i) one.add_(1);
  };
  return shortest_s(device, step, {.seconds = 0.3}) / 100 * 1e6;
}

/// What a program pays whose C library returns freed memory to the system. Pages of the size that the system gives.
std::optional<double> page_fault_us() {
  constexpr size_t kBytes = size_t{32} << 20, kSmallestPage = 4096;
  int64_t faults = 0;
  const auto touch = [&] {
    const int64_t before = page_faults();
    void* memory = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return;
    for (size_t at = 0; at < kBytes; at += kSmallestPage) static_cast<volatile char*>(memory)[at] = 1;
    ::munmap(memory, kBytes);
    faults = page_faults() - before;
  };
  const double seconds = shortest_s(c10::Device(c10::kCPU), touch, {.seconds = 0.3, .one_s = 0});
  return faults > 0 ? std::optional(seconds / static_cast<double>(faults) * 1e6) : std::nullopt;
}

struct DiskRates {
  double read = 0, write = 0;  ///< bytes per second
};

std::string incompressible(size_t bytes) {
  std::string text(bytes, '\0');
  PhiloxStream random(0);
  for (size_t at = 0; at + 4 <= bytes; at += 4) {
    const uint32_t word = random.next_u32();
    std::memcpy(text.data() + at, &word, 4);
  }
  return text;
}

DiskRates disk_rates(const std::filesystem::path& folder, double seconds) {
  const auto path = folder / fmt::format(".roofline-{}.tmp", ::getpid());
  struct Removed {
    const std::filesystem::path& path;
    ~Removed() {
      std::error_code error;
      std::filesystem::remove(path, error);
    }
  } removed{path};
  const std::string piece = incompressible(static_cast<size_t>(16 * kMiB));
  const int64_t most = std::min(512 * kMiB, free_bytes(folder) / 4);
  DiskRates rates;
  auto began = Clock::now();
  int64_t bytes = 0;
  {
    File file = File::create(path);
    do {
      file.append(piece.data(), piece.size());
      file.sync();
      bytes += static_cast<int64_t>(piece.size());
    } while (seconds_since(began) < seconds && bytes + static_cast<int64_t>(piece.size()) <= most);
    rates.write = static_cast<double>(bytes) / seconds_since(began);
    file.drop_from_page_cache();
    file.close();
  }
  std::string read(piece.size(), '\0');
  File file = File::open(path, ExitCode::storage);
  began = Clock::now();
  for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(piece.size())) file.read(read.data(), read.size());
  rates.read = static_cast<double>(bytes) / seconds_since(began);
  return rates;
}

void say(const MeasureMachine& options, const std::string& what) {
  if (options.progress) options.progress(what);
}

void measure_disk(const MeasureMachine& options, Roofline& roofline) {
  try {
    const DiskRates disk = disk_rates(options.disk_folder, options.seconds);
    roofline.disk_read_bytes_per_s = disk.read;
    roofline.disk_write_bytes_per_s = disk.write;
  } catch (const FileError& error) {  // named recovery: a full disk leaves the other peaks
    say(options, fmt::format("no disk: {}", error.what()));
  }
}

struct Measurement {
  std::string what;
  std::function<void(Roofline&)> measure;
};

/// In the order in which they are made. They refer to `options`.
std::vector<Measurement> measurements_of(c10::Device device, const MeasureMachine& options) {
  const double seconds = options.seconds;
  std::vector<Measurement> all;
  for (const ProductType& type : product_types(device))
    all.push_back({type.name + " products",
                   [=](Roofline& roofline) { roofline.products[type.name] = product_peak(device, type, seconds); }});
  all.push_back({"memory", [=](Roofline& roofline) { roofline.memory_bytes_per_s = memory_rate(device, seconds); }});
  if (!device.is_cpu())
    all.push_back({"copies from host to device", [=](Roofline& roofline) {
                     roofline.pageable_copy_bytes_per_s = host_copy_rate(device, /*pinned=*/false, seconds);
                     roofline.pinned_copy_bytes_per_s = host_copy_rate(device, /*pinned=*/true, seconds);
                   }});
  all.push_back({"small operations", [=](Roofline& roofline) { roofline.operation_us = operation_us(device); }});
  all.push_back({"page faults", [](Roofline& roofline) { roofline.page_fault_us = page_fault_us(); }});
  all.push_back({"disk", [&options](Roofline& roofline) { measure_disk(options, roofline); }});
  return all;
}

}  // namespace

RooflineKey roofline_key(c10::Device device, const std::string& program) {
  const DeviceFacts facts = device_facts(device);
  RooflineKey key;
  key.device = device.is_cpu()
                   ? fmt::format("{}, {} cores, {}", facts.name, facts.multiprocessors, at::get_cpu_capability())
                   : fmt::format("{}, {}", facts.name, facts.uuid);
  key.libraries = fmt::format("trainopt {}, libtorch {}", program, libtorch_version());
  if (!device.is_cpu()) {
    const long cuda = at::detail::getCUDAHooks().versionCUDART();  // 13000 for 13.0
    key.libraries += fmt::format(", CUDA {}.{}", cuda / 1000, cuda % 1000 / 10);
  }
  return key;
}

std::optional<Roofline> measure_machine(c10::Device device, const RooflineKey& key, const MeasureMachine& options) {
  const auto began = Clock::now();
  const c10::NoGradGuard no_gradients;
  Roofline roofline{.key = key};
  for (const Measurement& each : measurements_of(device, options)) {
    if (options.stop && *options.stop != 0) return std::nullopt;
    say(options, each.what);
    each.measure(roofline);
  }
  roofline.disk_folder = std::filesystem::absolute(options.disk_folder).string();
  roofline.wall_s = seconds_since(began);
  return roofline;
}

namespace {

constexpr int kMeasurements = 10;

double seconds_of(c10::Device device, const std::function<void()>& work, int64_t times) {
  EventSpan span(device);
  const Stream stream = Stream::current(device);
  span.start.record(stream);
  for (int64_t i = 0; i < times; ++i) work();
  span.end.record(stream);
  span.end.synchronize();
  return elapsed_ms(span.start, span.end) / 1e3;
}

}  // namespace

double shortest_s(c10::Device device, const std::function<void()>& work, const TimingLimits& limits) {
  work();
  synchronize(device);
  const auto until = after(limits.seconds);
  double shortest = std::max(seconds_of(device, work, 1), 1e-9);
  const auto times = std::max<int64_t>(1, std::llround(std::min(1e6, limits.one_s / shortest)));
  for (int i = 0; i < kMeasurements && (i == 0 || Clock::now() < until); ++i)
    shortest = std::min(shortest, seconds_of(device, work, times) / static_cast<double>(times));
  return shortest;
}

}  // namespace trainopt
