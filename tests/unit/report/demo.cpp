// report_demo FILE [empty|long]: writes a page with every kind of chart and table over made-up data, for
// scripts/workshop/look_at_report and tests/cli/test_report_page.py.
#include "report/charts.h"
#include "report/page.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <string>

namespace trainopt::report {
namespace {

double noise(int64_t i, int64_t seed) {
  return std::sin(12.9898 * static_cast<double>(i) + 78.2 * static_cast<double>(seed)) *
         std::cos(4.1 * static_cast<double>(i * i % 977));
}

Series series(const std::string& name, int64_t steps, int64_t every, double (*value)(double, double)) {
  Columns columns;
  for (int64_t step = 0; step < steps; step += every)
    columns.add(static_cast<double>(step), value(static_cast<double>(step) / static_cast<double>(steps),
                                                 noise(step, static_cast<int64_t>(name.size()))));
  return {.name = name, .columns = columns.columns(), .values = columns.count()};
}

LineChart loss() {
  return {
      .key = "loss",
      .title = "Loss",
      .unit = "nats",
      .x_title = "step",
      .series = {series("train", 20000, 1, [](double t, double n) { return 0.3 + 2 * std::exp(-5 * t) + 0.12 * n; }),
                 series("evaluation", 20001, 1000, [](double t, double) { return 0.42 + 1.9 * std::exp(-4.4 * t); })},
      .marks = {{1000, "end of the warm-up"}, {12480, "resumed at 12,480"}}};
}
LineChart throughput() {
  LineChart chart{.key = "throughput", .title = "Throughput", .unit = "samples/s", .x_title = "s", .from_zero = true};
  Columns columns;
  for (int64_t i = 0; i < 900; ++i)
    if (i < 400 || i > 520)
      columns.add(static_cast<double>(i) * 0.7, 1243 + 40 * noise(i, 3) - (i % 97 == 0 ? 500 : 0));
  chart.series = {{.name = "all ranks", .columns = columns.columns(), .values = columns.count()}};
  return chart;
}
LineChart stages() {
  LineChart chart{
      .key = "stages", .title = "Where the step's time goes", .unit = "ms", .x_title = "step", .stacked = true};
  chart.series = {series("forward", 4000, 10, [](double, double n) { return 8.1 + 0.4 * n; }),
                  series("backward", 4000, 10, [](double, double n) { return 14.7 + 0.6 * n; }),
                  series("optimizer", 4000, 10, [](double, double n) { return 2.2 + 0.1 * n; }),
                  series("wait for data", 4000, 10, [](double t, double n) { return t > 0.6 ? 6 + 2 * n : 0.2; })};
  return chart;
}
LineChart device() {
  return {.key = "device",
          .title = "GPU",
          .unit = "%",
          .x_title = "s",
          .series = {series("use", 640, 1, [](double, double n) { return 91 + 6 * n; }),
                     series("memory", 640, 1, [](double t, double) { return t < 0.05 ? 31 : 64.5; }),
                     series("power", 640, 1, [](double, double n) { return 78 + 9 * n; })},
          .from_zero = true,
          .top = 100};
}
Histogram step_times() {
  Histogram chart{.key = "step-times", .title = "Step times", .unit = "ms", .bins = {}};
  for (int i = 0; i < 60; ++i) {
    const double low = 24 + 0.2 * i, z = (low - 26.1) / 1.1;
    chart.bins.push_back({low, low + 0.2, static_cast<int64_t>(900 * std::exp(-z * z / 2) + (i > 45 ? 12 : 0))});
  }
  chart.marks = {{26.2, "p50 26.2 ms"}, {28.3, "p95 28.3 ms"}, {34.8, "p99 34.8 ms"}};
  chart.beyond = 17;
  return chart;
}
Bars memory() {
  return {.key = "memory",
          .title = "Peak memory",
          .unit = "MiB",
          .rows = {{"plain",
                    {{"parameters", 42.6, "42.6 MiB"},
                     {"gradients", 42.6, "42.6 MiB"},
                     {"optimizer", 85.3, "85.3 MiB"},
                     {"activations", 803.1, "803 MiB"}}},
                   {"amp",
                    {{"parameters", 42.6, "42.6 MiB"},
                     {"gradients", 42.6, "42.6 MiB"},
                     {"optimizer", 85.3, "85.3 MiB"},
                     {"activations", 421.8, "422 MiB"}}},
                   {"amp, activation_checkpointing",
                    {{"parameters", 42.6, "42.6 MiB"},
                     {"gradients", 42.6, "42.6 MiB"},
                     {"optimizer", 85.3, "85.3 MiB"},
                     {"activations", 118.4, "118 MiB"}}}}};
}
Bars kernels() {
  return {.key = "kernels",
          .title = "Kernels with the most time",
          .unit = "ms",
          .rows = {{"sm90_xmma_fprop_implicit_gemm_bf16bf16_bf16f32_f32_nhwckrsc_nhwc_tilesize128x128x64",
                    {{"", 6.21, "6.21 ms"}}},
                   {"cudnn::bn_bw_1C11_kernel_new", {{"", 3.7, "3.70 ms"}}},
                   {"elementwise_kernel", {{"", 1.04, "1.04 ms"}}},
                   {"multi_tensor_apply_kernel", {{"", 0.33, "330 µs"}}}}};
}
Forest ablation() {
  using Verdict = Forest::Verdict;
  return {.key = "ablation",
          .title = "Each switch taken away",
          .faster = "faster than the baseline",
          .slower = "slower than the baseline",
          .rows = {{"amp", 1.83, {{1.79, 1.87}}, Verdict::faster, "1.83× (1.79–1.87)"},
                   {"channels_last", 1.31, {{1.28, 1.34}}, Verdict::faster, "1.31× (1.28–1.34)"},
                   {"cuda_graph", 1.02, {{0.97, 1.08}}, Verdict::undecided, "1.02× (0.97–1.08)"},
                   {"fused_adamw", 1.001, {{0.998, 1.004}}, Verdict::none, "1.00× (1.00–1.00)"},
                   {"activation_checkpointing", 0.78, {{0.76, 0.80}}, Verdict::slower, "0.78× (0.76–0.80)"}}};
}
Waterfall ladder() {
  return {.key = "ladder",
          .title = "From the plain recipe to all switches",
          .unit = "samples/s",
          .begin = 512,
          .begin_name = "plain",
          .end_name = "all switches",
          .rows = {{"amp", 1.83, {{1.79, 1.87}}, "1.83×"},
                   {"channels_last", 1.31, {{1.28, 1.34}}, "1.31×"},
                   {"activation_checkpointing", 0.82, {{0.8, 0.84}}, "0.82×"},
                   {"cuda_graph", 1.06, {}, "1.06×"}}};
}
Strip ranks() {
  Strip chart{.key = "ranks", .title = "Step time of each rank", .unit = "ms", .x_title = "step", .rows = {}};
  for (int rank = 0; rank < 8; ++rank) {
    Columns columns;
    for (int64_t step = 0; step < 3000; ++step)
      columns.add(static_cast<double>(step), 26 + 0.5 * noise(step, rank) + (rank == 5 && step > 1700 ? 5 : 0));
    chart.rows.push_back({fmt::format("rank {}", rank), columns.columns()});
  }
  return chart;
}

Html headline() {
  Html figures;
  const auto add = [&](const char* label, const Html& value, const char* unit, const char* note) {
    figures += element("div", {{"class", "key-figure"}},
                       element("span", {{"class", "label"}}, escape(label)) +
                           element("span", {{"class", "value"}}, value + " " + element("small", escape(unit))) +
                           element("span", {{"class", "note"}}, escape(note)));
  };
  add("Throughput", figure("throughput", 1243.2, "1,243"), "samples/s", "95 %: 1,231–1,255");
  add("Step time, median", figure("step_ms", 25.7, "25.7"), "ms", "p99 34.8 ms");
  add("Loss, last", figure("loss", 0.31415, "0.314"), "nats", "step 20,000");
  add("Accuracy, best", figure("accuracy", 0.9412, "94.1"), "%", "step 19,000");
  add("Peak memory", figure("peak_mib", 592.3, "592"), "MiB", "of 81,559 MiB");
  add("Energy", figure("energy_j", nullptr, ""), "J", "the GPU does not tell");
  Html switches;
  for (const auto& [name, kind, seen] : std::initializer_list<std::tuple<const char*, const char*, const char*>>{
           {"amp", "is-effective", "bf16 in 53 of 53 products"},
           {"channels_last", "is-effective", "20 of 20 convolutions"},
           {"cuda_graph", "is-idle", "no effect: the shapes change"},
           {"ema", "is-off", ""}})
    switches +=
        element("li", {{"class", std::string("switch ") + kind}},
                element("span", {{"class", "name"}}, name) + " " + element("span", {{"class", "seen"}}, escape(seen)));
  return element("div", {{"class", "key-figures"}}, figures) +
         element("div", {{"class", "limits"}},
                 element("p", element("strong", "The GPU limits this run.") +
                                  " It computes during 92 % of a step; the loader is waited for during 3 %.") +
                     R"(<div class="share" role="img" aria-label="GPU 92 %, data 3 %, rest 5 %">)"
                     R"(<span class="bar c0" style="width:92%"></span><span class="bar c1" style="width:3%"></span>)"
                     R"(<span class="bar c6" style="width:5%"></span></div>)") +
         element("ul", {{"class", "switches"}}, switches);
}

Html advice() {
  const auto one = [](const char* what, const char* why, const char* command) {
    return element("li", element("strong", what) + element("p", why) + element("code", command));
  };
  return element("ol", {{"class", "advice"}},
                 one("Use more loader threads", "The last third of the run waited 6 ms a step for data.",
                     "trainopt run recipe.yaml data.loading.threads=8") +
                     one("Remove cuda_graph", "It had no effect, because shapes change.",
                         "trainopt run recipe.yaml optimizations.cuda_graph=false"));
}

Html tables() {
  Table table{
      .caption = "Comparison", .columns = {{"metric"}, {"plain", true}, {"amp", true}, {"verdict"}}, .rows = {}};
  const auto verdict = [](const char* kind, const char* text) {
    return element("span", {{"class", std::string("verdict is-") + kind}}, text);
  };
  table.rows = {{"throughput", "512", "937", verdict("faster", "faster")},
                {"time to accuracy", "1,204 s", "1,310 s", verdict("slower", "slower")},
                {"loss", "0.314", "0.315", verdict("none", "no difference")},
                {"memory", "974 MiB", "592 MiB", verdict("undecided", "undecided")}};
  Table diff{.caption = "Changed options", .columns = {{"change"}, {"option"}, {"from"}, {"to"}}, .rows = {}};
  const auto change = [](const char* kind) {
    return element("span", {{"class", std::string("change is-") + kind}}, kind);
  };
  diff.rows = {{change("added"), "optimizations.amp", "", element("code", "bf16")},
               {change("removed"), "optimizations.ema", element("code", "{decay: 0.999}"), ""},
               {change("changed"), "train.max_steps", element("code", "10000"), element("code", "20000")}};
  Table steps{.caption = "Steps", .columns = {{"step", true}, {"loss", true}}, .rows = {}, .shown = 5};
  for (int i = 0; i < 40; ++i) steps.rows.push_back({std::to_string(i), "2.302"});
  return draw(table) +
         element("div", {{"class", "side-by-side"}},
                 element("div", {{"class", "diff"}}, draw(diff)) + element("div", draw(steps))) +
         "<p class=\"note\">Both ran on the same machine.</p><p class=\"warning\">The clocks of the GPU were not "
         "locked.</p>"
         "<pre><code>train:\n  max_steps: 20000   # a long comment that makes this line wider than a telephone, to see "
         "that it scrolls</code></pre>";
}

Html cards(std::initializer_list<Html> items) {
  Html all;
  for (const auto& item : items) all += item;
  return element("div", {{"class", "cards"}}, all);
}

Page long_page() {
  LineChart chart{.key = "many", .title = "Twenty series", .unit = "ms", .x_title = "step"};
  for (int i = 0; i < 20; ++i) {
    Columns columns;
    for (int64_t step = 0; step < 1024 * 64; ++step)
      columns.add(static_cast<double>(step),
                  10 + i + std::sin(static_cast<double>(step) / 5000 + i) + noise(step, i) / 3);
    chart.series.push_back({fmt::format("unit {}", i), columns.columns(), columns.count()});
  }
  return {
      .title = "Long", .headline = {}, .sections = {{"many", "Many", draw(chart)}}, .footer = "demo", .reload_s = {}};
}

Page empty_page() {
  return {
      .title = "Empty",
      .headline = {},
      .sections = {{"empty", "Empty",
                    cards({draw(LineChart{.key = "a", .title = "Loss"}), draw(Histogram{.key = "b", .title = "Times"}),
                           draw(Bars{.key = "c", .title = "Memory"}), draw(Forest{.key = "d", .title = "Ablation"}),
                           draw(Waterfall{.key = "e", .title = "Ladder"}),
                           draw(Strip{.key = "f", .title = "Ranks"})})}},
      .footer = "demo",
      .reload_s = {}};
}

Page demo_page() {
  return {.title = "resnet18 on cifar10: 1,243 samples/s",
          .headline = headline(),
          .sections = {{"curves", "Loss and throughput", cards({draw(loss()), draw(throughput())})},
                       {"time", "Where time goes",
                        cards({draw(stages()), draw(step_times()), draw(kernels()), draw(device())})},
                       {"ranks", "Ranks", draw(ranks())},
                       {"switches", "Switches", cards({draw(ablation()), draw(ladder())})},
                       {"memory", "Memory", draw(memory())},
                       {"advice", "What to try", advice()},
                       {"tables", "Comparison", tables()}},
          .footer = "trainopt 1.0.0 · made-up data",
          .reload_s = {}};
}

}  // namespace
}  // namespace trainopt::report

int main(int count, char** arguments) {
  if (count < 2) return 2;
  using namespace trainopt::report;
  const std::string kind = count > 2 ? arguments[2] : "";
  Page page = kind == "long" ? long_page() : kind == "empty" ? empty_page() : demo_page();
  if (kind == "live") page.reload_s = 3;
  std::ofstream(arguments[1]) << draw(page);
  return 0;
}
