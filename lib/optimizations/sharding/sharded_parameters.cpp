#include "optimizations/sharding/sharded_parameters.h"

#include "base/error.h"
#include "device/tensor.h"
#include "device/tensor_memory.h"
#include "optimizations/sharding/gradient_shards.h"
#include "optimizations/sharding/sharding.h"
#include "train/observe/autograd_hooks.h"
#include "train/observe/step_trace.h"
#include "train/plan.h"

#include <algorithm>
#include <set>

namespace trainopt {
namespace {

/// The parameters of the model's units, grouped until each group reaches the recipe's minimum size.
std::vector<NamedTensors> groups_of(const Model& model, const WrapConfig& wrap, std::vector<size_t>& group_of_unit) {
  std::set<std::string> trainable;
  for (const auto& [name, parameter] : model.parameters()) trainable.insert(name);
  std::vector<NamedTensors> groups;
  bool open = false;
  for (size_t unit = 0; unit < model.units().size(); ++unit) {
    if (!open) groups.emplace_back();
    for (const auto& [name, tensor] : model.unit_state(unit))
      if (trainable.contains(name)) groups.back().emplace_back(name, tensor);
    group_of_unit.push_back(groups.size() - 1);
    int64_t numbers = 0;
    for (const auto& [name, parameter] : groups.back()) numbers += parameter.numel();
    open = groups.back().empty() || (wrap.policy == WrapPolicy::size && numbers < wrap.min_parameters);
  }
  if (groups.back().empty()) {  // trailing units without parameters join the group before them
    groups.pop_back();
    for (auto& group : group_of_unit) group = std::min(group, groups.size() - 1);
  }
  return groups;
}

class ShardedParameters : public ParameterStore {
 public:
  /// `machines`: of a hybrid, otherwise empty.
  ShardedParameters(const BuildContext& context, const ParallelConfig& config, MachineGroups machines)
      : job_(*context.replicas),
        machines_(std::move(machines)),
        communicator_(machines_.inside ? *machines_.inside : job_),
        keeps_full_(config.sharding_strategy == ShardingStrategy::zero1 ||
                    config.sharding_strategy == ShardingStrategy::zero2) {
    std::vector<size_t> group_of_unit;
    for (const auto& parameters : groups_of(*context.model, config.wrap, group_of_unit))
      groups_.push_back(std::make_unique<Group>(
          parameters, communicator_, keeps_full_,
          GradientShardsOptions{.keeps_full = config.sharding_strategy == ShardingStrategy::zero1,
                                .overlap = config.overlap_comm,
                                .wire_type = wire_type(config),
                                .copies = machines_.across.get()},
          exchanges_));
    for (const auto& group : groups_)
      for (const auto& piece : group->unit.pieces()) {
        const auto range = group->unit.own_range(piece);
        const int64_t number = pieces_++;
        if (range.count == 0) continue;
        parameters_.emplace_back(piece.name, group->unit.own().narrow(0, range.in_own, range.count));
        parts_.push_back({group.get(), &piece, range, number});
      }
    if (parameters_.empty())
      throw UserError(fmt::format("the model has too few parameters to shard over the ranks; start fewer ranks: {}",
                                  communicator_.ranks()));
    size_t unit = 0;
    context.model->wrap_units([&](std::unique_ptr<Unit> inner) {
      const size_t group = group_of_unit[unit++];
      const bool last = unit == group_of_unit.size() || group_of_unit[unit] != group;
      std::vector<size_t> shared;
      for (const size_t other : context.model->units_shared_by(unit - 1))
        if (group_of_unit[other] != group) shared.push_back(group_of_unit[other]);
      return std::make_unique<GatheredUnit>(std::move(inner), *this, group, last, std::move(shared));
    });
  }

  const NamedTensors& parameters() const override { return parameters_; }
  void report(StepTrace& trace) const override { trace.counts[sharding::kWrap] = static_cast<double>(groups_.size()); }

  Scope accumulate(bool is_last) override {
    for (auto& group : groups_) group->gradients.begin(is_last);
    return Scope();
  }
  std::vector<at::Tensor> gradients() const override {
    std::vector<at::Tensor> all;
    for (const auto& part : parts_) all.push_back(part.of(part.group->gradients.own()));
    return all;
  }
  void clear_gradients() override {
    for (auto& group : groups_) group->gradients.clear();
  }
  /// Every rank has updated its share. The next forward waits for the gathered parameters unit by unit.
  void updated() override {
    for (auto& group : groups_) group->unit.mark_stale();
    if (keeps_full_)
      for (auto& group : groups_) group->unit.gather();
  }

  NamedTensors replicated() override {
    NamedTensors all;
    if (!keeps_full_) return all;
    for (auto& group : groups_) {
      group->unit.use();
      for (const auto& piece : group->unit.pieces()) all.emplace_back(piece.name, piece.parameter);
    }
    return all;
  }

  void save(ArchiveWriter& archive, const std::string& prefix, const std::vector<at::Tensor>& tensors,
            const NameFilter& wanted) const override {
    int64_t next = 0;  // tensors are distributed over the ranks' files in turn
    each_full(tensors, archive.shapes_only(), [&](const FlatPiece& piece, const at::Tensor& full) {
      if (!wanted(piece.name)) return;
      if (archive.shapes_only())
        archive.own_tensor(prefix + piece.name, at::empty(piece.sizes, at::TensorOptions(at::kMeta).dtype(at::kFloat)));
      else if (next++ % job_.ranks() == job_.rank())
        archive.own_tensor(prefix + piece.name, full.clone());
    });
  }
  void load(const ArchiveReader& archive, const std::string& prefix, std::vector<at::Tensor>& tensors,
            const NameFilter& wanted) const override {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const auto& [group, piece, range, number] = parts_[i];
      if (!wanted(piece->name)) continue;
      at::Tensor laid_out = at::empty_strided(piece->sizes, piece->strides, at::kFloat);
      archive.tensor(prefix + piece->name, laid_out);
      tensors[i].copy_(laid_out.as_strided({piece->count}, {1}).narrow(0, range.in_piece, range.count));
    }
  }
  NamedTensors complete(const std::vector<at::Tensor>& tensors) const override {
    NamedTensors all;
    each_full(tensors, false, [&](const FlatPiece& piece, const at::Tensor& tensor) {
      if (job_.rank() == 0) all.emplace_back(piece.name, tensor.clone());
    });
    return all;
  }

  at::Tensor sums_of_parts(const at::Tensor& parts) const override {
    std::vector<int64_t> pieces;
    for (const ParameterPart& part : parts_) pieces.push_back(part.number);
    const at::Tensor of_part = at::tensor(pieces, parts.options().dtype(at::kLong));
    at::Tensor all = at::zeros({pieces_, parts.size(1)}, parts.options()).index_copy_(0, of_part, parts);
    communicator_.all_reduce(all)->wait();
    return all.index_select(0, of_part);
  }

  /// Gathers one group of parameters at a time; each rank computes the change of what it has a part of.
  void change_whole(const WholeChange& change) const override {
    size_t part = 0;
    for (const auto& group : groups_) {
      const auto& pieces = group->unit.pieces();
      const bool any = std::any_of(pieces.begin(), pieces.end(), [&](const auto& p) { return change.wanted(p.name); });
      at::Tensor own = any ? at::zeros({group->unit.shard_size()}, group->unit.own().options()) : at::Tensor();
      const size_t first = part;
      for (; part < parts_.size() && parts_[part].group == group.get(); ++part)
        if (change.wanted(parts_[part].piece->name))
          if (const at::Tensor mine = change.part(part); mine.defined()) parts_[part].of(own).copy_(mine);
      if (!any) continue;
      const at::Tensor full = group->unit.gather_full(own);
      for (size_t i = first; i < part; ++i) {
        const FlatPiece& piece = *parts_[i].piece;
        if (!change.wanted(piece.name)) continue;
        const at::Tensor laid_out = at::empty_strided(piece.sizes, piece.strides, own.options());
        laid_out.copy_(change.change(group->unit.piece_of(full, piece)));
        change.use(i,
                   laid_out.as_strided({piece.count}, {1}).narrow(0, parts_[i].range.in_piece, parts_[i].range.count));
      }
    }
  }

  std::vector<Communicator*> communicators() override {
    if (!machines_.inside) return {};
    return {machines_.inside.get(), machines_.across.get()};
  }
  int64_t parameter_bytes() const override {
    int64_t numbers = 0;
    for (const auto& group : groups_) numbers += keeps_full_ ? group->unit.padded() : group->unit.shard_size();
    return 4 * numbers;
  }
  int64_t gradient_bytes() const override {
    int64_t bytes = 0;
    for (const auto& group : groups_) bytes += group->gradients.bytes();
    return bytes;
  }

 protected:
  GradientMemory complete_gradients() override {
    for (auto& group : groups_) group->gradients.send_pending();
    exchanges_.finish();
    for (auto& group : groups_) group->gradients.send_to_copies();
    for (auto& group : groups_) group->gradients.finish();
    if (!keeps_full_)
      for (auto& group : groups_) group->unit.release();
    GradientMemory memory{.tensors = gradients(), .communicator = &communicator_};
    for (const auto& group : groups_) memory.shards.push_back(group->gradients.own());
    return memory;
  }

 private:
  struct Group {
    Group(const NamedTensors& parameters, Communicator& communicator, bool keeps_full,
          const GradientShardsOptions& options, GradientExchanges& exchanges)
        : unit(parameters, communicator, keeps_full),
          gradients(unit, communicator, options, exchanges, [this] { unit.release(); }) {}
    FlatUnit unit;
    GradientShards gradients;
  };
  struct ParameterPart {
    Group* group;
    const FlatPiece* piece;
    FlatUnit::Range range;
    int64_t number;  ///< the piece's number among those of all groups, the same on every rank

    at::Tensor of(const at::Tensor& own) const { return own.narrow(0, range.in_own, range.count); }
  };

  /// Keeps its group's parameters gathered while its forward and backward run, and so those of the groups whose
  /// parameters it shares (tied weights). In training these stay gathered until backward has completed their gradients.
  class GatheredUnit : public WrappedUnit {
   public:
    GatheredUnit(std::unique_ptr<Unit> inner, ShardedParameters& store, size_t group, bool last_of_group,
                 std::vector<size_t> shared)
        : WrappedUnit(std::move(inner)),
          store_(store),
          group_(group),
          last_of_group_(last_of_group),
          shared_(std::move(shared)) {}
    at::Tensor forward(const at::Tensor& input, const ForwardContext& context) override {
      store_.use(group_, +1);
      for (const size_t group : shared_) store_.groups_[group]->unit.use();
      at::Tensor output = inner_->forward(input, context);
      if (store_.keeps_full_) return output;
      before_backward_of(output, [this] { store_.use(group_, -1); });
      const bool backward_follows = context.training && group_ + 1 == store_.groups_.size();
      if (last_of_group_ && !backward_follows) store_.groups_[group_]->unit.release();
      if (!context.training)
        for (const size_t group : shared_) store_.groups_[group]->unit.release();
      return output;
    }

   private:
    ShardedParameters& store_;
    size_t group_;
    bool last_of_group_;
    std::vector<size_t> shared_;
  };

  /// Returns when the group's parameters are gathered; by then the gather of the next group (in `direction`) has
  /// started.
  void use(size_t group, int direction) {
    groups_[group]->unit.gather();
    const size_t next = group + static_cast<size_t>(direction);
    if (next < groups_.size()) groups_[next]->unit.gather();
    groups_[group]->unit.use();
  }

  template <class Take>
  void each_full(const std::vector<at::Tensor>& tensors, bool shapes_only, Take take) const {
    size_t part = 0;
    for (const auto& group : groups_) {
      at::Tensor full;
      if (!shapes_only) {
        const at::NoGradGuard no_grad;
        at::Tensor own = at::zeros({group->unit.shard_size()}, group->unit.own().options());
        for (; part < parts_.size() && parts_[part].group == group.get(); ++part)
          if (tensors[part].defined()) parts_[part].of(own).copy_(tensors[part]);
        full = group->unit.gather_full(own);
      }
      for (const auto& piece : group->unit.pieces())
        take(piece, shapes_only ? full : group->unit.piece_of(full, piece));
    }
  }

  Communicator& job_;
  MachineGroups machines_;
  GradientExchanges exchanges_;
  Communicator& communicator_;                  // connects the ranks that share the parameters
  bool keeps_full_;                             // every rank keeps all parameters
  std::vector<std::unique_ptr<Group>> groups_;  // in forward order
  int64_t pieces_ = 0;                          // pieces of all groups together
  NamedTensors parameters_;                     // this rank's pieces, flat
  std::vector<ParameterPart> parts_;            // where each of parameters_ lies
};

}  // namespace

std::unique_ptr<ParameterStore> make_sharded_parameters(const BuildContext& context, const ParallelConfig& config) {
  broadcast_state(*context.model, *context.replicas);
  return std::make_unique<ShardedParameters>(
      context, config,
      config.sharding_strategy == ShardingStrategy::hybrid ? connect_machines(*context.replicas) : MachineGroups());
}

namespace {

/// Allocates or frees the memory behind a tensor. Its views stay valid objects; use them only while it is allocated.
void resize_storage(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (storage->nbytes() == bytes) return;
  storage->set_data_ptr_noswap(bytes == 0 ? at::DataPtr(nullptr, tensor.device())
                                          : storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

size_t bytes_of(const at::Tensor& flat) { return static_cast<size_t>(flat.numel()) * flat.element_size(); }

}  // namespace

FlatUnit::FlatUnit(const NamedTensors& parameters, Communicator& communicator, bool keeps_full)
    : communicator_(communicator), keeps_full_(keeps_full) {
  const at::NoGradGuard no_grad;
  const MemoryScope scope({.use = MemoryUse::parameters});
  int64_t count = 0;
  for (const auto& [name, parameter] : parameters) {
    TRAINOPT_CHECK(parameter.is_non_overlapping_and_dense() && parameter.scalar_type() == at::kFloat);
    pieces_.push_back({name, parameter, parameter.sizes().vec(), parameter.strides().vec(), count, parameter.numel()});
    count += parameter.numel();
  }
  shard_size_ = (count + communicator_.ranks() - 1) / communicator_.ranks();
  const auto options = parameters.front().second.options().requires_grad(false);
  full_ = at::zeros({padded()}, options);
  for (auto& piece : pieces_) {
    at::Tensor view = piece_of(full_, piece);
    view.copy_(piece.parameter);
    piece.parameter.set_data(view);
  }
  own_ = own_part(full_);
  if (keeps_full_) return;
  own_ = own_.clone();
  release();
}

FlatUnit::Range FlatUnit::own_range(const FlatPiece& piece) const {
  const int64_t first = communicator_.rank() * shard_size_, begin = std::max(piece.begin, first),
                end = std::min(piece.begin + piece.count, first + shard_size_);
  if (begin >= end) return {};
  return {.in_piece = begin - piece.begin, .in_own = begin - first, .count = end - begin};
}

at::Tensor FlatUnit::gather_full(const at::Tensor& own) const {
  at::Tensor all = at::empty({padded()}, own.options());
  communicator_.all_gather(all, own)->wait();
  return all;
}

void FlatUnit::gather() {
  if (fresh_) return;
  const MemoryScope scope({.use = MemoryUse::parameters, .phase = "gathering"});
  if (!keeps_full_) resize_storage(full_, bytes_of(full_));
  fresh_ = true;
  pending_exchange_ = communicator_.all_gather(full_, own_);
}

void FlatUnit::use() {
  gather();
  finish_exchange();
}

/// A pending exchange must end before its memory is freed.
void FlatUnit::finish_exchange() {
  if (pending_exchange_) std::exchange(pending_exchange_, nullptr)->wait();
}

void FlatUnit::release() {
  if (keeps_full_) return;
  finish_exchange();
  resize_storage(full_, 0);
  fresh_ = false;
}

void FlatUnit::mark_stale() {
  finish_exchange();
  fresh_ = false;
}

}  // namespace trainopt
