// Memory on the meta device, computed by hand: what autograd saves, what works in place, what backward frees.
#include "device/meta_device.h"

#include "device/autocast.h"
#include "device/process.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

#include <algorithm>
#include <fstream>

using namespace trainopt;

namespace {

class LiveBytes : public MemoryListener {
 public:
  void allocated(const void*, int64_t bytes, const MemoryLabel&) override {
    live += bytes;
    peak = std::max(peak, live);
  }
  void released(const void*, int64_t bytes) override { live -= bytes; }

  int64_t live = 0, peak = 0;
};

struct Meta {
  Meta() : listens((open_meta_device(), at::Device(at::kMeta)), bytes) {}
  LiveBytes bytes;
  ListenToMemory listens;

  static at::Tensor make(at::IntArrayRef sizes, at::ScalarType type = at::kFloat) {
    return at::empty(sizes, at::TensorOptions(at::kMeta).dtype(type));
  }
  static at::Tensor parameter(at::IntArrayRef sizes) { return make(sizes).requires_grad_(true); }
};

constexpr int64_t kFloat32 = 4, kBfloat16 = 2;

}  // namespace

TEST_CASE("tensors on the meta device are counted and hold no memory") {
  Meta meta;
  {
    const at::Tensor large = meta.make({int64_t{1} << 40});  // 4 TiB
    CHECK(meta.bytes.live == int64_t{4} << 40);
    const at::Tensor view = large.narrow(0, 5, 10);
    CHECK(meta.bytes.live == int64_t{4} << 40);
  }
  CHECK(meta.bytes.live == 0);
}

TEST_CASE("a convolution's shapes, layouts and gradients on the meta device") {
  Meta meta;
  const at::Tensor x = meta.make({2, 3, 15, 8}).requires_grad_(true), w = meta.parameter({16, 3, 3, 3});
  const at::Tensor y = at::conv2d(x, w, {}, {2, 1}, {1, 0});
  CHECK(y.sizes() == at::IntArrayRef({2, 16, 8, 6}));
  CHECK(y.is_contiguous());
  const int64_t before = meta.bytes.live;
  y.sum().backward();
  CHECK(x.grad().sizes() == x.sizes());
  CHECK(w.grad().sizes() == w.sizes());
  CHECK(meta.bytes.live == before + kFloat32 * (x.numel() + w.numel()));
  const at::Tensor nhwc = at::conv2d(x.detach().contiguous(at::MemoryFormat::ChannelsLast), w);
  CHECK(nhwc.is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_CASE("a block holds what its backward reads") {
  Meta meta;
  const int64_t channels = 8, image = 2 * channels * 6 * 6;  // values of an activation
  const at::Tensor x = meta.make({2, channels, 6, 6}).requires_grad_(true),
                   w = meta.parameter({channels, channels, 3, 3}), scale = meta.parameter({channels}),
                   shift = meta.parameter({channels}), mean = meta.make({channels}), variance = meta.make({channels});
  const int64_t before = meta.bytes.live;
  at::Tensor y =
      at::batch_norm(at::conv2d(x, w, {}, 1, 1), scale, shift, mean, variance, true, 0.1, 1e-5, true).relu_();
  // The convolution's result, which batch-norm reads again; batch-norm's, overwritten by ReLU; two statistics.
  CHECK(meta.bytes.live - before == kFloat32 * (2 * image + 2 * channels));
  at::Tensor loss = y.sum();
  y.reset();
  CHECK(meta.bytes.live - before == kFloat32 * (2 * image + 2 * channels + 1));
  meta.bytes.peak = 0;
  loss.backward();
  // Every value of x and the parameters has a gradient now, and nothing that was saved is left but the loss.
  CHECK(meta.bytes.live - before == kFloat32 * (image + w.numel() + 2 * channels + 1));
  // At most, in the convolution's backward: the gradients of its result and its input, that of its weight twice, those
  // of batch-norm's parameters, the loss and the loss's gradient. What forward saved is gone.
  CHECK(meta.bytes.peak - before == kFloat32 * (2 * image + 2 * w.numel() + 2 * channels + 2));
}

TEST_CASE("a layer norm holds its input and two statistics for each row") {
  Meta meta;
  const at::Tensor x = meta.make({2, 5, 8}).requires_grad_(true), scale = meta.parameter({8}),
                   shift = meta.parameter({8});
  const int64_t before = meta.bytes.live;
  at::Tensor y = at::layer_norm(x, {8}, scale, shift, 1e-6);
  CHECK(y.sizes() == x.sizes());
  CHECK(meta.bytes.live - before == kFloat32 * (x.numel() + 2 * 2 * 5));
  const at::Tensor loss = y.sum();
  y.reset();
  CHECK(meta.bytes.live - before == kFloat32 * (2 * 2 * 5 + 1));
  loss.backward();
  CHECK(scale.grad().sizes() == scale.sizes());
  CHECK(meta.bytes.live - before == kFloat32 * (x.numel() + 2 * 8 + 1));
}

TEST_CASE("attention holds its inputs, its result and one sum for each token, but no scores") {
  Meta meta;
  const auto heads = [&](int64_t tokens) { return meta.make({2, tokens, 3, 4}).requires_grad_(true); };
  const at::Tensor query = heads(50), key = heads(70), value = heads(70);
  const int64_t before = meta.bytes.live;
  at::Tensor attended = std::get<0>(at::_scaled_dot_product_flash_attention_for_cpu(
      query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)));
  CHECK(attended.sizes() == at::IntArrayRef({2, 3, 50, 4}));
  CHECK(attended.transpose(1, 2).is_contiguous());
  CHECK(meta.bytes.live - before == kFloat32 * (query.numel() + 2 * 3 * 50));
  attended.sum().backward();
  attended.reset();
  CHECK(meta.bytes.live - before == kFloat32 * (query.numel() + key.numel() + value.numel()));
}

TEST_CASE("autocast casts convolutions and linear layers on the meta device") {
  Meta meta;
  const at::Tensor x = meta.make({2, 3, 8, 8}), w = meta.parameter({16, 3, 3, 3}), v = meta.parameter({5, 16 * 36}),
                   b = meta.parameter({5});
  CHECK(!autocast_type(at::kMeta));
  {
    const AutocastGuard guard(at::kMeta, at::kBFloat16);
    CHECK(autocast_type(at::kMeta) == at::kBFloat16);
    const int64_t before = meta.bytes.live;
    const at::Tensor y = at::conv2d(x, w);
    CHECK(y.scalar_type() == at::kBFloat16);
    // Backward needs the casts of input and weight.
    CHECK(meta.bytes.live - before == kBfloat16 * (x.numel() + w.numel() + y.numel()));
    const at::Tensor z = at::linear(y.flatten(1), v, b);
    CHECK(z.scalar_type() == at::kBFloat16);
    z.sum().backward();
    CHECK(w.grad().scalar_type() == at::kFloat);
  }
  CHECK(at::conv2d(x, w).scalar_type() == at::kFloat);
}

TEST_CASE("a limit of a cgroup's memory is read") {
  CHECK(bytes_of_limit("2147483648") == int64_t{2} << 30);
  CHECK(!bytes_of_limit("max"));
  CHECK(!bytes_of_limit(""));
  CHECK(allowed_memory_bytes() > 0);
}

TEST_CASE("the smallest limit of a process's cgroups applies, in version 1 and 2") {
  const TemporaryFolder folder;
  const CgroupPlaces places{.groups = folder.path() / "groups", .hierarchies = folder.path() / "cgroup"};
  const auto write = [&](const std::string& file, const std::string& text) {
    const auto path = folder.path() / file;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  };
  write("groups", "5:cpu,cpuacct:/job\n4:memory:/slice/job\n0::/slice/job");
  const int64_t of_machine = allowed_memory_bytes(places);
  write("cgroup/cpu,cpuacct/job/memory.limit_in_bytes", "1");                     // not the memory hierarchy
  write("cgroup/memory/slice/job/memory.limit_in_bytes", "9223372036854771712");  // version 1's word for none
  write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
  CHECK(allowed_memory_bytes(places) == of_machine);
  write("cgroup/memory/slice/memory.limit_in_bytes", "3000000");
  CHECK(allowed_memory_bytes(places) == 3'000'000);
  write("cgroup/slice/job/memory.max", "max");
  write("cgroup/slice/memory.max", "2000000");
  CHECK(allowed_memory_bytes(places) == 2'000'000);
}
