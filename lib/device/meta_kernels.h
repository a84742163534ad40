// Operations on meta tensors: what libtorch's C++ part lacks. Its Python part defines the same shapes
// (torch/_meta_registrations.py and torch/_decomp).
#pragma once

namespace trainopt {

/// Registers the operations with libtorch's dispatcher, for the rest of the process. Call once.
void register_meta_kernels();

}  // namespace trainopt
