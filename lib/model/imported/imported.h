// Networks that a recipe cannot name: programs that torch.export saved, trained as they are. A program becomes a Model
// of units like any other; its parameters and buffers keep their names.
#pragma once

#include "model/builder.h"
#include "model/config.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace trainopt {

/// What a program takes and returns, known without libtorch's help.
struct ProgramFacts {
  InputShape input;          ///< one sample
  bool free_tokens = false;  ///< texts may have any number of tokens; `input` has model.context
  int64_t classes = 0;  ///< how many its logits tell apart, or the vocabulary; 0: its loss comes without such logits
  std::optional<int64_t> embedded_tokens;  ///< how many different tokens it can read; null: not known
  ModelTask task = ModelTask::classification;
  std::optional<int64_t> least_batch, largest_batch;  ///< null: any
  int64_t operations = 0;                             ///< nodes of the graph
  std::string torch_version;
};
/// Throws UserError(checkpoint) that says in one sentence why the program cannot be trained here.
ProgramFacts program_facts(const ModelConfig& config);
/// config.context, or the number of tokens closest to it that the program allows.
int64_t nearest_context(const ModelConfig& config);
/// Why the program cannot be evaluated; empty: it can. Names the operation and its module.
std::string why_not_evaluated(const ModelConfig& config);
struct ProgramNotes {
  std::vector<std::string> uncounted, draws;  ///< operations whose FLOPs are not counted, and that draw
  /// By unit the places in it where model.units wants a cut and none is legal, each "before layer1: why".
  std::map<std::string, std::vector<std::string>> uncut;
};
ProgramNotes program_notes(const ModelConfig& config);

/// Adds the units of the program `config.path`, with its weights. `input` must be what the program takes.
void build_exported(Builder& builder, const ModelConfig& config, const InputShape& input);

}  // namespace trainopt
