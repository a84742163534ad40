// The program behind main().
#pragma once

namespace trainopt {

/// The whole program: arguments in, exit code out. Errors that nothing else handles become a message and an exit code
/// here. Returns only if main() has to return the code, so that tools loaded into the process write their results.
int run_program(int argc, char** argv);

}  // namespace trainopt
