#include "compare/ablation.h"

#include "base/error.h"
#include "compare/ablation_bench.h"
#include "compare/make_arm.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace trainopt {
namespace {

constexpr std::array kCeilings{Ceiling::data, Ceiling::optimizer, Ceiling::logging};
constexpr double kLeastCellSeconds = 5;  // with less, a cell is not begun

/// Switches without which `name` cannot be on, or whose going takes it along: found by trying, so that no rule is
/// written twice.
std::vector<std::string> companions(const AblationBench& bench, const SwitchSet& all, const std::string& name) {
  SwitchSet without = all;
  without.erase(name);
  if (bench.possible({name}) && bench.possible(without)) return {};
  for (const auto& other : without) {
    SwitchSet rest = without;
    rest.erase(other);
    if ((bench.possible({name}) || bench.possible({name, other})) && (bench.possible(without) || bench.possible(rest)))
      return {other};
  }
  return {};  // the cell will say what is wrong
}

/// The time for the next of `cells` cells: what is too little for all is given to the first.
double next_share(const AblationBench& bench, size_t cells) {
  const double left = bench.seconds_left();
  return left < kLeastCellSeconds ? 0
                                  : std::max(kLeastCellSeconds, left / static_cast<double>(std::max<size_t>(1, cells)));
}

/// What the arm with the switch costs more than the one without, in this cell.
struct Costs {
  std::optional<double> start_s, memory_mib;
};

Costs costs(const ArmResult& with, const ArmResult& without) {
  Costs more{.start_s = with.facts.time_to_first_step_s - without.facts.time_to_first_step_s, .memory_mib = {}};
  if (with.facts.peak_memory_mib && without.facts.peak_memory_mib)
    more.memory_mib = *with.facts.peak_memory_mib - *without.facts.peak_memory_mib;
  return more;
}

/// The arm made second starts on a machine that the first has changed. Alone the switch is in the second arm, within
/// the stack in the first: the mean of both cells is free of that.
std::optional<double> mean(const std::optional<double>& alone, const std::optional<double>& in_stack) {
  return alone && in_stack ? std::optional((*alone + *in_stack) / 2) : std::nullopt;
}

/// `c`: everything on (A) against everything but the switch (B).
void add_costs(SwitchRow& row, const Costs& alone, const Comparison& c) {
  const Costs in_stack = costs(c.a, c.b);
  row.one_off_s = mean(alone.start_s, in_stack.start_s);
  row.memory_mib = mean(alone.memory_mib, in_stack.memory_mib);
  const double saved_s = static_cast<double>(c.a.facts.step_samples) *
                         (1 / c.b.samples_per_s - 1 / c.a.samples_per_s);  // a step of the full stack
  if (row.one_off_s && row.in_stack.verdict == Verdict::pays && saved_s > 0)
    row.break_even_step = *row.one_off_s <= 0 ? 0 : static_cast<int64_t>(std::ceil(*row.one_off_s / saved_s));
}

/// `Of`: a row, or the whole ablation.
template <class Of>
void add_numbers(Of& of, const Comparison& c) {
  if (!c.numerics) return;
  if (!c.numerics->not_comparable.empty()) {
    of.numbers = c.numerics->not_comparable;
    return;
  }
  of.numbers_agree = c.numerics->agree();
  of.numbers = fmt::format("{}", fmt::join(c.numerics->disagreements(), "; "));
}

Interaction interaction(const Gain& both, const Gain& one, const Gain& other, std::string with) {
  Interaction result{std::move(with), *both.ratio / (*one.ratio * *other.ratio), {}};
  if (both.interval && one.interval && other.interval)
    result.interval = Interval{both.interval->low / (one.interval->high * other.interval->high),
                               both.interval->high / (one.interval->low * other.interval->low)};
  return result;
}

/// How much a switch's gain depends on the others: what pairs are worth looking at.
double dependence(const SwitchRow& row) {
  return row.alone.ratio && row.in_stack.ratio ? std::abs(std::log(*row.in_stack.ratio) - std::log(*row.alone.ratio))
                                               : 0;
}

void measure_pairs(Ablation& result, AblationBench& bench) {
  std::vector<std::pair<SwitchRow*, SwitchRow*>> pairs;
  for (auto& one : result.switches)
    for (auto& other : result.switches)
      if (&one < &other && one.alone.ratio && other.alone.ratio && one.needs.empty() && other.needs.empty())
        pairs.emplace_back(&one, &other);
  const auto weight = [](const auto& pair) { return dependence(*pair.first) + dependence(*pair.second); };
  std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
  for (size_t i = 0; i < pairs.size(); ++i) {
    auto& [one, other] = pairs[i];
    // The later pairs matter less and less, so the next one gets a third of what is left.
    const Cell cell =
        bench.measure({}, {one->name, other->name}, {}, next_share(bench, std::min<size_t>(3, pairs.size() - i)));
    if (!cell.gain.ratio) continue;
    for (auto [row, with] : {std::pair(one, other), std::pair(other, one)}) {
      const Interaction found = interaction(cell.gain, one->alone, other->alone, with->name);
      if (!row->interaction || std::abs(std::log(found.ratio)) > std::abs(std::log(row->interaction->ratio)))
        row->interaction = found;
    }
  }
}

}  // namespace

const char* const kShareRule =
    "a switch's share is the geometric mean of its gain alone and its gain within the stack, which is its Shapley "
    "value if switches interact in pairs only; what the shares then "
    "miss of the total is spread over them in proportion to their size";

Gain Gain::inverse() const {
  Gain other = *this;
  if (ratio) other.ratio = 1 / *ratio;
  if (interval) other.interval = Interval{1 / interval->high, 1 / interval->low};
  if (verdict == Verdict::pays) other.verdict = Verdict::costs;
  if (verdict == Verdict::costs) other.verdict = Verdict::pays;
  return other;
}

void attribute(Ablation& ablation) {
  if (!ablation.total.ratio) return;
  double sum = 0, size = 0;
  std::vector<std::pair<SwitchRow*, double>> measured;
  for (auto& row : ablation.switches) {
    if (!row.alone.ratio && !row.in_stack.ratio) continue;
    const double alone = std::log(row.alone.ratio.value_or(row.in_stack.ratio.value_or(1))),
                 in_stack = std::log(row.in_stack.ratio.value_or(row.alone.ratio.value_or(1)));
    measured.emplace_back(&row, (alone + in_stack) / 2);
    sum += measured.back().second;
    size += std::abs(measured.back().second);
  }
  const double residue = std::log(*ablation.total.ratio) - sum;
  ablation.residue = std::exp(residue);
  for (auto& [row, share] : measured)
    row->share =
        std::exp(share + residue * (size > 0 ? std::abs(share) / size : 1 / static_cast<double>(measured.size())));
}

Ablation ablate(const AblationRequest& request, const Machine& machine, const Observer& observer) {
  const auto began = Clock::now();
  const Recipe recipe = load_recipe(request.sources).recipe;
  Ablation result;
  result.name = recipe.name;
  result.level = request.options.level;
  result.min_effect = request.options.min_effect;
  SwitchSet all;
  for (const auto& planned : make_plan(recipe, machine).switches) {
    SwitchRow row;
    row.name = planned.name;
    row.requested = planned.requested;
    if (!planned.outcome.has_effect)
      row.no_effect = planned.outcome.text;
    else
      all.insert(planned.name);
    result.switches.push_back(std::move(row));
  }
  if (all.empty())
    throw UserError(
        "no switch of this recipe does anything here, so there is nothing to ablate; trainopt plan says why");

  // Switches without effect stay as the recipe has them, in every arm.
  AblationBench bench(request, all, machine, observer);
  std::vector<SwitchRow*> rows;
  for (auto& row : result.switches)
    if (row.no_effect.empty()) rows.push_back(&row);
  size_t cells = 1 + 2 * rows.size() + kCeilings.size();

  const Cell total = bench.measure(
      {}, all, {}, std::min(2 * next_share(bench, cells--), bench.seconds_left()));  // everything else is a part of it
  result.total = total.gain;
  result.noise = bench.noise();
  if (total.comparison) {
    result.plain_samples_per_s = total.comparison->a.samples_per_s;
    result.full_samples_per_s = total.comparison->b.samples_per_s;
    result.warnings = total.comparison->warnings;
    add_numbers(result, *total.comparison);
    for (auto& row : result.switches)
      if (total.comparison->b.facts.receipts.contains(row.name))
        row.receipt = total.comparison->b.facts.receipts.at(row.name);
  }
  std::map<std::string, Costs> alone_costs;
  for (SwitchRow* row : rows) {
    row->needs = companions(bench, all, row->name);
    SwitchSet a(row->needs.begin(), row->needs.end()), b = a;
    if (bench.possible({row->name})) a = b = {};  // it only takes the other along when it goes
    b.insert(row->name);
    const Cell cell = bench.measure(a, b, {}, next_share(bench, cells--));
    row->alone = cell.gain;
    if (!cell.comparison) continue;
    add_numbers(*row, *cell.comparison);
    alone_costs[row->name] = costs(cell.comparison->b, cell.comparison->a);
  }
  std::stable_sort(rows.begin(), rows.end(), [](const SwitchRow* x, const SwitchRow* y) {
    return std::abs(std::log(x->alone.ratio.value_or(1))) > std::abs(std::log(y->alone.ratio.value_or(1)));
  });
  for (SwitchRow* row : rows) {
    SwitchSet without = all;
    without.erase(row->name);
    if (!bench.possible(without))
      for (const auto& other : row->needs) without.erase(other);
    const Cell cell = bench.measure(all, without, {}, next_share(bench, cells--));
    row->in_stack = cell.gain.inverse();
    if (cell.comparison) add_costs(*row, alone_costs[row->name], *cell.comparison);
  }
  for (const Ceiling ceiling : kCeilings)
    result.ceilings.push_back({ceiling, bench.measure(all, all, ceiling, next_share(bench, cells--)).gain});
  measure_pairs(result, bench);
  attribute(result);
  remove_first_steps(request.folder);
  result.seconds = seconds_since(began);
  return result;
}

std::vector<CeilingRow> measure_ceilings(const Recipe& recipe, const std::filesystem::path& folder,
                                         const CompareOptions& options, Clock::time_point until, const Machine& machine,
                                         const Observer& observer) {
  std::vector<CeilingRow> rows;
  const auto spec = [&](const char* name, std::optional<Ceiling> without) {
    return ArmSpec{.recipe = recipe, .folder = folder / name, .without = without, .batch_seed = {}};
  };
  std::optional<Baseline> baseline;
  for (size_t i = 0; i < kCeilings.size(); ++i) {
    Gain gain;
    try {
      if (!baseline)
        baseline = make_baseline(warm_up("the job", make_arm(spec("job", {}), machine, ArmHost::this_process), options),
                                 {}, options, until, observer);
      const auto end = after(-seconds_since(until) / static_cast<double>(kCeilings.size() - i));
      const std::string name(word_of(kCeilings[i]));
      const Comparison c = compare(
          *baseline, warm_up(name, make_arm(spec(name.c_str(), kCeilings[i]), machine, ArmHost::this_process), options),
          options, end, observer);
      gain = {.ratio = c.ratio,
              .interval = c.interval,
              .verdict = c.verdict,
              .blocks = static_cast<int64_t>(c.blocks.size()),
              .reason = {}};
    } catch (const std::exception& error) {  // named recovery: the run itself has ended well
      const std::string what = error.what();
      gain.reason = what.substr(0, what.find('\n'));
    }
    rows.push_back({kCeilings[i], std::move(gain)});
    if (observer.stopped()) break;
  }
  remove_first_steps(folder);
  return rows;
}

}  // namespace trainopt
