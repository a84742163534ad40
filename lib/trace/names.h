// Interned texts: a trace repeats a few thousand names millions of times.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>

namespace trainopt::trace {

constexpr uint32_t kNone = UINT32_MAX;  ///< no name, event or thread

class Names {
 public:
  /// The number of `text`, the same for equal texts.
  uint32_t add(std::string_view text) {
    const auto found = numbers_.find(text);
    if (found != numbers_.end()) return found->second;
    const auto number = static_cast<uint32_t>(texts_.size());
    numbers_.emplace(texts_.emplace_back(text), number);
    return number;
  }
  /// Empty for kNone.
  std::string_view operator[](uint32_t number) const {
    return number == kNone ? std::string_view() : std::string_view(texts_[number]);
  }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;  ///< a deque, so that the views in `numbers_` remain valid
  std::unordered_map<std::string_view, uint32_t> numbers_;
};

}  // namespace trainopt::trace
