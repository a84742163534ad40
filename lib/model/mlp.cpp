#include "model/networks.h"

#include "device/tensor.h"
#include "model/layers.h"

namespace trainopt {
namespace {

class HiddenLayer : public Unit {
 public:
  HiddenLayer(Builder& builder, const std::string& name, int64_t in, int64_t out, double dropout_rate)
      : name_(name), linear_(builder, name, in, out), dropout_rate_(dropout_rate) {}
  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
    const at::Tensor hidden =
        linear_.forward(input.flatten(1)).relu_();  // in place: linear's backward does not need its output
    return dropout(hidden, dropout_rate_, context);
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return linear_.shape_after({c10::multiply_integers(input)}, flops);
  }

 private:
  std::string name_;
  Linear linear_;
  double dropout_rate_;
};

class OutputLayer : public Unit {
 public:
  OutputLayer(Builder& builder, const std::string& name, int64_t in, int64_t out)
      : name_(name), linear_(builder, name, in, out) {}
  std::string name() const override { return name_; }
  at::Tensor forward(const at::Tensor& input, const ForwardContext&) override {
    return linear_.forward(input.flatten(1));
  }
  SampleShape shape_after(const SampleShape& input, double& flops) const override {
    return linear_.shape_after({c10::multiply_integers(input)}, flops);
  }

 private:
  std::string name_;
  Linear linear_;
};

}  // namespace

void build_mlp(Builder& builder, const ModelConfig& config, const InputShape& input) {
  int64_t in = input.channels * input.height * input.width, index = 0;
  for (const int64_t width : config.hidden) {
    builder.add<HiddenLayer>(fmt::format("layers.{}", index++), in, width, config.dropout);
    in = width;
  }
  builder.add<OutputLayer>(fmt::format("layers.{}", index), in, classes_of(config));
}

}  // namespace trainopt
