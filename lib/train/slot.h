// A slot of the trainer always holds exactly one part: plain by default, replaced or wrapped by optimizations.
#pragma once

#include "base/error.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace trainopt {

struct BuildContext;  // train/build_context.h: inputs for building parts

template <class Part>
class Slot {
 public:
  using Make = std::function<std::unique_ptr<Part>(const BuildContext&)>;
  using Wrap = std::function<std::unique_ptr<Part>(const BuildContext&, std::unique_ptr<Part>)>;

  /// `what` describes the plain part in a few words, for the printed plan.
  Slot(std::string name, std::string what, Make plain)
      : name_(std::move(name)), what_(std::move(what)), make_(std::move(plain)) {}

  /// Replaces the plain part. Throws UserError naming both if another optimization has already filled the slot.
  void fill(const std::string& by, std::string what, Make make) {
    if (!filled_by_.empty())
      throw UserError(fmt::format("{} and {} both replace the {}; switch one of them off", filled_by_, by, name_));
    filled_by_ = by;
    what_ = std::move(what);
    make_ = std::move(make);
  }

  /// Wraps the part in another one; the last wrapper is outermost.
  void wrap(const std::string& by, std::string what, Wrap wrap) {
    wrappers_.push_back({by, std::move(what), std::move(wrap)});
  }

  const std::string& name() const { return name_; }
  bool is_plain() const { return filled_by_.empty() && wrappers_.empty(); }

  /// Describes the part and, in parentheses, what put it there; then the wrappers in the same form.
  std::string describe() const {
    std::string text = filled_by_.empty() ? what_ : fmt::format("{} ({})", what_, filled_by_);
    for (const auto& wrapper : wrappers_) text += fmt::format(", {} ({})", wrapper.what, wrapper.by);
    return text;
  }

  std::unique_ptr<Part> build(const BuildContext& context) const {
    auto part = make_(context);
    for (const auto& wrapper : wrappers_) part = wrapper.wrap(context, std::move(part));
    return part;
  }

 private:
  struct Wrapper {
    std::string by, what;
    Wrap wrap;
  };
  std::string name_, what_, filled_by_;
  Make make_;
  std::vector<Wrapper> wrappers_;
};

}  // namespace trainopt
