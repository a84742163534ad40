#include "run/environment.h"

#include <unistd.h>

#include <string_view>

namespace trainopt {

Environment read_environment(char** variables) {
  Environment environment;
  for (; *variables; ++variables) {
    const std::string_view entry(*variables);
    const size_t equals = entry.find('=');
    if (equals != std::string_view::npos) environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> visible_devices(const Environment& environment) {
  const auto found = environment.find("CUDA_VISIBLE_DEVICES");
  return found == environment.end() ? std::nullopt : std::optional(found->second);
}

Machine this_machine(const Environment& environment) {
  Machine machine = detect_machine(visible_devices(environment));
  for (const auto& [name, value] : environment)
    if (name == "HOME" || name.starts_with("AWS_")) machine.variables.emplace(name, value);
  return machine;
}

bool colored_output(const OutputOptions& output) {
  return !output.no_color && !output.launched && ::isatty(STDOUT_FILENO) == 1;
}

bool has_status_line(const OutputOptions& output) {
  return !output.no_color && !output.launched && ::isatty(STDERR_FILENO) == 1;
}

}  // namespace trainopt
