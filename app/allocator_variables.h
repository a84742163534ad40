// Turns libtorch's abort on a wrong PYTORCH_ALLOC_CONF into one sentence.
#pragma once

namespace trainopt {

/// libtorch reads PYTORCH_ALLOC_CONF and PYTORCH_CUDA_ALLOC_CONF while its CUDA half is loaded, and an exception that
/// it throws there ends the process. From this call on, the process then ends with one sentence that names the variable
/// and the exit code `recipe`. `environment`: as in environ(7).
void explain_allocator_variables(char** environment);

/// Ends the process in the same way where the CUDA half is not loaded, so that a wrong variable is found on any
/// machine.
void check_allocator_variables();

}  // namespace trainopt
