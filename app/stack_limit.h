// The stack that threads get: libtorch's kernels and decoders of images need more than some shells allow.
#pragma once

namespace trainopt {

/// Raises the limit of this process to what the program needs, for the threads that are started from now on too. Throws
/// UserError(memory) if the system does not allow so much.
void require_stack();

}  // namespace trainopt
