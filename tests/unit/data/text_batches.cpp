#include "data/batch_source.h"
#include "data/formats/text/text_dataset.h"
#include "data/loader_bench.h"

#include "base/files/safetensors.h"
#include "device/tensor.h"
#include "support/loaded_data.h"
#include "text_files.h"

#include <algorithm>
#include <map>

using namespace trainopt;
using namespace trainopt::test;

namespace {

constexpr int64_t kContext = 8;

LoadedData text_data(int64_t batch_size, Padding padding = Padding::longest) {
  LoadedData data;
  data.context = kContext;
  data.padding = padding;
  data.batch_size = batch_size;
  data.drop_last = false;
  return data;
}

/// 23 documents of 2 to 12 tokens in `folder`, of which those above 9 are cut.
std::shared_ptr<const TextDataset> documents(const TemporaryFolder& folder) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 23; ++i) lengths.push_back(2 + i * 7 % 11);
  return open_documents(write_documents(folder / "a.bin", lengths), {.context = kContext, .vocabulary = 1000});
}

/// 23 windows.
std::shared_ptr<const TextDataset> windows(const TemporaryFolder& folder) {
  write_bytes(folder / "w.bin", as_bytes<uint16_t>(counting(23 * kContext + 1)));
  return open_token_windows((folder / "w.bin").string(), {.context = kContext, .vocabulary = 1000});
}

/// The real targets of a batch by sample, after checking that everything else is padding and that input and target
/// belong together.
std::map<int64_t, std::vector<int64_t>> targets_of(const Batch& batch) {
  std::map<int64_t, std::vector<int64_t>> found;
  const at::Tensor input = batch.input.contiguous(), target = batch.target.contiguous();
  REQUIRE(input.sizes() == target.sizes());
  REQUIRE(static_cast<int64_t>(batch.target_tokens.size()) == batch.items);
  for (int64_t i = 0; i < batch.items; ++i) {
    auto& tokens = found[batch.sample_ids[static_cast<size_t>(i)]];
    const int64_t count = batch.target_tokens[static_cast<size_t>(i)];
    for (int64_t j = 0; j < input.size(1); ++j) {
      const auto in = input[i][j].item<int64_t>(), out = target[i][j].item<int64_t>();
      if (j < count) {
        REQUIRE(out == in + 1);  // the files count
        tokens.push_back(out);
      } else {
        REQUIRE((in == 0 && out == kNoTarget));
      }
    }
  }
  return found;
}

}  // namespace

TEST_CASE("an epoch of text has each sample once, shuffled or in order, for any number of workers") {
  const TemporaryFolder folder;
  for (const auto& text : {windows(folder), documents(folder)}) {
    std::vector<std::vector<int64_t>> orders;
    for (const auto& [shuffle, workers] : {std::pair{false, 0}, {true, 0}, {true, 3}}) {
      auto data = text_data(5);
      data.shuffle = shuffle;
      data.num_workers = workers;
      auto batches = make_batches(data, text);
      std::vector<int64_t> order;
      for (int64_t i = 0; i < 10; ++i) {  // two epochs of 5, 5, 5, 5 and 3
        const Batch batch = batches->next();
        for (const auto& [sample, targets] : targets_of(batch)) {
          auto tokens = tokens_of(*text, sample);
          tokens.erase(tokens.begin());
          REQUIRE(targets == tokens);
        }
        order.insert(order.end(), batch.sample_ids.begin(), batch.sample_ids.end());
      }
      orders.push_back(order);
    }
    for (auto order : orders)
      for (const int64_t epoch : {0, 23}) {
        std::vector<int64_t> one(order.begin() + epoch, order.begin() + epoch + 23);
        if (order == orders[0]) CHECK(one == counting(23));
        std::sort(one.begin(), one.end());
        CHECK(one == counting(23));
      }
    CHECK(orders[1] != orders[0]);
    CHECK(orders[1] == orders[2]);
  }
}

TEST_CASE("rows are as wide as the padding says") {
  const TemporaryFolder folder;
  std::vector<int64_t> lengths{3, 4, 18, 19, 6, 35, 41, 2};  // targets: 2, 3 | 17, 18 | 5, 34 | 40, 1
  const auto text = open_documents(write_documents(folder / "a.bin", lengths), {.context = 40, .vocabulary = 1000});
  const std::map<Padding, std::vector<int64_t>> expected = {
      {Padding::longest, {3, 18, 34, 40}}, {Padding::max, {40, 40, 40, 40}}, {Padding::bucket, {16, 32, 40, 40}}};
  for (const auto& [padding, widths] : expected)
    for (const int64_t workers : {0, 2}) {
      auto data = text_data(2, padding);
      data.context = 40;
      data.shuffle = false;
      data.num_workers = workers;
      auto batches = make_batches(data, text);
      for (const int64_t width : widths) {
        const Batch batch = batches->next();
        targets_of(batch);
        CHECK(batch.input.sizes() == at::IntArrayRef({2, width}));
        CHECK(batch.input.is_contiguous());
      }
      data.dataset = text;
      CHECK(largest_batch(data, at::kCPU).input.sizes() == at::IntArrayRef({2, 40}));
    }
  auto data = text_data(2, Padding::bucket);
  data.context = 40;
  data.dataset = open_documents(write_documents(folder / "b.bin", {3, 18}), {.context = 40, .vocabulary = 1000});
  const Batch largest = largest_batch(data, at::kCPU);
  CHECK(largest.input.sizes() == at::IntArrayRef({2, 32}));  // the largest that can come, not the context
  CHECK((largest.input == 0).all().item<bool>());
  CHECK((largest.target == 0).all().item<bool>());
  CHECK(std::tuple(largest.items, largest.tokens, largest.step_tokens, largest.weight) == std::tuple(2, 64, 64, 1.0));
  CHECK((largest.is_first && largest.is_last));
}

TEST_CASE("any number of ranks delivers the same steps, in which micro-batches weigh as much as their tokens") {
  const TemporaryFolder folder;
  for (const auto& text : {windows(folder), documents(folder)}) {
    std::vector<std::map<int64_t, std::vector<int64_t>>> steps[4];
    int64_t layout = 0;
    for (const auto& [ranks, accumulation] : {std::pair<int64_t, int64_t>{1, 1}, {2, 1}, {1, 4}, {4, 1}}) {
      std::vector<std::unique_ptr<BatchSource>> sources;
      for (int64_t rank = 0; rank < ranks; ++rank) {
        auto data = text_data(8 / ranks / accumulation);
        data.ranks = ranks, data.rank = rank, data.accumulation = accumulation;
        sources.push_back(make_batches(data, text));
      }
      for (int64_t step = 0; step < 6; ++step) {  // two epochs of 8, 8 and 7
        auto& samples = steps[layout].emplace_back();
        double weight = 0, weighted = 0;  // weighted: sum of the batches' means, as the trainer computes a loss
        int64_t tokens = 0, step_tokens = 0;
        for (bool last = false; !last;)
          for (auto& source : sources) {
            const Batch batch = source->next();
            REQUIRE(batch.step == step);
            const auto found = targets_of(batch);
            double sum = 0;
            for (const auto& [sample, targets] : found) sum += std::accumulate(targets.begin(), targets.end(), 0.0);
            CHECK(batch.tokens == std::accumulate(batch.target_tokens.begin(), batch.target_tokens.end(), int64_t{0}));
            samples.insert(found.begin(), found.end());
            weight += batch.weight;
            if (batch.tokens > 0) weighted += batch.weight * sum / static_cast<double>(batch.tokens);
            tokens += batch.tokens;
            step_tokens = batch.step_tokens;
            last = batch.is_last;
          }
        CHECK(weight == Approx(1));
        CHECK(tokens == step_tokens);
        double sum = 0;
        int64_t count = 0;
        for (const auto& [sample, targets] : samples) {
          CHECK(static_cast<int64_t>(targets.size()) == text->target_tokens(sample));
          sum += std::accumulate(targets.begin(), targets.end(), 0.0);
          count += static_cast<int64_t>(targets.size());
        }
        CHECK(count == tokens);
        CHECK(weighted == Approx(sum / static_cast<double>(count)));
      }
      CHECK(steps[layout] == steps[0]);
      ++layout;
    }
  }
}

TEST_CASE("a run of text that starts in mid-epoch gets what an uninterrupted one would") {
  const TemporaryFolder folder;
  for (const auto& text : {windows(folder), documents(folder)})
    for (const int64_t workers : {0, 2}) {
      auto data = text_data(2);
      data.accumulation = 2;
      data.num_workers = workers;
      auto whole = make_batches(data, text);
      for (int64_t i = 0; i < 16; ++i) whole->next();
      auto resumed = make_batches(data, text, {.steps = {.first = whole->next().step}});
      resumed->next();
      for (int64_t i = 0; i < 9; ++i) {
        const Batch a = whole->next(), b = resumed->next();
        CHECK(at::equal(a.input, b.input));
        CHECK(at::equal(a.target, b.target));
        CHECK(a.sample_ids == b.sample_ids);
        CHECK(std::tuple(a.tokens, a.step_tokens, a.weight, a.step, a.micro) ==
              std::tuple(b.tokens, b.step_tokens, b.weight, b.step, b.micro));
      }
    }
}

TEST_CASE("a bad token ends the run, also if bad samples may be substituted") {
  const TemporaryFolder folder;
  write_bytes(folder / "a.bin", as_bytes<uint16_t>(counting(100)));
  auto data = text_data(4);
  data.shuffle = false;
  data.bad_samples = {.substitute = true, .budget = 10};
  for (const int64_t workers : {0, 2}) {
    data.num_workers = workers;
    auto batches =
        make_batches(data, open_token_windows((folder / "a.bin").string(), {.context = kContext, .vocabulary = 50}));
    batches->next();
    CHECK_THAT(data_error([&] { batches->next(); }), ContainsSubstring("token 50 of the file"));
    CHECK(batches->bad_samples().empty());
  }
}

TEST_CASE("synthetic text repeats one batch of random tokens, the same for any number of ranks") {
  auto data = text_data(6);
  data.kind = DatasetKind::synthetic;
  data.synthetic = {.samples = 20, .vocabulary = 50};
  auto source = make_batches(data, nullptr);
  const Batch first = source->next();
  CHECK(first.input.sizes() == at::IntArrayRef({6, kContext}));
  CHECK(at::equal(first.input.narrow(1, 1, kContext - 1), first.target.narrow(1, 0, kContext - 1)));
  CHECK(first.input.min().item<int64_t>() >= 0);
  CHECK(first.input.max().item<int64_t>() < 50);
  CHECK(first.input.max().item<int64_t>() > 25);
  CHECK(std::tuple(first.tokens, first.step_tokens, first.weight) == std::tuple(48, 48, 1.0));
  source->next(), source->next();
  const Batch last = source->next();
  CHECK(std::tuple(last.items, last.tokens, last.step_tokens) == std::tuple(2, 16, 16));
  CHECK(last.input.data_ptr() == first.input.data_ptr());
  data.batch_size = 3, data.ranks = 2;
  std::vector<at::Tensor> inputs;
  for (data.rank = 0; data.rank < 2; ++data.rank) inputs.push_back(make_batches(data, nullptr)->next().input);
  CHECK(at::equal(at::cat(inputs), first.input));
}

TEST_CASE("batches for forecasts have the shapes and weights of the largest real ones") {
  const TemporaryFolder folder;
  auto data = text_data(5, Padding::bucket);
  data.dataset = documents(folder);
  ShapedBatches shaped(data, data, {}, at::kCPU);
  const Batch batch = shaped.next(), real = largest_batch(data, at::kCPU);
  CHECK(batch.input.sizes() == real.input.sizes());
  CHECK(batch.target.sizes() == real.target.sizes());
  CHECK(batch.input.scalar_type() == at::kLong);
  CHECK(batch.weight == 1);
  CHECK(batch.tokens == 5 * kContext);
  data.dataset = nullptr;
  CHECK(ShapedBatches(data, data, {}, at::kCPU).next().input.sizes() == at::IntArrayRef({5, kContext}));
}

TEST_CASE("an export of documents is as wide as the step's widest micro-batch") {
  const TemporaryFolder folder;
  auto data = text_data(1);
  data.accumulation = 3;
  data.shuffle = false;
  const auto text =
      open_documents(write_documents(folder / "a.bin", {3, 6, 4}), {.context = kContext, .vocabulary = 1000});
  export_steps(*make_batches(data, text), 1, folder / "out.safetensors");
  const SafetensorsFile file(folder / "out.safetensors");
  std::vector<std::vector<int64_t>> values;
  for (const auto& entry : file.entries()) {
    CHECK(entry.dtype == "I64");
    values.emplace_back(entry.bytes / sizeof(int64_t));
  }
  file.read([&](size_t i) { return reinterpret_cast<char*>(values[i].data()); });
  for (size_t i = 0; i < 3; ++i) {
    const std::string& name = file.entries()[i].name;
    if (name == "step-00000001.input")
      CHECK(values[i] == std::vector<int64_t>{0, 1, 0, 0, 0, 3, 4, 5, 6, 7, 9, 10, 11, 0, 0});
    if (name == "step-00000001.target")
      CHECK(values[i] == std::vector<int64_t>{1, 2, -100, -100, -100, 4, 5, 6, 7, 8, 10, 11, 12, -100, -100});
    if (name == "step-00000001.sample_id") CHECK(values[i] == counting(3));
  }
}

TEST_CASE("the loader benchmark counts target tokens") {
  const TemporaryFolder folder;
  auto data = text_data(5);
  data.shuffle = false;
  const auto text = documents(folder);
  const auto result = run_loader_bench(*make_loader(data, text), {.warmup_batches = 0, .batches = 5, .seconds = 60});
  int64_t tokens = 0;
  for (int64_t i = 0; i < text->size(); ++i) tokens += text->target_tokens(i);
  CHECK(result.samples == 23);
  CHECK(result.tokens == tokens);
  CHECK(result.tokens_per_s == Approx(result.samples_per_s * static_cast<double>(tokens) / 23));
}
