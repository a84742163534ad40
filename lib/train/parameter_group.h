// An item of `optimizer.groups`: parameters with a learning rate or weight decay of their own, as torch.optim's
// parameter groups.
#pragma once

#include "config/form.h"

namespace trainopt {

struct ParameterGroup {
  std::vector<std::string> parameters;  ///< words for chosen_parameters()
  std::optional<double> lr, weight_decay;
};
template <class V>
void describe(V& v, ParameterGroup& c) {
  v.field("parameters", c.parameters, "Words that choose parameters, as in no_decay.");
  v.field("lr", c.lr, "Learning rate in place of optimizer.lr.", at_least(0));
  v.field("weight_decay", c.weight_decay, "Weight decay in place of optimizer.weight_decay.", at_least(0));
}

template <>
struct Form<ParameterGroup> {
  static std::string type_text();
  static Json schema(const Bounds& bounds);
  static std::optional<ParameterGroup> read(const Value& value, const Location& location);
  static Value write(const ParameterGroup& group);
};

}  // namespace trainopt
