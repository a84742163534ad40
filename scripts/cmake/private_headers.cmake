# libtorch's headers under torch/csrc carry no promise. Each is included by one file of lib/, in this list together with
# a declaration that the file needs. A libtorch that lacks one is refused before anything is compiled.
set(oldest_torch 2.11)
set(newest_torch 2.15)  # the newest that was tried
set(private_headers
  "autograd/autograd.h" "variable_list grad" "lib/device/differentiable.cpp"
  "autograd/custom_function.h" "AutogradContext" "lib/device/differentiable.cpp"
  "autograd/engine.h" "get_default_engine" "lib/train/observe/autograd_hooks.cpp"
  "autograd/function.h" "namespace torch::autograd" "lib/train/observe/autograd_hooks.cpp"
  "autograd/function_hook.h" "PostAccumulateGradHook" "lib/train/observe/autograd_hooks.cpp"
  "autograd/variable.h" "set_post_acc_grad_hooks" "lib/train/observe/autograd_hooks.cpp"
  "autograd/profiler_kineto.h" "void prepareProfiler" "lib/device/profiler_recording.cpp"
  "cuda/memory_snapshot.h" "_memory_snapshot_pickled" "lib/device/cuda/memory_snapshot.cpp"
  "distributed/c10d/Backend.hpp" "class TORCH_API Backend" "lib/comm/process_groups.h"
  "distributed/c10d/PrefixStore.hpp" "class TORCH_API PrefixStore" "lib/comm/c10d_store.h"
  "distributed/c10d/ProcessGroup.hpp" "class TORCH_API ProcessGroup" "lib/comm/c10d_communicator.h"
  "distributed/c10d/ProcessGroupGloo.hpp" "class TORCH_API ProcessGroupGloo" "lib/comm/gloo.cpp"
  "distributed/c10d/ProcessGroupNCCL.hpp" "class TORCH_API ProcessGroupNCCL" "lib/comm/cuda/nccl.cpp"
  "distributed/c10d/Store.hpp" "class TORCH_API Store" "lib/comm/c10d_store.h"
  "distributed/c10d/TCPStore.hpp" "class TORCH_API TCPStore" "lib/comm/rendezvous.cpp"
  "distributed/c10d/reducer.hpp" "bucket_bytes_cap_list" "lib/comm/gradient_reducer.cpp")

if(torch_version VERSION_LESS oldest_torch)
  message(FATAL_ERROR "libtorch ${oldest_torch} or newer is needed; found ${torch_version} in ${torch_folder}")
elseif(torch_version VERSION_GREATER newest_torch)
  message(WARNING "libtorch ${torch_version} was not tried; ${oldest_torch} and ${newest_torch} were")
endif()
while(private_headers)
  list(POP_FRONT private_headers header declaration user)
  set(header torch/csrc/${header})
  set(found "")
  if(EXISTS ${torch_folder}/include/${header})
    file(STRINGS ${torch_folder}/include/${header} found REGEX "${declaration}" LIMIT_COUNT 1)
  endif()
  if(NOT found)
    message(FATAL_ERROR "libtorch ${torch_version} lacks ${declaration} in ${header}, which ${user} needs; use "
      "${oldest_torch} to ${newest_torch}, or change that file")
  endif()
endwhile()
