#include "model/imported/order.h"

#include "base/error.h"

#include <algorithm>

namespace trainopt {
namespace {

bool contains(const std::vector<int64_t>& values, int64_t value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

}  // namespace

Order::Order(std::vector<const ProgramNode*> nodes, const std::vector<NodeRange>& units, const std::set<int64_t>& given,
             size_t values)
    : nodes_(std::move(nodes)), units_(units), values_(values) {
  for (size_t unit = 0; unit < units.size(); ++unit)
    for (size_t at = units[unit].first; at < units[unit].end; ++at) {
      if (nodes_[at] == nullptr) continue;
      for (const auto& output : nodes_[at]->outputs)
        for (const ProgramValue& value : output.values) made_in_[value.index] = unit;
      for (const auto& input : nodes_[at]->inputs)
        for (const ProgramItem& item : input.argument.items)
          if (const auto* value = std::get_if<ProgramValue>(&item); value && !given.contains(value->index)) {
            last_use_[{unit, value->index}] = at;
            used_in_[value->index].insert(unit);
          }
    }
  for (const auto& [unit_and_value, at] : last_use_) last_of_[at].push_back(unit_and_value.second);
}

UnitProgram Order::of(size_t unit, ProgramValue input, ProgramValue output, const ProgramValue& of_user,
                      const std::function<Instruction(const ProgramNode&)>& make) const {
  UnitProgram program{.instructions = {}, .values = values_, .input = input.index, .output = output.index};
  for (const auto& [value, users] : used_in_) {
    if (users.contains(unit) && value != input.index && !is_made_in(value, unit)) {
      program.imports.push_back(value);
      const auto made = made_in_.find(value);
      TRAINOPT_CHECK(made != made_in_.end() || value == of_user.index);
    }
    // The user's input is there from the start, so the first unit leaves it to the others.
    const bool first_has_it = unit == 0 && value == of_user.index;
    const bool used_later = !users.empty() && *users.rbegin() > unit;
    if ((is_made_in(value, unit) || first_has_it) && used_later && is_imported_later(value, unit))
      program.exports.push_back(value);
  }
  for (size_t at = units_[unit].first; at < units_[unit].end; ++at) {
    if (nodes_[at] == nullptr) continue;
    Instruction& added = program.instructions.emplace_back(make(*nodes_[at]));
    if (const auto last = last_of_.find(at); last != last_of_.end())
      for (const int64_t value : last->second)
        if (value != output.index && !contains(program.exports, value)) added.last_uses.push_back(value);
  }
  return program;
}

std::vector<SideValueUse> Order::side_values() const {
  std::vector<SideValueUse> uses;
  for (const auto& [value, users] : used_in_) {
    const auto made = made_in_.find(value);
    const size_t made_in = made == made_in_.end() ? 0 : made->second;
    for (auto user = users.rbegin(); user != users.rend() && *user > made_in; ++user)
      if (units_[*user].input.index != value) {
        uses.push_back({.value = value, .made_in = made_in, .last_used_in = *user});
        break;
      }
  }
  return uses;
}

bool Order::is_made_in(int64_t value, size_t unit) const {
  const auto made = made_in_.find(value);
  return made != made_in_.end() && made->second == unit;
}

bool Order::is_imported_later(int64_t value, size_t unit) const {
  for (const size_t user : used_in_.at(value))
    if (user > unit && units_[user].input.index != value) return true;
  return false;
}

}  // namespace trainopt
