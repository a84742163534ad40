// How fast this device computes the convolutions, matrix products and attentions of a model, each shape alone.
#pragma once

#include "base/json.h"
#include "model/model.h"

#include <c10/core/Device.h>
#include <c10/core/MemoryFormat.h>

#include <atomic>
#include <map>
#include <string>
#include <vector>

namespace trainopt {

/// Forward and backward of one shape, by element type.
struct ProductTime {
  double forward_s = 0, backward_s = 0;
};

struct ModelProduct {
  std::string operation;  ///< "convolution", "linear", "attention"
  std::string shape;      ///< "32 × 64 × 56 × 56, 3 × 3 to 64 channels"
  int64_t calls = 0;      ///< calls in one forward pass
  double flops = 0;  ///< one call's forward; 2 × multiply-adds, causal attention in full as usual. Backward: twice
  std::map<std::string, ProductTime> times;  ///< times by element type: "float32", "bfloat16"
};

struct MeasureProducts {
  c10::Device device;
  int64_t batch = 1;
  c10::MemoryFormat memory_format = c10::MemoryFormat::Contiguous;
  std::vector<c10::ScalarType> types{c10::ScalarType::Float, c10::ScalarType::BFloat16};
  double seconds = 0.3;                    ///< time for each shape and type
  const std::atomic<int>* stop = nullptr;  ///< once it is a signal's number, no further shape is measured
};

/// With libtorch's operations, in the order of their first use. The model itself runs on the meta device: only one
/// operation at a time needs memory.
std::vector<ModelProduct> measure_products(const ModelConfig& config, const InputShape& input,
                                           const MeasureProducts& options);

Json to_json(const std::vector<ModelProduct>& products);
/// A table for people.
std::string products_text(const std::vector<ModelProduct>& products);

}  // namespace trainopt
