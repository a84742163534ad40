// libtorch's meta device, on which tensors have shapes and types but no memory, made fit for training steps. Operations
// allocate there what they would allocate on a real device, a MemoryListener on this device hears of it, and they
// compute nothing.
#pragma once

namespace trainopt {

/// Call before tensors are created that a MemoryListener shall hear of. Installs, once per process: an allocator that
/// reports to the listener of the allocating thread; the shapes of the operations of training steps for which libtorch
/// has them in Python only; autocast (autocast.h). Temporary memory within an operation, such as a
/// library's work space, is not reported, except that of convolutions of groups.
void open_meta_device();

/// During its lifetime, tensors on the meta device stand for some on this CPU: convolutions of groups in NHWC take the
/// work space there that oneDNN takes here. It is measured by computing their gradients for one image.
class MetaStandsForCpu {
 public:
  explicit MetaStandsForCpu(bool stands);
  ~MetaStandsForCpu();
  MetaStandsForCpu(const MetaStandsForCpu&) = delete;
  MetaStandsForCpu& operator=(const MetaStandsForCpu&) = delete;

 private:
  bool before_;
};

}  // namespace trainopt
