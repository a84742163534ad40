#include "kernels/attention/attention.h"

#include "base/error.h"
#include "kernels/attention/cpu/loops.h"
#include "kernels/cpu/by_type.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace trainopt::kernels {
namespace {

/// Queries of a block: their scores stay in a cache. A multiple of the rows that any vector width takes at once, and no
/// power of two, so that the panels of a row are not all in one cache set.
constexpr int64_t kBlock = 60;

int64_t in_panels(int64_t count) { return (count + kPanel - 1) / kPanel * kPanel; }

struct Size {
  int64_t samples, heads, tokens, width;
};

bool fits(const at::Tensor& tensor, const Size& size, at::ScalarType type) {
  return tensor.sizes() == at::IntArrayRef({size.samples, size.heads, size.tokens, size.width}) &&
         (size.width == 1 || tensor.stride(-1) == 1) && tensor.scalar_type() == type;
}

Size size_of(const AttentionInputs& inputs) {
  const at::Tensor& q = inputs.query;
  TRAINOPT_CHECK(q.dim() == 4 && q.numel() > 0);
  const Size size{q.size(0), q.size(1), q.size(2), q.size(3)};
  for (const at::Tensor* each : {&q, &inputs.key, &inputs.value})
    TRAINOPT_CHECK(fits(*each, size, q.scalar_type()) && (each->is_cpu() || each->is_meta()));
  return size;
}

/// [samples, heads, tokens, head width], in memory with the heads of a token together, as the next layer reads them.
at::Tensor tokens_together(const Size& size, const at::Tensor& like) {
  return at::empty({size.samples, size.tokens, size.heads, size.width}, like.options().requires_grad(false))
      .transpose(1, 2);
}

/// One head of one sample in a tensor.
template <class T>
struct Head {
  T* at;
  int64_t stride;  ///< between tokens

  T* row(int64_t token) const { return at + token * stride; }
};
template <class T>
Head<const T> head_of(const at::Tensor& tensor, int64_t sample, int64_t head) {
  return {tensor.const_data_ptr<T>() + sample * tensor.stride(0) + head * tensor.stride(1), tensor.stride(2)};
}
template <class T>
Head<T> head_to(const at::Tensor& tensor, int64_t sample, int64_t head) {
  return {tensor.mutable_data_ptr<T>() + sample * tensor.stride(0) + head * tensor.stride(1), tensor.stride(2)};
}

/// A thread's memory for panels of one head.
class Workspace {
 public:
  explicit Workspace(int64_t numbers) : memory_(at::empty({numbers}, at::kFloat)) {}
  Panels<float> panels(int64_t rows, int64_t columns) {
    const Panels<float> taken{memory_.mutable_data_ptr<float>() + used_, rows, columns};
    used_ += rows * columns;
    TRAINOPT_CHECK(used_ <= memory_.numel());
    return taken;
  }

 private:
  at::Tensor memory_;
  int64_t used_ = 0;
};

/// The first `columns` columns.
Panels<float> first_of(const Panels<float>& panels, int64_t columns) { return {panels.at, panels.rows, columns}; }

using OfBlock = std::array<float, kBlock>;

template <class T>
struct Computation {
  const ProductKernels<float>& products;
  const AttentionLoops<T>& loops;
  Size size;
  bool causal;

  int64_t tokens() const { return in_panels(size.tokens); }
  int64_t width() const { return in_panels(size.width); }
  float scale() const { return static_cast<float>(1 / std::sqrt(static_cast<double>(size.width))); }

  void pack(const Head<const T>& from, const Panels<float>& to) const {
    loops.pack(from.at, from.stride, size.tokens, size.width, 1, to);
  }
  void pack(const Head<const T>& from, const ScoreRows& rows, float factor, const Panels<float>& to) const {
    loops.pack(from.row(rows.first), from.stride, rows.rows, size.width, factor, to);
  }
  void unpack(const Panels<float>& from, float factor, int64_t first, int64_t rows, const Head<T>& to) const {
    OfBlock factors;
    factors.fill(factor);
    loops.unpack(from, factors.data(), rows, size.width, to.row(first), to.stride);
  }

  /// Calls work(rows, the columns of their scores) for the blocks of a sequence.
  template <class F>
  void in_blocks(const F& work) const {
    for (int64_t first = 0; first < size.tokens; first += kBlock) {
      const ScoreRows rows{std::min(kBlock, size.tokens - first), first, size.tokens, causal};
      work(rows, in_panels(rows.keys_of(rows.rows - 1)));
    }
  }
};

template <class T>
class Forward : Computation<T> {
 public:
  explicit Forward(const Computation<T>& of) : Computation<T>(of) {}

  void run(const Head<const T>& query, const Head<const T>& key, const Head<const T>& value, const Head<T>& output,
           float* log_sums) const {
    this->pack(key, key_);
    this->loops.transpose(key_, key_t_);
    this->pack(value, value_);
    this->in_blocks([&](const ScoreRows& rows, int64_t columns) {
      const Panels<float> scores = first_of(scores_, columns);
      this->pack(query, rows, this->scale(), query_);
      this->products.product(query_, first_of(key_t_, columns), 0, rows.rows, scores);
      OfBlock largest, sums;
      this->loops.exponentials(scores, rows, largest.data(), sums.data());
      this->products.product(scores, value_, 0, rows.rows, output_);
      for (size_t row = 0; row < static_cast<size_t>(rows.rows); ++row) {
        log_sums[rows.first + static_cast<int64_t>(row)] = largest[row] + std::log(sums[row]);
        sums[row] = 1 / sums[row];
      }
      this->loops.unpack(output_, sums.data(), rows.rows, this->size.width, output.row(rows.first), output.stride);
    });
  }

 private:
  int64_t t_ = this->tokens(), w_ = this->width();
  Workspace memory_{3 * t_ * w_ + kBlock * (2 * w_ + t_)};
  Panels<float> key_ = memory_.panels(t_, w_), key_t_ = memory_.panels(w_, t_), value_ = memory_.panels(t_, w_),
                query_ = memory_.panels(kBlock, w_), output_ = memory_.panels(kBlock, w_),
                scores_ = memory_.panels(kBlock, t_);
};

template <class T>
class Backward : Computation<T> {
 public:
  explicit Backward(const Computation<T>& of) : Computation<T>(of) {}

  struct Inputs {
    Head<const T> query, key, value, gradient;
    const float* log_sums;
  };
  struct Results {
    Head<T> of_query, of_key, of_value;
  };

  void run(const Inputs& in, const Results& out) const {
    this->pack(in.value, key_);
    this->loops.transpose(key_, value_t_);
    this->pack(in.key, key_);
    this->loops.transpose(key_, key_t_);
    for (const auto& sum : {of_key_, of_value_}) std::fill_n(sum.at, sum.rows * sum.columns, 0.0f);
    this->in_blocks([&](const ScoreRows& rows, int64_t columns) { add_block(in, out.of_query, rows, columns); });
    for (int64_t first = 0; first < this->size.tokens; first += kBlock) {
      const int64_t count = std::min(kBlock, this->size.tokens - first);
      const auto from = [&](const Panels<float>& sums) {
        return Panels<float>{sums.at + first * kPanel, sums.rows, sums.columns};
      };
      this->unpack(from(of_key_), 1, first, count, out.of_key);
      this->unpack(from(of_value_), 1, first, count, out.of_value);
    }
  }

 private:
  void add_block(const Inputs& in, const Head<T>& of_query, const ScoreRows& rows, int64_t columns) const {
    const ProductKernels<float>& multiply = this->products;
    const Panels<float> p = first_of(p_, columns), of_scores = first_of(of_scores_, columns);
    this->pack(in.query, rows, this->scale(), query_);
    this->pack(in.gradient, rows, 1, gradient_);
    multiply.product(query_, first_of(key_t_, columns), 0, rows.rows, p);
    this->loops.probabilities(p, rows, in.log_sums + rows.first);
    multiply.outer_product(p, gradient_, rows.rows, 0, columns, true, of_value_);
    multiply.product(gradient_, first_of(value_t_, columns), 0, rows.rows, of_scores);
    this->loops.score_gradients(p, rows.rows, of_scores);
    multiply.product(of_scores, key_, 0, rows.rows, of_block_);
    this->unpack(of_block_, this->scale(), rows.first, rows.rows, of_query);
    multiply.outer_product(of_scores, query_, rows.rows, 0, columns, true, of_key_);
  }

  int64_t t_ = this->tokens(), w_ = this->width();
  Workspace memory_{5 * t_ * w_ + kBlock * (3 * w_ + 2 * t_)};
  Panels<float> key_ = memory_.panels(t_, w_), key_t_ = memory_.panels(w_, t_), value_t_ = memory_.panels(w_, t_),
                of_key_ = memory_.panels(t_, w_), of_value_ = memory_.panels(t_, w_),
                query_ = memory_.panels(kBlock, w_), gradient_ = memory_.panels(kBlock, w_),
                of_block_ = memory_.panels(kBlock, w_), p_ = memory_.panels(kBlock, t_),
                of_scores_ = memory_.panels(kBlock, t_);
};

class CpuAttentionKernels : public AttentionKernels {
 public:
  explicit CpuAttentionKernels(bool avx512) : avx512_(avx512) {}

  AttentionResult forward(const AttentionInputs& inputs) const override {
    const Size size = size_of(inputs);
    AttentionResult result{.output = tokens_together(size, inputs.query),
                           .log_sums = at::empty({size.samples, size.heads, size.tokens},
                                                 inputs.query.options().dtype(at::kFloat).requires_grad(false))};
    if (inputs.query.is_meta()) return result;
    auto* const log_sums = result.log_sums.mutable_data_ptr<float>();
    by_type(inputs.query, [&](auto value) {
      using T = decltype(value);
      each_head<Forward<T>>(computation<T>(size, inputs), [&](const auto& compute, int64_t sample, int64_t head) {
        const auto of = [&](const at::Tensor& tensor) { return head_of<T>(tensor, sample, head); };
        compute.run(of(inputs.query), of(inputs.key), of(inputs.value), head_to<T>(result.output, sample, head),
                    log_sums + (sample * size.heads + head) * size.tokens);
      });
    });
    return result;
  }

  AttentionGradients backward(const at::Tensor& gradient, const AttentionInputs& inputs,
                              const at::Tensor& log_sums) const override {
    const Size size = size_of(inputs);
    TRAINOPT_CHECK(fits(gradient, size, inputs.query.scalar_type()) && log_sums.is_contiguous());
    AttentionGradients gradients{.of_query = tokens_together(size, inputs.query),
                                 .of_key = tokens_together(size, inputs.query),
                                 .of_value = tokens_together(size, inputs.query)};
    if (inputs.query.is_meta()) return gradients;
    const auto* const sums = log_sums.const_data_ptr<float>();
    by_type(inputs.query, [&](auto value) {
      using T = decltype(value);
      each_head<Backward<T>>(computation<T>(size, inputs), [&](const auto& compute, int64_t sample, int64_t head) {
        const auto of = [&](const at::Tensor& tensor) { return head_of<T>(tensor, sample, head); };
        const auto to = [&](const at::Tensor& tensor) { return head_to<T>(tensor, sample, head); };
        compute.run({.query = of(inputs.query),
                     .key = of(inputs.key),
                     .value = of(inputs.value),
                     .gradient = of(gradient),
                     .log_sums = sums + (sample * size.heads + head) * size.tokens},
                    {to(gradients.of_query), to(gradients.of_key), to(gradients.of_value)});
      });
    });
    return gradients;
  }

 private:
  template <class T>
  Computation<T> computation(const Size& size, const AttentionInputs& inputs) const {
    return {.products = avx512_ ? products_avx512() : products_avx2(),
            .loops = avx512_ ? attention_loops_avx512<T>() : attention_loops_avx2<T>(),
            .size = size,
            .causal = inputs.causal};
  }

  /// Calls work(computation with a thread's memory, sample, head) for each, in parallel.
  template <class Compute, class Of, class F>
  static void each_head(const Of& of, const F& work) {
    at::parallel_for(0, of.size.samples * of.size.heads, 1, [&](int64_t begin, int64_t end) {
      const Compute compute(of);
      for (int64_t i = begin; i < end; ++i) work(compute, i / of.size.heads, i % of.size.heads);
    });
  }

  bool avx512_;
};

}  // namespace

const AttentionKernels& cpu_attention_kernels() { return *all_cpu_attention_kernels().back(); }

std::vector<const AttentionKernels*> all_cpu_attention_kernels() {
  static const CpuAttentionKernels avx2(false), avx512(true);
  if (!has_avx512()) return {&avx2};
  return {&avx2, &avx512};
}

}  // namespace trainopt::kernels
