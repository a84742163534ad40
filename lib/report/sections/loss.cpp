#include "report/figures.h"
#include "report/sections.h"

#include <algorithm>

namespace trainopt::report {
namespace {

const Columns* evaluated(const RunFolder& run, std::string_view name) {
  const auto found = std::find_if(run.evaluations.begin(), run.evaluations.end(),
                                  [&](const NamedColumns& each) { return each.name == name; });
  return found == run.evaluations.end() || found->columns.empty() ? nullptr : &found->columns;
}

Html accuracy(const RunFolder& run, const Place& place) {
  LineChart chart = line_chart(place, "accuracy", "Accuracy in evaluations", "%");
  chart.from_zero = false;
  for (const auto& [name, words] : {std::pair{"top1_pct", "top-1"}, std::pair{"top5_pct", "top-5"}})
    if (const Columns* columns = evaluated(run, name)) chart.series.push_back(series(words, *columns));
  chart.top = 100;
  return chart.series.empty() ? Html() : draw(chart);
}

Html one_metric(const RunFolder& run, const Place& place, Metric metric, const char* key, const char* title) {
  if (run.steps.of(metric).empty()) return {};
  LineChart chart = line_chart(place, key, title, "");
  chart.series.push_back(series(title, run.steps.of(metric)));
  return draw(chart);
}

}  // namespace

Section loss_section(const RunFolder& run, const Place& place) {
  Section section{place.ids + "loss-section", place.heading + "Loss and evaluation", {}};
  if (run.steps.steps() == 0) return section;
  const bool on_training_data = !Figures(run.summary, place.keys).known_text("evaluation.trained_on").empty();
  LineChart chart = line_chart(place, "loss", "Loss", "");
  chart.from_zero = false;
  chart.series.push_back(series("training", run.steps.of(Metric::loss)));
  if (const Columns* loss = evaluated(run, "loss"))
    chart.series.push_back(series(on_training_data ? "evaluation, on data that is trained on" : "evaluation", *loss));
  section.content = cards(draw(chart) + accuracy(run, place) +
                          one_metric(run, place, Metric::learning_rate, "learning-rate", "Learning rate") +
                          one_metric(run, place, Metric::grad_norm, "gradient-norm", "Norm of the gradients") +
                          one_metric(run, place, Metric::loss_scale, "loss-scale", "Loss scale"));
  const Figures summary(run.summary, place.keys);
  section.content += fact_table("Loss and evaluation",
                                {{"first loss", summary.known("loss.first", plain_text)},
                                 {"last loss", summary.known("loss.last", plain_text)},
                                 {"evaluated on data that is trained on", summary.known_text("evaluation.trained_on")},
                                 {"evaluation loss", summary.known("evaluation.loss", plain_text)},
                                 {"perplexity", summary.known("evaluation.perplexity", plain_text)},
                                 {"top-1", summary.known("evaluation.top1_pct", percent_text)},
                                 {"top-5", summary.known("evaluation.top5_pct", percent_text)},
                                 {"steps skipped as non-finite", summary.known("skipped_steps", count_text)}});
  return section;
}

}  // namespace trainopt::report
