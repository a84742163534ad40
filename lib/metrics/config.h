// The sections `logging` and `telemetry` of a recipe.
#pragma once

#include "config/describe.h"

namespace trainopt {

enum class SinkKind { console, jsonl, csv, tensorboard };
template <>
struct Choices<SinkKind> {
  static constexpr std::array all = {Choice<SinkKind>{"console", SinkKind::console},
                                     Choice<SinkKind>{"jsonl", SinkKind::jsonl}, Choice<SinkKind>{"csv", SinkKind::csv},
                                     Choice<SinkKind>{"tensorboard", SinkKind::tensorboard}};
};

enum class Progress { automatic, on, off };
template <>
struct Choices<Progress> {
  static constexpr std::array all = {Choice<Progress>{"auto", Progress::automatic},
                                     Choice<Progress>{"true", Progress::on}, Choice<Progress>{"false", Progress::off}};
};

enum class DumpKind { outputs, gradients, buffers };
template <>
struct Choices<DumpKind> {
  static constexpr std::array all = {Choice<DumpKind>{"outputs", DumpKind::outputs},
                                     Choice<DumpKind>{"gradients", DumpKind::gradients},
                                     Choice<DumpKind>{"buffers", DumpKind::buffers}};
};

struct DumpConfig {
  std::vector<int64_t> steps;
  std::vector<DumpKind> what{DumpKind::outputs, DumpKind::gradients, DumpKind::buffers};
};
template <class V>
void describe(V& v, DumpConfig& c) {
  v.field("steps", c.steps, "Steps (from 1) whose tensors are written to the run directory as safetensors.",
          in_range(1, 1e15));
  v.field("what", c.what, "The tensors to write.");
}

struct LoggingConfig {
  int64_t every_n_steps = 1;
  std::vector<SinkKind> sinks{SinkKind::console, SinkKind::jsonl, SinkKind::csv};
  Progress progress = Progress::automatic;
  bool report = true;
  DumpConfig dump;
};
template <class V>
void describe(V& v, LoggingConfig& c) {
  v.field("every_n_steps", c.every_n_steps, "Record every n-th step; the first and the last are always recorded.",
          in_range(1, 1e15), alias("log_every_n_steps", "logging_steps", "log_interval", "steps_per_print"));
  v.field("sinks", c.sinks,
          "Where records are written: standard output, metrics.jsonl, metrics.csv, or an event file for TensorBoard.");
  v.field("progress", c.progress, "Show a progress line with the remaining time; auto: only on a terminal.");
  v.field("report", c.report, "Write report.html, a page to look at, when the run ends.");
  v.section("dump", c.dump, "Tensors to save for inspection.");
}

struct TelemetryConfig {
  Duration interval{0.1};
};
template <class V>
void describe(V& v, TelemetryConfig& c) {
  v.field("interval", c.interval, "Time between two hardware measurements.", in_range(0.01, 3600));
}

}  // namespace trainopt
