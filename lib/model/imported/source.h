// A program of torch.export that is ready to become a model: its graph without nested ones, its input, its state.
#pragma once

#include "model/config.h"
#include "model/imported/aliases.h"
#include "model/imported/division.h"
#include "model/imported/head.h"
#include "model/program/program.h"

#include <ATen/core/Tensor.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace trainopt {

/// Throws UserError(checkpoint) that says in one sentence why the program cannot be trained here.
struct ProgramSource {
  explicit ProgramSource(const ModelConfig& config);
  ProgramSource(const std::string& file, const ModelConfig& config);

  [[noreturn]] void refuse(const std::string& why) const { program.archive().refuse(why); }
  bool is_trained(int64_t value) const { return division.trained.contains(value); }
  /// Whether the node changes a buffer that it also reads: not batch-norm's statistics, nor its count of batches.
  bool changes_what_it_reads(const ProgramNode& node) const;
  /// Whether this input of the graph is state of the model: a parameter, a buffer that its model saves, or one that the
  /// graph changes.
  bool is_state(size_t input) const;
  /// The first of a tied weight's names, as files have it; another weight has only one.
  const std::string& first_name(const std::string& name) const;
  /// divide(), with the file in messages about the program.
  std::vector<NodeRange> divided(const std::string& where);
  /// A given tensor that nothing changes while training, in the CPU's memory; undefined: another value. `keeps_state`:
  /// buffers and frozen parameters have the archive's values, not those of another file.
  at::Tensor constant(int64_t value, bool keeps_state = true) const;
  /// The sizes and type of a value that must be a tensor.
  const ProgramTensor& tensor_of(const ProgramValue& value) const;
  /// The symbol of the tokens of a text, if their number is free; empty otherwise.
  std::string token_symbol() const;
  /// One sample of its input, with model.context tokens if their number is free.
  InputShape input_shape(const ModelConfig& config) const;
  /// The classes that its logits tell apart, or the vocabulary; 0: its loss comes without logits of classes.
  int64_t classes() const;
  /// How many different tokens it can read: those of its embedding, or of the logits beside its loss, or at most of its
  /// largest embedding. null: not known.
  std::optional<int64_t> embedded_tokens() const;
  /// Whether it is a program of model.eval(): it has operations that training and evaluation tell apart, and all are in
  /// evaluation.
  bool is_of_evaluation() const;

  Program program;
  std::string path;
  ProgramGraph graph;
  std::map<int64_t, std::string> names;  ///< parameters, buffers and constants, by the value's index
  std::optional<AliasSets> aliases;
  std::set<int64_t> changed;  ///< given values that an operation changes
  DivisionInput division;
  ModelTask task = ModelTask::automatic;           ///< never `automatic` once constructed
  std::optional<ProgramValue> target;              ///< its second input, if it computes its own loss
  std::optional<ProgramValue> logits_beside_loss;  ///< batch × classes, without gradient; the last node computes them
  std::optional<int64_t> vocabulary_beside_loss;   ///< the last size of logits of tokens that it returns with its loss
  std::optional<ProgramHead> head;                 ///< the last layer of a classifier, if it is linear

 private:
  void find_inputs(ModelTask wanted);
  void require_inputs(size_t count, ModelTask wanted) const;
  void require_free_batch(const ProgramTensor& input) const;
  void find_target(const ProgramValue& second);
  void require_used(const ProgramValue& input, const ProgramValue& of_target) const;
  void find_outputs();
  void find_logits_beside_loss();
  void find_last_layer(const ModelConfig& config);
  void find_given();
  void find_changed();
};

at::ScalarType torch_type(ProgramType type);
/// A tensor of the archive, contiguous in the CPU's memory.
at::Tensor read_tensor(const ProgramArchive& archive, const StoredTensor& stored);

}  // namespace trainopt
