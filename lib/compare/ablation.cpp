#include "compare/ablation.h"

#include "base/error.h"
#include "base/files/files.h"
#include "base/log.h"
#include "base/philox.h"
#include "base/units.h"
#include "compare/arms/make_arm.h"
#include "compare/ceilings.h"
#include "compare/measure.h"
#include "compare/output/comparison_json.h"
#include "compare/output/comparison_text.h"
#include "compare/output/remarks.h"
#include "compare/shares.h"
#include "recipe/make_plan.h"
#include "recipe/recipe_io.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace trainopt {
namespace {

constexpr double kMinCellSeconds = 5;  // a cell is not started with less
constexpr size_t kPairCells = 3;       // pairs of switches that the budget reserves time for

/// Switches that `name` requires, or that require `name`. Found by trying, so that no rule is written twice.
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
  return {};  // measuring the cell will report what is wrong
}

/// The time for the next of `cells` cells: an equal share of what is left, but at least kMinCellSeconds, so the first
/// cells are measured if there is too little time for all.
double next_share(const AblationBench& bench, size_t cells) {
  const double left = bench.seconds_left();
  if (bench.has_repeats()) return kMinCellSeconds;
  return left < kMinCellSeconds ? 0 : std::max(kMinCellSeconds, left / static_cast<double>(std::max<size_t>(1, cells)));
}

/// The extra costs of the arm with the switch over the arm without it, in one cell.
struct Costs {
  std::optional<double> start_s, memory_mib;
};

Costs costs(const ArmResult& with, const ArmResult& without) {
  Costs more{.start_s = with.facts.time_to_first_step_s - without.facts.time_to_first_step_s, .memory_mib = {}};
  if (with.facts.peak_memory_mib && without.facts.peak_memory_mib)
    more.memory_mib = *with.facts.peak_memory_mib - *without.facts.peak_memory_mib;
  return more;
}

/// The mean over both cells of a switch.
std::optional<double> mean(const std::optional<double>& alone, const std::optional<double>& in_stack) {
  return alone && in_stack ? std::optional((*alone + *in_stack) / 2) : std::nullopt;
}

/// `c`: everything on (A) against everything but the switch (B).
void add_costs(SwitchRow& row, const Costs& alone, const Comparison& c) {
  const ArmResult &full = c.arms[0], &without = c.arms[1];
  const Costs in_stack = costs(full, without);
  row.one_off_s = mean(alone.start_s, in_stack.start_s);
  row.memory_mib = mean(alone.memory_mib, in_stack.memory_mib);
  const double saved_s = static_cast<double>(full.facts.step_samples) *
                         (1 / without.samples_per_s - 1 / full.samples_per_s);  // seconds per step of the full stack
  if (row.one_off_s && row.in_stack.verdict == Verdict::pays && saved_s > 0)
    row.break_even_step = *row.one_off_s <= 0 ? 0 : static_cast<int64_t>(std::ceil(*row.one_off_s / saved_s));
}

/// `Of`: SwitchRow or Ablation.
template <class Of>
void add_numbers(Of& of, const Comparison& c) {
  const auto& numbers = c.numbers();
  if (!numbers) return;
  if (!numbers->not_comparable.empty()) {
    of.numbers = numbers->not_comparable;
    return;
  }
  of.numbers_agree = numbers->agree();
  of.numbers = fmt::format("{}", fmt::join(numbers->disagreements(), "; "));
}

Interaction interaction(const Gain& both, const Gain& one, const Gain& other, std::string with) {
  Interaction result{std::move(with), *both.ratio / (*one.ratio * *other.ratio), {}};
  if (both.interval && one.interval && other.interval)
    result.interval = Interval{both.interval->low / (one.interval->high * other.interval->high),
                               both.interval->high / (one.interval->low * other.interval->low)};
  return result;
}

/// How much a switch's gain depends on the others, which shows the pairs worth measuring.
double dependence(const SwitchRow& row) {
  return row.alone.ratio && row.in_stack.ratio ? std::abs(std::log(*row.in_stack.ratio) - std::log(*row.alone.ratio))
                                               : 0;
}

/// Measures the cells of one ablation into its rows.
class AblationCells {
 public:
  AblationCells(const AblationRequest& request, const SwitchSet& all, ArmFactory& factory, const Observer& observer,
                std::vector<Ceiling> ceilings, Ablation& result)
      : result_(result),
        all_(all),
        observer_(observer),
        ceilings_(std::move(ceilings)),
        bench_(request, all, factory, observer) {
    for (auto& row : result.switches)
      if (row.no_effect.empty()) rows_.push_back(&row);
    const size_t pairs = rows_.size() * (rows_.size() - 1) / 2;
    const size_t of_switches = rows_.size() == 1 ? 0 : 2 * rows_.size();
    cells_left_ = 1 + of_switches + ceilings_.size() + std::min(pairs, kPairCells);
  }

  void measure_total() {
    const size_t cells = cells_left_;
    if (bench_.seconds_left() < kMinCellSeconds && !bench_.has_repeats())
      throw BudgetTooShort(fmt::format(
          "the budget is too short: a measurement gets at least {:.0f} s, and there are {}", kMinCellSeconds, cells));
    observer_.report(
        fmt::format("{} of {}: all of them, each alone, each left out, what else costs, and pairs; at most {}",
                    counted(static_cast<int64_t>(cells), "measurement"),
                    counted(static_cast<int64_t>(rows_.size()), "switch", "es"),
                    to_text(Duration{std::round(bench_.seconds_left())})));
    const Cell total = bench_.measure({}, all_, {}, next_share(bench_, cells_left_--));
    result_.total = total.gain;
    if (rows_.size() > 1) say_what_fits(cells);
    if (!total.comparison) return;
    const Comparison& c = *total.comparison;
    result_.plain_samples_per_s = c.arms[0].samples_per_s;
    result_.full_samples_per_s = c.arms[1].samples_per_s;
    result_.warnings = conditions_of(c.sampling.rounds);
    add_numbers(result_, c);
    if (rows_.size() == 1) total_ = c;
    for (auto& row : result_.switches)
      if (const Json& receipts = c.arms[1].facts.receipts; receipts.contains(row.name))
        row.receipt = receipts.at(row.name);
  }

  /// A single switch is all there is: its gain alone and in the stack is the total.
  void take_from_total() {
    SwitchRow& row = *rows_.front();
    row.alone = row.in_stack = result_.total;
    if (!total_) return;
    row.numbers_agree = result_.numbers_agree;
    row.numbers = result_.numbers;
    alone_costs_[row.name] = costs(total_->arms[1], total_->arms[0]);
    std::swap(total_->arms[0], total_->arms[1]);
    in_stack_costs_[row.name] = *total_;
  }

  void measure_alone() {
    for (SwitchRow* row : rows_) {
      row->needs = companions(bench_, all_, row->name);
      SwitchSet a(row->needs.begin(), row->needs.end()), b = a;
      if (bench_.possible({row->name})) a = b = {};  // it does not need the other; the other needs it
      b.insert(row->name);
      const Cell cell = bench_.measure(a, b, {}, next_share(bench_, cells_left_--));
      row->alone = cell.gain;
      if (!cell.comparison) continue;
      add_numbers(*row, *cell.comparison);
      alone_costs_[row->name] = costs(cell.comparison->arms[1], cell.comparison->arms[0]);
    }
  }

  /// Measures the switches with the largest effect alone first.
  void measure_in_stack() {
    std::stable_sort(rows_.begin(), rows_.end(), [](const SwitchRow* x, const SwitchRow* y) {
      return std::abs(std::log(x->alone.ratio.value_or(1))) > std::abs(std::log(y->alone.ratio.value_or(1)));
    });
    for (SwitchRow* row : rows_) {
      // A switch that requires this one is off in both arms, so that its gain is not counted here too.
      SwitchSet with = all_, without = all_;
      without.erase(row->name);
      if (!bench_.possible(without))
        for (const auto& other : row->needs) with.erase(other), without.erase(other);
      const Cell cell = bench_.measure(with, without, {}, next_share(bench_, cells_left_--));
      row->in_stack = cell.gain.inverse();
      if (cell.comparison) in_stack_costs_[row->name] = *cell.comparison;
    }
  }

  void measure_ceilings() {
    for (const Ceiling ceiling : ceilings_)
      result_.ceilings.push_back(
          {ceiling, bench_.measure(all_, all_, ceiling, next_share(bench_, cells_left_--)).gain});
  }

  void measure_pairs() {
    std::vector<std::pair<SwitchRow*, SwitchRow*>> pairs;
    for (auto& one : result_.switches)
      for (auto& other : result_.switches)
        if (&one < &other && one.alone.ratio && other.alone.ratio && one.needs.empty() && other.needs.empty())
          pairs.emplace_back(&one, &other);
    const auto weight = [](const auto& pair) { return dependence(*pair.first) + dependence(*pair.second); };
    std::stable_sort(pairs.begin(), pairs.end(), [&](const auto& a, const auto& b) { return weight(a) > weight(b); });
    for (size_t i = 0; i < pairs.size(); ++i) {
      auto& [one, other] = pairs[i];
      // Later pairs matter less, so each gets a third of the time that is left.
      const Cell cell =
          bench_.measure({}, {one->name, other->name}, {}, next_share(bench_, std::min<size_t>(3, pairs.size() - i)));
      if (!cell.gain.ratio) continue;
      result_.pairs.push_back({one->name, other->name, cell.gain});
    }
  }

  /// Computes what follows from the cells, after all have been judged.
  void conclude() {
    for (SwitchRow* row : rows_) {
      if (const auto found = in_stack_costs_.find(row->name); found != in_stack_costs_.end())
        add_costs(*row, alone_costs_[row->name], found->second);
      for (const PairCell& pair : result_.pairs) {
        if (pair.one != row->name && pair.other != row->name) continue;
        const SwitchRow& other = row_of(pair.one == row->name ? pair.other : pair.one);
        const Interaction found = interaction(pair.gain, row->alone, other.alone, other.name);
        if (!row->interaction || std::abs(std::log(found.ratio)) > std::abs(std::log(row->interaction->ratio)))
          row->interaction = found;
      }
    }
  }

 private:
  /// After the first cell has shown how long a pair of processes takes.
  void say_what_fits(size_t cells) const {
    const double cell_s = static_cast<double>(AblationBench::kFewestPairs) * bench_.pair_s();
    const auto fit = static_cast<size_t>(std::max(0.0, bench_.seconds_left()) / std::max(cell_s, 1e-3));
    if (fit >= cells - 1) return;
    const double all_s = std::ceil(cell_s * static_cast<double>(cells - 1 - fit) / 60) * 60;
    observer_.report(fmt::format(
        "a pair of processes takes {}: of the {} other measurements, the budget has room for about {}; about {} more "
        "would be enough for all",
        to_text(Duration{std::ceil(bench_.pair_s())}), cells - 1, fit, to_text(Duration{all_s})));
  }

  const SwitchRow& row_of(const std::string& name) const {
    return *std::find_if(result_.switches.begin(), result_.switches.end(),
                         [&](const SwitchRow& row) { return row.name == name; });
  }

  Ablation& result_;
  const SwitchSet& all_;
  const Observer& observer_;
  std::vector<Ceiling> ceilings_;
  AblationBench bench_;
  std::vector<SwitchRow*> rows_;  ///< rows of switches that have an effect here
  size_t cells_left_ = 0;
  std::map<std::string, Costs> alone_costs_;
  std::map<std::string, Comparison> in_stack_costs_;
  std::optional<Comparison> total_;  ///< the total is kept if there is a single switch
};

/// Whether this switch of the request's recipe has its default value. With several ranks a plan always has a switch
/// that says how they exchange gradients.
bool is_default(const AblationRequest& request, const Recipe& recipe, const std::string& name) {
  Sources without = request.sources;
  without.overrides.push_back(switched_off(name));
  try {
    return recipe_yaml(load_recipe(without, request.ranks).recipe) == recipe_yaml(recipe);
  } catch (const UserError&) {  // named recovery: another switch needs this one, so it is on
    return false;
  }
}

/// Whether the switch is to be measured, among those that the recipe turns on.
bool is_wanted(const AblationRequest& request, const std::string& name) {
  const auto& only = request.only;
  return only.empty() ? !is_of_the_job(name) : std::find(only.begin(), only.end(), name) != only.end();
}

/// Throws UserError if a switch that is asked for has no row.
void require_rows(const AblationRequest& request, const std::set<std::string>& on, const Ablation& result) {
  for (const std::string& name : request.only)
    if (std::none_of(result.switches.begin(), result.switches.end(),
                     [&](const SwitchRow& row) { return row.name == name; }))
      throw UserError(fmt::format("--only must name switches that the recipe turns on, which are {}: {}",
                                  fmt::join(on, ", "), name));
}

/// Adds a row for each switch to measure; returns those that have an effect here. Throws UserError if none has.
SwitchSet add_rows(const AblationRequest& request, const Recipe& recipe, const Plan& plan, Ablation& result) {
  SwitchSet all;
  std::set<std::string> on;
  for (const auto& planned : plan.switches) {
    if (is_default(request, recipe, planned.name)) continue;
    on.insert(planned.name);
    if (!is_wanted(request, planned.name)) continue;
    SwitchRow row;
    row.name = planned.name;
    row.requested = planned.requested;
    if (!planned.outcome.has_effect)
      row.no_effect = planned.outcome.text;
    else
      all.insert(planned.name);
    result.switches.push_back(std::move(row));
  }
  require_rows(request, on, result);
  if (all.empty())
    throw UserError(
        "no switch of this recipe has an effect here, so there is nothing to ablate; trainopt plan shows why");
  return all;
}

}  // namespace

Gain Gain::inverse() const {
  Gain other = *this;
  if (ratio) other.ratio = 1 / *ratio;
  for (double& log_ratio : other.pairs) log_ratio = -log_ratio;
  if (interval) other.interval = Interval{1 / interval->high, 1 / interval->low};
  if (verdict == Verdict::pays) other.verdict = Verdict::costs;
  if (verdict == Verdict::costs) other.verdict = Verdict::pays;
  return other;
}

void judge_gains(Ablation& ablation) {
  std::vector<Gain*> gains{&ablation.total};
  for (auto& row : ablation.switches) gains.insert(gains.end(), {&row.alone, &row.in_stack});
  for (auto& row : ablation.ceilings) gains.push_back(&row.gain);
  for (auto& pair : ablation.pairs) gains.push_back(&pair.gain);
  std::vector<CellPairs> pairs;
  for (const Gain* gain : gains) pairs.push_back(gain->pairs);
  const CellsResult judged = judge_cells(pairs, ablation.level, ablation.min_effect);
  size_t pair_count = 0;
  for (size_t i = 0; i < gains.size(); ++i) {
    if (pairs[i].empty()) continue;
    const CellResult& cell = judged.cells[i];
    gains[i]->ratio = cell.ratio;
    gains[i]->interval = cell.interval;
    gains[i]->verdict = cell.verdict;
    gains[i]->standard_error = cell.standard_error;
    pair_count += pairs[i].size();
  }
  ablation.pair_sd = judged.pair_sd;
  ablation.pairs_needed = judged.pairs_needed;
  if (judged.pairs_needed && pair_count > 0)
    ablation.budget_needed_s = ablation.seconds / static_cast<double>(pair_count) * static_cast<double>(gains.size()) *
                               static_cast<double>(*judged.pairs_needed);
  attribute(ablation, judged.reach);
}

Ablation ablate(const AblationRequest& request, ArmFactory& factory, const Observer& observer) {
  const auto began = Clock::now();
  const Recipe recipe = load_recipe(request.sources, request.ranks).recipe;
  Ablation result;
  result.name = recipe.name;
  result.command = request.command;
  result.part = !request.only.empty();
  result.price_per_hour = recipe.bench.price_per_hour;
  result.level = request.options.level;
  result.min_effect = request.options.min_effect;
  const Plan plan = factory.plan({.recipe = recipe, .folder = {}, .without = {}, .batch_seed = {}});
  const SwitchSet all = add_rows(request, recipe, plan, result);
  // A switch without an effect here is off in every arm, because it may require a switch that a cell leaves out.
  AblationRequest effective = request;
  for (const auto& row : result.switches)
    if (!row.no_effect.empty()) effective.sources.overrides.push_back(switched_off(row.name));
  const bool with_ceilings = request.only.empty();  // nobody named them
  AblationCells cells(effective, all, factory, observer,
                      with_ceilings ? ceilings_of(plan.position.ranks) : std::vector<Ceiling>(), result);
  cells.measure_total();
  if (all.size() == 1) {
    cells.take_from_total();
  } else {
    cells.measure_alone();
    cells.measure_in_stack();
  }
  cells.measure_ceilings();
  cells.measure_pairs();
  remove_first_steps(request.folder);
  result.seconds = seconds_since(began);
  judge_gains(result);
  cells.conclude();
  return result;
}

AblationBench::AblationBench(const AblationRequest& request, SwitchSet all, ArmFactory& factory,
                             const Observer& observer)
    : request_(request), all_(std::move(all)), factory_(factory), observer_(observer) {
  quiet_.stop = observer.stop;
  constexpr int64_t kArmsOfFirstCell = 2 * kFewestPairs;
  warm_up_ = std::make_shared<WarmUp>(request.options, limit_of(request.until, observer), kArmsOfFirstCell,
                                      request.options.twins);
}

Recipe AblationBench::recipe(const SwitchSet& on) const {
  Sources sources = request_.sources;
  for (const auto& name : all_)
    if (!on.contains(name)) sources.overrides.push_back(switched_off(name));
  return load_recipe(sources, request_.ranks).recipe;
}

bool AblationBench::possible(const SwitchSet& on) const {
  try {
    factory_.plan({.recipe = recipe(on), .folder = {}, .without = {}, .batch_seed = {}});
    return true;
  } catch (const UserError&) {  // named recovery: the caller searches for a possible set
    return false;
  }
}

double AblationBench::seconds_left() const { return -seconds_since(request_.until); }

std::string AblationBench::name_of(const SwitchSet& on) const {
  if (on.empty()) return "plain";
  if (on == all_) return "all";
  SwitchSet off;
  std::set_difference(all_.begin(), all_.end(), on.begin(), on.end(), std::inserter(off, off.end()));
  return off.size() < on.size() ? fmt::format("all but {}", fmt::join(off, "+"))
                                : fmt::format("{}", fmt::join(on, "+"));
}

ArmSpec AblationBench::spec(const SwitchSet& on, std::optional<Ceiling> without) {
  return {.recipe = recipe(on),
          .folder = request_.folder / fmt::format("arm-{}", ++arms_),
          .without = without,
          .batch_seed = {}};
}

const Twins& AblationBench::twins_of_plain(const ArmSpec& plain, Yardstick kind) {
  Twins& twins = twins_[kind];
  if (twins.wanted == 0)
    twins =
        twins_in_processes(plain, kind, factory_, *warm_up_, request_.options, after(seconds_left() / 4), observer_);
  return twins;
}

Comparison AblationBench::compare_cell(const ArmSpec& a, const ArmSpec& b, const std::string& name_a,
                                       const std::string& name_b, bool a_is_plain, double seconds) {
  std::function<Numerics(std::span<const WarmArm>)> numbers;
  if (a_is_plain)
    numbers = [&twins = twins_of_plain(a, yardstick(a.recipe, b.recipe))](std::span<const WarmArm> pair) {
      return compare_with_twins(twins, pair[0], pair[1]);
    };
  if (observer_.stopped()) throw UserError(kStopped);  // while the twins were trained
  const auto until = after(seconds);                   // without the twins, which serve all cells
  CompareOptions options = request_.options;
  // With the same coin tosses, the errors of the cells would be correlated.
  options.seed = mix_key(options.seed, static_cast<uint64_t>(arms_));
  SetOptions pairs{.make = {fresh_arms(name_a, a, factory_, warm_up_), fresh_arms(name_b, b, factory_, warm_up_)},
                   .first_set = {},
                   .min_sets = kFewestPairs,
                   .latest = request_.until,
                   .may_decide = false};
  const auto began = Clock::now();
  Comparison cell = compare_in_process_pairs(std::move(pairs), numbers, options, until, quiet_);
  pair_s_ = std::max(pair_s_, seconds_since(began) / static_cast<double>(cell.sets()));
  return cell;
}

Cell AblationBench::measure(const SwitchSet& a, const SwitchSet& b, std::optional<Ceiling> b_without, double seconds) {
  Cell cell;
  const bool fits = has_repeats() || (seconds > 0 && kFewestPairs * pair_s_ <= seconds_left());
  if (!fits || observer_.stopped() || !factory_.is_sound()) {
    cell.gain.reason = observer_.stopped() ? kStopped : factory_.is_sound() ? kNoTimeLeft : kRankLost;
    return cell;
  }
  const std::string name_a = name_of(a),
                    name_b = b_without ? fmt::format("{} without the cost of {}", name_of(b), word_of(*b_without))
                                       : name_of(b);
  const std::string what = fmt::format("{} against {}", name_b, name_a);
  quiet_.now = [this, what](const std::string& now) { observer_.now(fmt::format("{}, {}", what, now)); };
  try {
    const ArmSpec arm_a = spec(a, {}), arm_b = spec(b, b_without);
    cell.comparison = compare_cell(arm_a, arm_b, name_a, name_b, a.empty(), seconds);
    remove_first_steps(arm_a.folder);
    remove_first_steps(arm_b.folder);
    write_file(arm_b.folder / "result.json", json_text(to_json(*cell.comparison, true), 1) + "\n");
    const PairResult& result = cell.comparison->pair();
    const std::string& failure = cell.comparison->sampling.failure;
    if (result.process_pairs() < kFewestPairs && !observer_.stopped()) {
      cell.gain.reason = failure.empty() ? kNoTimeLeft : failure;
      cell.comparison.reset();
      return cell;
    }
    cell.gain.ratio = result.ratio;
    cell.gain.blocks = static_cast<int64_t>(result.blocks.size());
    for (const Measurement& pair : measurements_of(result.blocks, true))
      cell.gain.pairs.push_back(std::log(pair.seconds_per_sample.a / pair.seconds_per_sample.b));
    observer_.report(
        fmt::format("{}: {} in {}", what, percent_faster(result.ratio), counted(result.process_pairs(), "pair")));
  } catch (const BudgetTooShort& error) {  // named recovery: the last cells may find less time than they need
    if (pair_s_ == 0) throw;
    cell.gain.reason = kNoTimeLeft;
    log_debug("{}: {}", what, error.what());
  } catch (const UserError& error) {  // named recovery: a cell that fails becomes a row with its reason
    cell.gain.reason = observer_.stopped() ? kStopped : error.what();
    if (!observer_.stopped()) observer_.report(fmt::format("{}: {}", what, error.what()));
  }
  return cell;
}

}  // namespace trainopt
